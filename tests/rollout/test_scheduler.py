from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stages import TOKENIZER, stage, text_engine

from sanderling.errors import EngineError, InvariantViolation
from sanderling.rollout.config import LimitOverrides, RolloutConfig
from sanderling.rollout.ledger import Ledger
from sanderling.rollout.lockstep import LockstepEngine
from sanderling.rollout.scheduler import Scheduler, run_evaluation
from sanderling.rollout.seeds import derive
from sanderling.rollout.task_stream import TaskStream, with_limits
from sanderling.testing.engines import Fault, ScriptedEngine
from sanderling.testing.environments import FIX, calc_commands, calc_environment
from sanderling.testing.sandboxes import Faults, MemoryBackend
from sanderling.types import Limits, StopReason


def fixer(context: str) -> str:
    return [FIX, "submit"][min(context.count("\n> ") - 1, 1)]


def scheduler(config: RolloutConfig, engine=None, count: int = 5, position: int = 0, backend=None) -> Scheduler:
    environment = calc_environment(count=count)
    parts = stage(engine or text_engine(fixer), environment, backend)
    stream = TaskStream(environment, "train", seed=7)
    return Scheduler(stream, parts, config, position=position)


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_groups_start_within_the_staleness_bound_and_are_handed_over_in_order(staleness):
    config = RolloutConfig(groups_per_step=2, group_size=2, max_staleness=staleness)

    async def run() -> list[str]:
        running = scheduler(config)
        seen = []
        for step in range(1, 7):
            groups, dropped = await running.next_groups()
            assert not dropped
            assert running.capacity == 0
            assert running._admitted == (staleness + step) * config.groups_per_step
            seen += [group.id for group in groups]
            running.advance(step)
        await running.close()
        return seen

    assert asyncio.run(run()) == [f"train-{number:07d}" for number in range(12)]


def test_a_synchronous_scheduler_starts_nothing_before_the_push():
    config = RolloutConfig(groups_per_step=2, group_size=2)

    async def run() -> None:
        running = scheduler(config)
        await running.next_groups()
        running.advance(1)
        await asyncio.sleep(0.01)
        assert running.ledger.running == 0
        assert running.ledger.submitted == 4

    asyncio.run(run())


