"""Slow tasks are trained as often as fast ones, within the bound, and nothing is discarded."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import virtual_clock

from sanderling.engine.protocol import SamplingParams
from sanderling.engine.weights import push
from sanderling.rollout.config import RolloutConfig
from sanderling.rollout.episode import Stage
from sanderling.rollout.scheduler import Scheduler
from sanderling.rollout.task_stream import TaskStream
from sanderling.testing.engines import ScriptedEngine
from sanderling.testing.environments import CalcTasks, calc_commands, calc_environment
from sanderling.testing.sandboxes import MemoryBackend, MemorySandbox
from sanderling.testing.toy_tokenizer import ToyTokenizer
from sanderling.types import Task

TRAINER_STEP_S = 1.0
PER_STEP = 4


class TasksOfTwoSpeeds(CalcTasks):
    """The tests of every second task take six trainer steps, those of the others one."""

    def get(self, task_id: str) -> Task:
        slow = int(task_id.rpartition("/")[2]) % 2
        return replace(super().get(task_id), env={"SECONDS": str(TRAINER_STEP_S * (6 if slow else 1))})


class PatientSandbox(MemorySandbox):
    seconds = 0.0

    async def exec(self, command):
        await asyncio.sleep(self.seconds)
        return await super().exec(command)


class PatientBackend(MemoryBackend):
    async def create(self, spec):
        await super().create(spec)
        sandbox = PatientSandbox(self, f"patient-{self.created}", dict(spec.files), dict(spec.files))
        sandbox.seconds = float(spec.env["SECONDS"])
        return sandbox


def test_then_submit(context: str) -> str:
    return "test" if context.count("\n> ") < 2 else "submit"


test_then_submit.__test__ = False


@dataclass
class Seen:
    """What a simulated run trained on."""

    tasks: Counter[str] = field(default_factory=Counter)
    lags: list[int] = field(default_factory=list)
    mixed: int = 0  # trajectories whose tokens were sampled by more than one version
    accounts: dict[str, int] = field(default_factory=dict)
    wall_s: float = 0.0


async def simulate(steps: int, staleness: int) -> Seen:
    environment = replace(calc_environment(), tasks=TasksOfTwoSpeeds(count=200))
    tokenizer, backend = ToyTokenizer(), PatientBackend(commands=calc_commands)
    engine = ScriptedEngine(policy=test_then_submit, tokenizer=tokenizer, end_token="<|end|>")
    stage = Stage(
        environment=environment,
        backend=backend,
        engine=engine,
        codec=environment.harness.codec(tokenizer),
        sampling=SamplingParams(),
        capabilities=backend.probe(),
    )
    config = RolloutConfig(groups_per_step=PER_STEP, group_size=1, max_staleness=staleness, schedule="continuous")
    stream = TaskStream(environment, "train", seed=0)
    scheduler, seen = Scheduler(stream, stage, config, end=steps * PER_STEP), Seen()
    for step in range(1, steps + 1):
        groups, dropped = await scheduler.next_groups()
        assert not dropped
        await asyncio.sleep(TRAINER_STEP_S)
        for group in groups:
            versions = np.concatenate([t.action.policy_versions for m in group.members for t in m.trajectory.turns])
            seen.tasks[group.task_id] += 1
            seen.lags.append(step - 1 - int(versions.min()))
            seen.mixed += len(set(versions.tolist())) > 1
        await push(engine, {"weight": np.array([step], dtype=np.float32)}, step)
        scheduler.advance(step)
    seen.accounts, seen.wall_s = scheduler.ledger.snapshot(), asyncio.get_running_loop().time()
    return seen


@pytest.mark.parametrize("steps", [100, pytest.param(400, marks=pytest.mark.slow)])
def test_probe_d4_slow_tasks_keep_their_share(steps):
    seen = virtual_clock.run(simulate(steps, staleness=2))
    trained = steps * PER_STEP
    slow = sum(n for name, n in seen.tasks.items() if int(name.rpartition("/")[2]) % 2)
    assert 0.47 <= slow / trained <= 0.53
    assert max(seen.lags) == 2
    assert seen.accounts == {"submitted": trained, "graded": trained, "ungraded": 0, "running": 0, "retried": 0}
    assert set(seen.tasks.values()) == {trained // 200}, "nobody is starved"
    assert seen.mixed > 0, "episodes go on across updates, with the version of each token"
    alone = virtual_clock.run(simulate(10, staleness=0))
    assert seen.wall_s / steps < 0.45 * alone.wall_s / 10, "rollouts and training overlap"


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_the_oldest_token_is_exactly_as_old_as_allowed(bound):
    assert max(virtual_clock.run(simulate(12, staleness=bound)).lags) == bound
