"""Episodes that go on from a state of another one."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from stages import TOKENIZER, run_group, stage, text_engine, thinking_stage
from test_rows_of_an_episode import GOOD

from sanderling.batch.checks import check_trained_once
from sanderling.batch.rows import assign_credit, training_rows
from sanderling.credit.episodes import episodes
from sanderling.credit.rloo import Rloo
from sanderling.errors import ConfigError, EngineError
from sanderling.harness.tool_call_harness import ToolCallHarness
from sanderling.learn.measure import disposition_counts, episode_metrics, fork_counts, solve_counts
from sanderling.rollout.config import ForkConfig, RolloutConfig
from sanderling.rollout.episode import Plan
from sanderling.rollout.forking import check_forkable, replaces_snapshot
from sanderling.rollout.ledger import Ledger
from sanderling.rollout.lockstep import LockstepEngine
from sanderling.rollout.scheduler import start_group
from sanderling.sandbox.protocol import Kept
from sanderling.testing import records
from sanderling.testing.engines import ScriptedEngine
from sanderling.testing.environments import FIX, calc_commands, calc_environment
from sanderling.testing.sandboxes import Faults, MemoryBackend, MemorySandbox
from sanderling.types import Branching, Gradient, Limits, Membership, Ungraded


class SeededEngine(ScriptedEngine):
    """Draws one of a few texts by the seed of the request, as a sampler would."""

    texts = ("show", "test", FIX, "submit")

    async def generate(self, request):
        self.policy = lambda context: self.texts[request.seed % len(self.texts)]
        return await super().generate(request)


def seeded() -> SeededEngine:
    return SeededEngine(policy=lambda context: "", tokenizer=TOKENIZER, end_token="<|end|>")


def forks(**settings) -> RolloutConfig:
    return RolloutConfig(forks=ForkConfig(**settings))


def _forks_of(group):
    return [m for m in group.members if m.trajectory.branching is Branching.FORK]


def test_a_fork_goes_on_from_the_same_tokens_and_the_same_files():
    engine = seeded()
    backend = MemoryBackend(commands=calc_commands)
    group, ledger, dropped = run_group(
        stage(engine, backend=backend), forks(continuations=3, turns="every"), size=8, seed=3
    )
    rows = {m.trajectory.id: m.trajectory for m in group.members}
    found = _forks_of(group)
    assert len(found) == sum(3 * (len(t.turns) - 1) for t in rows.values() if t.branching is Branching.ROW) > 10
    for member in found:
        fork = member.trajectory
        parent, shared = rows[fork.parent_id], fork.forked_at
        assert 1 <= shared < len(parent.turns) and len(fork.turns) > shared
        ours, theirs = (replace(t, turns=t.turns[:shared]).token_ids() for t in (fork, parent))
        assert np.array_equal(ours, theirs)
        assert fork.turns[shared].state_key == parent.turns[shared].state_key
    sent = Counter(call.request.session for call in engine.calls)
    for trajectory in rows.values():
        assert sent[trajectory.id] == len(trajectory.turns) - (trajectory.forked_at or 0), "nothing is sampled twice"
    differing = {tuple(t.action.text for t in m.trajectory.turns[m.trajectory.forked_at :]) for m in found}
    assert len(differing) > 3, "reseeded"
    assert backend.alive == 0 and not dropped
    assert set(engine.ended_sessions) == set(rows)
    assert ledger.snapshot() == {
        "submitted": len(rows), "graded": len(rows), "ungraded": 0, "running": 0, "retried": 0
    }  # fmt: skip


def test_the_shared_part_is_trained_once():
    group, *_ = run_group(stage(seeded()), forks(continuations=2), size=4, seed=5)
    rows = training_rows([group], assign_credit([group], Rloo()))
    check_trained_once([group], rows)
    by_id = {row.trajectory_id: row for row in rows}
    sampled = sum(m.trajectory.usage.sampled_tokens for m in group.members)
    assert sum(int(row.loss_mask.sum()) for row in rows) == sampled
    for member in _forks_of(group):
        fork = member.trajectory
        shared = len(replace(fork, turns=fork.turns[: fork.forked_at]).token_ids())
        row = by_id[fork.id]
        assert not row.loss_mask[:shared].any() and not row.weights[:shared].any()
        assert row.loss_mask.sum() == fork.usage.sampled_tokens > 0


def test_a_fork_is_an_episode_of_its_own_that_the_solve_rate_leaves_out():
    group, *_ = run_group(stage(seeded()), forks(continuations=2), size=4, seed=5)
    found = _forks_of(group)
    assert len({e.id for e in episodes(group)}) == len(group.members) == 4 + len(found) > 6
    assert {m.disposition.reward for m in found} == {0.0, 1.0}
    assert solve_counts([group])[1] == 4
    counts = fork_counts([group])
    assert counts["forks"] == len(found)
    assert counts["fork_turns"] == sum(len(m.trajectory.turns) - m.trajectory.forked_at for m in found)
    assert counts["fork_sampled_tokens"] == sum(m.trajectory.usage.sampled_tokens for m in found)
    assert fork_counts([records.group([1.0, 0.0])]) == {}


def test_probes_are_in_no_baseline_and_not_trained():
    plain, *_ = run_group(stage(seeded()), RolloutConfig(), size=4, seed=5)
    group, *_ = run_group(stage(seeded()), forks(continuations=2, turns="every", use="value"), size=4, seed=5)
    probes = _forks_of(group)
    assert probes and {m.disposition.membership for m in probes} == {Membership.PROBE}
    assert {m.disposition.gradient for m in probes} == {Gradient.NONE}
    credit = Rloo()(group)
    assert {name: a.tolist() for name, a in credit.items()} == {name: a.tolist() for name, a in Rloo()(plain).items()}
    rows = training_rows([group], credit)
    assert {row.trajectory_id for row in rows} == {m.trajectory.id for m in plain.members}
    counts = disposition_counts([group], rows)
    assert counts["dropped_probe"] == len(probes) and sum(counts.values()) == len(group.members)
    without = episode_metrics([plain], [])
    assert {k: v for k, v in episode_metrics([group], []).items() if k in without and not k.startswith("stop_")} == {
        k: v for k, v in without.items() if not k.startswith("stop_")
    }


def test_forking_changes_nothing_for_the_episode_itself():
    plain, *_ = run_group(stage(seeded()), RolloutConfig(), size=4, seed=9)
    for settings in ({"continuations": 1}, {"continuations": 2, "turns": "every", "use": "value"}):
        group, *_ = run_group(stage(seeded()), forks(**settings), size=4, seed=9)
        own = [m for m in group.members if m.trajectory.branching is Branching.ROW]
        for left, right in zip(plain.members, own, strict=True):
            timeless = [replace(m.trajectory, timing=plain.members[0].trajectory.timing) for m in (left, right)]
            assert records.same(*timeless)


def test_one_fork_per_episode_falls_on_every_turn_alike():
    last = Counter(max(turn for turn in range(1, 6) if replaces_snapshot(seed, turn)) for seed in range(3000))
    assert set(last) == {1, 2, 3, 4, 5}
    assert all(abs(count - 600) < 4 * np.sqrt(3000 * 0.2 * 0.8) for count in last.values())
    six = ["show", "test", "show", "test", "show", "submit"]
    group, *_ = run_group(
        stage(text_engine(lambda context: six[context.count("\n> ") - 1])), forks(continuations=1), size=8
    )
    found = _forks_of(group)
    assert len(found) == 8 and len({m.trajectory.forked_at for m in found}) > 2


def test_rounds_in_step_are_the_same_run_after_run():
    def rounds() -> list[list[str]]:
        made = []

        class _Engine(SeededEngine):
            async def generate_many(self, requests):
                made.append([request.session for request in requests])
                return await super().generate_many(requests)

        engine = LockstepEngine(_Engine(policy=lambda context: "", tokenizer=TOKENIZER, end_token="<|end|>"))
        run_group(stage(engine), forks(continuations=2, turns="every"), size=3, seed=1)
        return made

    first = rounds()
    assert any("~" in session for session in first[-1])
    assert first == rounds()


def test_limits_hold_for_the_whole_of_an_episode():
    engine = text_engine(lambda context: "show")
    environment = calc_environment(limits=Limits(max_turns=4))
    group, *_ = run_group(stage(engine, environment), forks(continuations=1, turns="every"))
    assert {len(m.trajectory.turns) for m in group.members} == {4}
    assert sorted(m.trajectory.forked_at for m in _forks_of(group)) == [1, 2, 3]


def test_a_conversation_is_forked_with_what_it_remembers():
    """The undo stack of the line editor: in each fork it is that of the parent, and nobody's undo reaches another."""

    class _Engine(ScriptedEngine):
        async def generate(self, request):
            fork = "~" in request.session
            self.policy = lambda context: (
                ["undo", "submit"][context.count("return a - b") - 1]
                if fork
                else [FIX, "test", "submit"][context.count("\n> ") - 1]
            )
            return await super().generate(request)

    engine = _Engine(policy=lambda context: "", tokenizer=TOKENIZER, end_token="<|end|>")
    group, *_ = run_group(stage(engine), forks(continuations=2, turns="every"))
    parent, *found = group.members
    assert parent.disposition.reward == 1.0
    assert [m.trajectory.turns[m.trajectory.forked_at].observation.text for m in found] == ["return a - b"] * 4
    assert [m.disposition.reward for m in found] == [0.0] * 4