def test_a_resumed_scheduler_goes_on_where_the_data_stopped():
    config = RolloutConfig(groups_per_step=2, group_size=2)

    async def ids(position: int, steps: int) -> list[str]:
        running = scheduler(config, position=position)
        running.stream.restore({"position": position, "drawn": [], "next": position, "seen": {}})
        found = []
        for step in range(steps):
            groups, _ = await running.next_groups()
            found += [(group.id, group.task_id) for group in groups]
            running.advance(position // 2 + step + 1)
        return found

    assert asyncio.run(ids(0, 4)) == asyncio.run(ids(0, 2)) + asyncio.run(ids(4, 2))


def test_close_cancels_what_runs_and_leaves_no_sandbox():
    backend = MemoryBackend(commands=calc_commands, faults=Faults(exec_hangs=-1))
    config = RolloutConfig(groups_per_step=2, group_size=2, max_staleness=1)

    async def run() -> Ledger:
        running = scheduler(config, engine=text_engine(lambda context: "test"), backend=backend)
        waiting = asyncio.ensure_future(running.next_groups())
        await asyncio.sleep(0.05)
        assert backend.alive == 8
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return running.ledger

    ledger = asyncio.run(run())
    assert backend.alive == 0
    assert ledger.running == 0
    ledger.check()


def test_limits_of_the_run_replace_those_of_the_task():
    environment = calc_environment(limits=Limits(max_turns=3, command_s=2.0))
    task = with_limits(environment.tasks.get("calc/train/0"), LimitOverrides(max_turns=9))
    assert (task.limits.max_turns, task.limits.command_s) == (9, 2.0)


class _JitteryBackend(MemoryBackend):
    """Commands and creations take random times, so that free-running episodes meet in another order each time."""

    async def create(self, spec):
        await asyncio.sleep(random.random() * 0.003)
        return await super().create(spec)


class _RecordingEngine(ScriptedEngine):
    """Keeps the sessions of every batch."""

    batches: list[list[str]]

    async def generate_many(self, requests):
        self.batches.append([request.session for request in requests])
        return await super().generate_many(requests)


def _rounds() -> list[list[str]]:
    engine = _RecordingEngine(policy=fixer, tokenizer=TOKENIZER, end_token="<|end|>")
    engine.batches = []
    parts = stage(LockstepEngine(engine), backend=_JitteryBackend(commands=calc_commands))
    tasks = [parts.environment.tasks.get(name) for name in parts.environment.tasks.ids("train")]
    asyncio.run(run_evaluation(tasks, 3, parts, RolloutConfig(), seed=0, concurrency=6))
    return engine.batches


def test_lockstep_rounds_are_the_same_whatever_the_tools_take():
    first, second = _rounds(), _rounds()
    assert first == second
    # Four tasks of three samples, six places: two blocks, each with two rounds of six.
    assert [len(batch) for batch in first] == [6, 6, 6, 6]
    assert all(batch == sorted(batch) for batch in first)


def test_an_engine_failure_in_a_round_reaches_every_episode_of_it():
    inner = text_engine(fixer)
    inner.faults.add(Fault.RAISES)
    parts = stage(LockstepEngine(inner))
    tasks = [parts.environment.tasks.get("calc/train/0")]
    groups, dropped = asyncio.run(run_evaluation(tasks, 3, parts, RolloutConfig(retries=1), seed=0, concurrency=6))
    assert [m.trajectory.stop for m in groups[0].members] == [StopReason.ENGINE_ERROR] * 3
    assert len(dropped) == 3


class _PickyEngine(ScriptedEngine):
    """Can't take the contexts of one session, as an engine can't take one that is longer than its window."""

    async def generate(self, request):
        if request.session.startswith("eval-00001/"):
            raise EngineError("context longer than the window")
        return await super().generate(request)


def test_one_request_that_fails_costs_nobody_else_the_round():
    parts = stage(LockstepEngine(_PickyEngine(policy=fixer, tokenizer=TOKENIZER, end_token="<|end|>")))
    tasks = [parts.environment.tasks.get(name) for name in parts.environment.tasks.ids("train")[:2]]
    groups, _ = asyncio.run(run_evaluation(tasks, 2, parts, RolloutConfig(retries=0), seed=0, concurrency=6))
    stops = [[member.trajectory.stop for member in group.members] for group in groups]
    assert stops == [[StopReason.SUBMITTED] * 2, [StopReason.ENGINE_ERROR] * 2]


def test_a_round_that_never_ends_is_cut_by_the_limit_of_the_model_call():
    inner = text_engine(fixer)
    inner.faults.add(Fault.NEVER_ANSWERS)
    parts = stage(LockstepEngine(inner), calc_environment(limits=Limits(model_call_s=0.05)))
    tasks = [parts.environment.tasks.get("calc/train/0")]
    groups, _ = asyncio.run(run_evaluation(tasks, 2, parts, RolloutConfig(retries=0), seed=0, concurrency=6))
    assert [m.trajectory.stop for m in groups[0].members] == [StopReason.ENGINE_ERROR] * 2


def test_no_group_is_started_that_can_not_be_trained():
    config = RolloutConfig(groups_per_step=2, group_size=1, max_staleness=3)

    async def run() -> int:
        running = scheduler(config)
        running.end = 6
        for step in range(1, 4):
            await running.next_groups()
            running.advance(step)
        return running.ledger.submitted

    assert asyncio.run(run()) == 6


def test_lockstep_with_staleness_is_refused():
    with pytest.raises(ValueError, match="lockstep waits for all episodes"):
        RolloutConfig(schedule="lockstep", max_staleness=1)


def test_the_ledger_notices_when_accounts_do_not_add_up():
    ledger = Ledger()
    ledger.start()
    ledger.graded += 1
    with pytest.raises(InvariantViolation, match="do not add up"):
        ledger.check()


@given(st.integers(0, 2**62), st.lists(st.one_of(st.integers(0, 99), st.text(max_size=5)), min_size=1, max_size=3))
@settings(max_examples=50)
def test_seeds_depend_on_every_name(seed, names):
    assert derive(seed, *names) == derive(seed, *names)
    assert derive(seed, *names) != derive(seed, *names, "x")
    assert 0 <= derive(seed, *names) < 2**63
