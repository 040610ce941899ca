"""Small runs with the real scheduler, ledger, log and run folder, killed at chosen moments. No torch, so that it starts fast.

    python controller.py FOLDER TASKS STALENESS:SEED:KILLS ...

Each case is a run of its own. Its controllers are forked one after the other; each of the first KILLS ends itself with SIGKILL
in the middle of a write, before a flush or before a rename, whichever comes as its n-th, n drawn by the seed; the last one
finishes. The policy is scripted, and its weights are a number that each step moves by what it was trained on.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import signal
import sys
import traceback
from dataclasses import replace
from pathlib import Path

import numpy as np

from sanderling.engine.protocol import SamplingParams
from sanderling.engine.weights import push
from sanderling.jobs.resuming import open_ledger
from sanderling.rollout.config import RolloutConfig
from sanderling.rollout.episode import Stage
from sanderling.rollout.lockstep import LockstepEngine
from sanderling.rollout.scheduler import Scheduler
from sanderling.rollout.task_stream import TaskStream
from sanderling.store.run_folder import RunFolder
from sanderling.testing.engines import ScriptedEngine
from sanderling.testing.environments import CalcTasks, calc_commands, calc_environment
from sanderling.testing.sandboxes import Faults, MemoryBackend
from sanderling.testing.toy_tokenizer import ToyTokenizer
from sanderling.types import Group, Limits, Member, StepReport, Task

PER_STEP, EPOCHS, SAVE_EVERY = 4, 2, 3
SETTINGS = "[rollout]\ngroups_per_step = {}\ngroup_size = 2\nmax_staleness = {}\n"


class LongTasks(CalcTasks):
    """Task number n takes n + 1 turns: its prompt says so."""

    def get(self, task_id: str) -> Task:
        length = int(task_id.rpartition("/")[2]) + 1
        return replace(super().get(task_id), prompt=f"Fix add in {length} turns.", limits=Limits(max_turns=100))


def patient(context: str) -> str:
    """Run the tests until the last turn, then submit."""
    turns = int(context.split(" turns.", maxsplit=1)[0].rpartition(" ")[2])
    return "submit" if context.count("\n> ") >= turns else "test"


def stage(tasks: int, staleness: int) -> Stage:
    environment = replace(calc_environment(), tasks=LongTasks(count=tasks))
    # A few attempts are lost and retried, so that dropped ones are logged, too.
    backend = MemoryBackend(commands=calc_commands, faults=Faults(exec_lost=0 if staleness == 0 else 2))
    tokenizer = ToyTokenizer()
    engine = ScriptedEngine(policy=patient, tokenizer=tokenizer, end_token="<|end|>")
    return Stage(
        environment=environment,
        backend=backend,
        engine=LockstepEngine(engine) if staleness == 0 else engine,
        codec=environment.harness.codec(tokenizer),
        sampling=SamplingParams(),
        capabilities=backend.probe(),
    )


async def run(folder: Path, tasks: int, seed: int, staleness: int) -> None:
    """Go on from the last saved state to the end."""
    config = RolloutConfig(groups_per_step=PER_STEP, group_size=2, max_staleness=staleness)
    parts, steps = stage(tasks, staleness), tasks * EPOCHS // PER_STEP
    with RunFolder.at(folder, SETTINGS.format(PER_STEP, staleness), {}) as records:
        records.append_event("tasks", split="train", count=tasks)
        saved = folder / "checkpoints" / "saved.json"
        state = json.loads(saved.read_text()) if saved.exists() else {"step": 0, "version": 0, "weight": 0.0}
        records.truncate_after(state["step"])
        fingerprint = await push(parts.engine, weights(state), state["version"])
        ledger = open_ledger(records, config, state["step"], state["version"], fingerprint)
        stream = TaskStream(parts.environment, "train", seed=seed)
        position, end = state["step"] * PER_STEP, steps * PER_STEP
        scheduler = Scheduler(stream, parts, config, position=position, end=end, ledger=ledger)
        for step in range(state["step"] + 1, steps + 1):
            groups, dropped = await scheduler.next_groups()
            state = await train(records, scheduler, (step, groups, dropped), state)
            if step % SAVE_EVERY == 0 or step == steps:
                part = saved.with_suffix(".part")
                part.write_text(json.dumps(state))
                part.rename(saved)
        await scheduler.close()


async def train(
    records: RunFolder, scheduler: Scheduler, batch: tuple[int, list[Group], list[Member]], state: dict
) -> dict:
    """Move the weight by what the rows hold, push, and report, in the order of `sanderling.learn.loop`."""
    step, groups, dropped = batch
    turns = [turn for group in groups for member in group.members for turn in member.trajectory.turns]
    oldest = min(int(turn.action.policy_versions.min()) for turn in turns)
    assert state["version"] - oldest <= scheduler.config.max_staleness
    stored = [*groups, *(Group(id=m.trajectory.group_id, task_id=m.trajectory.task_id, members=(m,)) for m in dropped)]
    records.write_rollouts(step, stored)
    moved = sum(float(turn.action.rollout_logprobs.sum()) for turn in turns)
    state = {"step": step, "version": state["version"] + 1, "weight": state["weight"] + moved}
    fingerprint = await push(scheduler.stage.engine, weights(state), state["version"])
    scheduler.ledger.note_weights(state["version"], fingerprint)
    scheduler.advance(step)
    counts = scheduler.ledger.close_step(step)
    counts["dropped_zero_advantage"] = sum(len(group.graded()) for group in groups)  # all earn nothing
    report = StepReport(step=step, policy_version=state["version"], metrics={}, timing={}, counts=counts)
    records.append_metrics(report)
    await scheduler.ledger.durable()
    return state


def weights(state: dict) -> dict[str, np.ndarray]:
    return {"weight": np.array([state["weight"]], dtype=np.float64)}


def end_at(point: int) -> None:
    """End this process with SIGKILL at its n-th write, flush or rename; a write is torn in the middle."""
    calls, write, fsync, rename = itertools.count(), os.write, os.fsync, os.rename

    def struck() -> bool:
        return next(calls) == point

    def torn_write(descriptor: int, content: bytes) -> int:
        if struck():
            write(descriptor, content[: len(content) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return write(descriptor, content)

    def guarded(call):
        def run(*arguments, **options):
            if struck():
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return run

    os.write, os.fsync, os.rename = torn_write, guarded(fsync), guarded(rename)


def lives(folder: Path, tasks: int, case: str) -> None:
    """Run one case; raises SystemExit where a controller failed that was not killed."""
    staleness, seed, kills = (int(part) for part in case.split(":"))
    dice = random.Random(seed)
    for life in range(kills + 1):
        if (child := os.fork()) == 0:
            try:
                if life < kills:
                    end_at(dice.randrange(15 * tasks))
                asyncio.run(run(folder / case, tasks, seed, staleness))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        dice.random()  # the child's copy drew, ours has to move on as well
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status):
            sys.exit(f"{case}: controller {life + 1} failed")


if __name__ == "__main__":
    for name in sys.argv[3:]:
        lives(Path(sys.argv[1]), int(sys.argv[2]), name)