def test_a_failed_fork_is_tried_again_and_a_failed_parent_takes_its_forks_along():
    backend = MemoryBackend(commands=calc_commands)
    three = ["show", "test", "submit"]

    failures: list[str] = []

    class _Engine(ScriptedEngine):
        async def generate(self, request):
            if "~" in request.session and not failures:
                failures.append(request.session)
                raise EngineError("once, for a fork")
            return await super().generate(request)

    engine = _Engine(policy=lambda context: three[context.count("\n> ") - 1], tokenizer=TOKENIZER, end_token="<|end|>")
    group, ledger, dropped = run_group(stage(engine, backend=backend), forks(continuations=2))
    assert [m.trajectory.id.endswith(".1") for m in group.members] == [False, True, False]
    assert len(dropped) == 1 and dropped[0].trajectory.branching is Branching.FORK
    assert ledger.snapshot()["retried"] == 1 and backend.alive == 0

    backend = MemoryBackend(commands=calc_commands, faults=Faults(exec_lost=1))
    group, ledger, dropped = run_group(stage(text_engine(engine.policy), backend=backend), forks(continuations=2))
    assert [m.trajectory.id.partition("~")[0] for m in group.members] == ["g/0.1"] * 3
    assert isinstance(dropped[0].verdict, Ungraded) and len(dropped) == 1
    assert backend.alive == 0 and ledger.snapshot()["running"] == 0


