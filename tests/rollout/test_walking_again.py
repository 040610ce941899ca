"""Episodes from a record, walked again and continued."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from fix_python import environment as fix_python
from stages import TOKENIZER, run_group, stage, text_engine, thinking_stage
from test_rows_of_an_episode import GOOD, play

from sanderling.errors import ReplayError
from sanderling.rollout.config import ForkConfig, RolloutConfig
from sanderling.rollout.episode import Plan
from sanderling.rollout.forking import RolloutParts, run_with_forks, start_forks
from sanderling.rollout.ledger import Ledger
from sanderling.rollout.replay import Recorded, recorded_episodes, replay
from sanderling.sandbox.bubblewrap import BubblewrapBackend
from sanderling.sandbox.protocol import Command, ExecResult
from sanderling.state_identity import StateIdentity
from sanderling.store.reader import RunReader
from sanderling.store.run_folder import RunFolder
from sanderling.testing.engines import ScriptedEngine
from sanderling.testing.environments import FIX, calc_commands, calc_environment
from sanderling.testing.sandboxes import MemoryBackend, result
from sanderling.types import Branching, Group, Limits, Membership

STEPS = ["test", "show", FIX, "undo", FIX, "submit"]
VALUE = RolloutConfig(forks=ForkConfig(continuations=2, turns="every", use="value"))


def _recorded(engine=None, environment=None, backend=None):
    engine = engine or text_engine(lambda context: STEPS[context.count("\n> ") - 1])
    group, *_ = run_group(stage(engine, environment, backend), RolloutConfig())
    (episode,) = recorded_episodes([m.trajectory for m in group.members])
    return episode


def _continue(episode: Recorded, parts, at, config: RolloutConfig = VALUE):
    """Walk an episode again and run two forks from each of the turns; return them by turn."""
    task = parts.environment.tasks.get("calc/train/0")

    async def run():
        rollout = RolloutParts(stage=parts, config=config, ledger=Ledger(), on_dropped=lambda member: None)
        plan = Plan(task=task, group_id="g", index=0, attempt=0, seed=7)
        found = {}
        for turn, snapshot in (await replay(episode, task, parts, at)).items():
            members = await asyncio.gather(*start_forks(plan, snapshot, 2, rollout))
            found[turn] = [member for rows in members for member in rows]
            await snapshot.close()
        return found

    return asyncio.run(run())


def test_a_recorded_episode_goes_on_where_it_stood():
    episode = _recorded()
    backend = MemoryBackend(commands=calc_commands)
    engine = text_engine(lambda context: STEPS[min(context.count("\n> ") - 1, 5)])
    found = _continue(episode, stage(engine, backend=backend), range(6))
    (row,) = episode.rows
    for turn, forks in found.items():
        for member in forks:
            fork = member.trajectory
            assert (fork.parent_id, fork.forked_at, fork.branching) == (row.id, turn, Branching.FORK)
            assert np.array_equal(fork.token_ids(), row.token_ids()), "the same script goes on to the same end"
            assert [t.state_key for t in fork.turns] == [t.state_key for t in row.turns]
            assert member.disposition.membership is Membership.PROBE and member.disposition.reward == 1.0
    contexts = {call.request.session: call.context_ids for call in reversed(engine.calls)}
    whole = row.token_ids().tolist()
    assert len(engine.calls) == 2 * (6 + 5 + 4 + 3 + 2 + 1)
    assert all(context == whole[: len(context)] for context in contexts.values()), "a prefix, which a cache may serve"
    assert backend.alive == 0


def test_an_undo_stack_comes_back_from_the_record():
    episode = _recorded()
    engine = text_engine(lambda context: "undo" if context.count("\n> ") == 4 else "submit")
    (fork, _) = _continue(episode, stage(engine), [3])[3]
    assert fork.trajectory.turns[3].observation.text == "return a - b"
    assert fork.disposition.reward == 0.0


def _timed(seconds: float):
    def commands(command: Command, files: dict[str, bytes]) -> ExecResult:
        return result(
            f"{calc_commands(command, files).stdout.decode()} in {seconds}s at /tmp/tmp{int(seconds * 1e8):08d}/x"
        )

    return commands


def test_other_times_are_no_other_state_and_the_recorded_tokens_stay():
    episode = _recorded(backend=MemoryBackend(commands=_timed(0.31)))
    engine = text_engine(lambda context: "submit")
    (fork, _) = _continue(episode, stage(engine, backend=MemoryBackend(commands=_timed(0.25))), [2])[2]
    assert "in 0.31s" in fork.trajectory.turns[0].observation.text
    assert engine.calls[0].context_ids == episode.rows[0].token_ids()[: len(engine.calls[0].context_ids)].tolist()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"backend": MemoryBackend(commands=lambda command, files: result("another answer"))},
            "another state before turn 1",
        ),
        ({"environment": calc_environment(limits=Limits(max_turns=2))}, None),
        ({"environment": replace(calc_environment(), states=StateIdentity(version="2"))}, "form '1-set'"),
        ({"prompt": "Mend add."}, "prompt tokens"),
        ({"keys": None}, "no state key"),
        ({"keys": "ab12"}, "of a bare workspace"),
        ({"at": [6]}, "6 turns"),
    ],
)
def test_what_can_not_be_walked_again_is_refused(change, words):
    episode = _recorded()
    if "keys" in change:
        rows = [replace(r, turns=tuple(replace(t, state_key=change["keys"]) for t in r.turns)) for r in episode.rows]
        episode = Recorded(rows=tuple(rows))
    backend = change.get("backend") or MemoryBackend(commands=calc_commands)
    environment = change.get("environment")
    parts = stage(text_engine(lambda context: "submit"), environment, backend)
    if "prompt" in change:
        first = replace(episode.rows[0], prompt_ids=np.array(TOKENIZER.encode(change["prompt"]), dtype=np.int32))
        episode = Recorded(rows=(first,))
    if words is None:  # limits are no part of the state: the fork simply has no turn left
        assert all(len(m.trajectory.turns) == 3 for m in _continue(episode, parts, [3])[3])
        return
    with pytest.raises(ReplayError, match=words):
        _continue(episode, parts, change.get("at", [0, 1, 2]))
    assert backend.alive == 0


def test_an_episode_of_several_rows_is_walked_through_all_of_them():
    group, *_ = play("thinking", [GOOD])
    (episode,) = recorded_episodes([m.trajectory for m in group.members])
    assert len(episode.rows) == 3
    found = _continue(episode, thinking_stage(GOOD), [1, 2])
    assert [m.trajectory.parent_id for m in found[1]] == ["g/0.0+1", "g/0.0~1.0.0", "g/0.0+1", "g/0.0~1.1.0"]
    assert [m.trajectory.parent_id for m in found[2]] == ["g/0.0+2"] * 2
    assert np.array_equal(found[1][1].trajectory.prompt_ids, episode.rows[2].prompt_ids), "rewritten as in the record"
    assert {m.disposition.reward for forks in found.values() for m in forks} == {1.0}


def test_a_real_episode_goes_on_from_disk_in_a_real_sandbox(bubblewrap, tmp_path):
    """fix_python on bubblewrap: forked live, stored, read, walked again and forked there, judged."""
    environment = fix_python()
    task = environment.tasks.get(environment.tasks.ids("train")[0])
    script = ["set 1 | broken(", "test", "submit"]
    config = RolloutConfig(forks=ForkConfig(continuations=1, turns="every", use="value"))

    async def work(backend: BubblewrapBackend):
        codec = environment.harness.codec(TOKENIZER)

        class _Engine(ScriptedEngine):
            async def generate(self, request):
                done = sum(int(i) in codec.stop_token_ids for i in request.context_ids)
                self.policy = lambda context: script[done]
                return await super().generate(request)

        engine = _Engine(policy=lambda context: "", tokenizer=TOKENIZER, end_token="<|end|>")
        parts = replace(stage(engine, environment, MemoryBackend()), backend=backend, capabilities=backend.probe())
        rollout = RolloutParts(stage=parts, config=config, ledger=Ledger(), on_dropped=lambda member: None)
        plan = Plan(task=task, group_id="g", index=0, attempt=0, seed=0)
        live = await run_with_forks(plan, parts, config, rollout.ledger, rollout.on_dropped)
        with RunFolder.at(tmp_path / "run", "", {}) as folder:
            folder.write_rollouts(1, [Group(id="g", task_id=task.id, members=live)], tasks={task.id: task})
        members = list(RunReader(tmp_path / "run").rollouts(1).members())
        (episode,) = recorded_episodes([m.trajectory for m in members])
        snapshots = await replay(episode, task, parts, range(1, 3))
        forks = {t: await asyncio.gather(*start_forks(plan, s, 1, rollout)) for t, s in snapshots.items()}
        for snapshot in snapshots.values():
            await snapshot.close()
        return live, episode, forks

    live, episode, forks = bubblewrap(work)
    (row,) = episode.rows
    assert row.isolation == "namespaces" and [t.action.text for t in row.turns] == script
    for member in [*live[1:], *(m for made in forks.values() for rows in made for m in rows)]:
        assert member.trajectory.branching is Branching.FORK
        assert [t.state_key for t in member.trajectory.turns] == [t.state_key for t in row.turns]
        assert member.disposition.membership is Membership.PROBE and member.disposition.reward == 0.0
    assert len(live) == 1 + 2 and sum(len(made) for made in forks.values()) == 2