def test_cancelled_forks_leave_nothing_behind():
    backend = MemoryBackend(commands=calc_commands)

    class _Engine(ScriptedEngine):
        async def generate(self, request):
            if "~" in request.session:
                await asyncio.Event().wait()
            return await super().generate(request)

    two = ["test", "submit"]
    engine = _Engine(policy=lambda context: two[context.count("\n> ") - 1], tokenizer=TOKENIZER, end_token="<|end|>")
    parts = stage(engine, backend=backend)

    async def run():
        task = parts.environment.tasks.get("calc/train/0")
        plan = Plan(task=task, group_id="g", index=0, attempt=0, seed=0)
        running = start_group(plan, 2, parts, forks(continuations=3), ledger := Ledger(), lambda member: None)
        await asyncio.sleep(0.05)
        assert backend.alive == 2 * (3 + 1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return ledger.snapshot()

    accounts = asyncio.run(run())
    assert backend.alive == 0 and accounts["running"] == 0


def test_an_episode_of_several_rows_is_forked_in_its_row():
    group, *_ = run_group(thinking_stage(GOOD), forks(continuations=1, turns="every"))
    rows = {m.trajectory.id: m.trajectory for m in group.members}
    assert list(rows) == ["g/0.0", "g/0.0+1", "g/0.0+2", "g/0.0~1.0.0", "g/0.0~1.0.0+1", "g/0.0~2.0.0"]
    assert [(rows[n].parent_id, rows[n].forked_at) for n in list(rows)[3:]] == [
        ("g/0.0+1", 0), ("g/0.0~1.0.0", 0), ("g/0.0+2", 0)
    ]  # fmt: skip
    assert [m.disposition.reward for m in group.members] == [1.0] * 6
    assert np.array_equal(rows["g/0.0~1.0.0"].prompt_ids, rows["g/0.0+1"].prompt_ids)
    assert len(episodes(group)) == 3 == len(group.roots())
    check_trained_once([group], training_rows([group], {n: np.ones(len(t.turns)) for n, t in rows.items()}))
    assert fork_counts([group])["forks"] == 2


def test_what_can_not_be_forked_is_refused_with_what_to_do():
    task = calc_environment().tasks.get("calc/train/0")
    asyncio.run(check_forkable(stage(text_engine(lambda context: "test")), task))

    class _Bare:
        def __init__(self, sandbox):
            self.sandbox = sandbox

    class _Harness(type(calc_environment().harness)):
        def start(self, task, sandbox):
            return _Bare(sandbox)

    class _Sandbox(MemorySandbox):
        async def fork(self):
            raise NotImplementedError

    class _Backend(MemoryBackend):
        async def create(self, spec):
            made = await super().create(spec)
            return _Sandbox(self, made.id, dict(spec.files), dict(spec.files))

    class _Toolbox:
        def __init__(self, bench): ...

        async def submit(self):
            """Hand in."""

    environment = calc_environment()
    cases = {
        "_Bare, has no method fork": stage(
            text_engine(str), replace(environment, harness=_Harness(file="calc.py", test_argv=()))
        ),
        "a _Sandbox, can't be forked": stage(text_engine(str), backend=_Backend(commands=calc_commands)),
        "keeps processes": stage(text_engine(str), replace(environment, kept=Kept.PROCESSES)),
        "the toolbox, a _Toolbox": replace(
            stage(text_engine(str)),
            environment=replace(environment, harness=ToolCallHarness(names=("submit",), toolbox=_Toolbox)),
        ),
    }
    for words, parts in cases.items():
        with pytest.raises(ConfigError, match=words) as caught:
            asyncio.run(check_forkable(parts, task))
        assert "rollout.forks.continuations = 0" in str(caught.value)
        assert parts.backend.alive == 0
