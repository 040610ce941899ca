"""Which episodes run when. Synchronous training is asynchronous training with a staleness bound of 0, through this code.

Groups are admitted in the order of the data and handed to the trainer in that order, so slow tasks keep their share and
nothing is discarded. A group may start only while

    admitted < (max_staleness + version + 1) * groups_per_step           (admission control, arXiv 2505.24298, section 4)

holds; the batch it belongs to is then trained at most `max_staleness` updates after its first token was sampled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from sanderling.rollout.config import RolloutConfig
from sanderling.rollout.episode import Plan, Stage
from sanderling.rollout.forking import run_with_forks
from sanderling.rollout.ledger import Ledger
from sanderling.rollout.lockstep import LockstepEngine
from sanderling.rollout.member import run_member
from sanderling.rollout.seeds import derive
from sanderling.rollout.task_stream import TaskStream
from sanderling.types import Group, Member, Task


def start_group(
    plan: Plan, size: int, stage: Stage, config: RolloutConfig, ledger: Ledger, on_dropped: Callable[[Member], None]
) -> asyncio.Task[Group]:
    """Start `size` siblings of one task at once; `plan` is the first one, the others differ in index and seed."""
    plans = [replace(plan, index=index, seed=derive(plan.seed, index)) for index in range(size)]
    if isinstance(stage.engine, LockstepEngine):
        # Before any of them runs: a round must not start while a sibling has not been heard of.
        for sibling in plans:
            stage.engine.join(sibling.trajectory_id)

    async def run() -> Group:
        async with asyncio.TaskGroup() as siblings:
            run_one = run_with_forks if config.forks.continuations else run_member
            running = [siblings.create_task(run_one(p, stage, config, ledger, on_dropped)) for p in plans]
        members = tuple(member for task in running for member in task.result())
        return Group(id=plan.group_id, task_id=plan.task.id, members=members)

    return asyncio.get_running_loop().create_task(run())


class Scheduler:
    """Keeps as many groups running as the staleness bound admits, and hands them over in order."""

    def __init__(
        self,
        stream: TaskStream,
        stage: Stage,
        config: RolloutConfig,
        *,
        position: int = 0,
        end: int | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        """`position` groups are trained already; no group from number `end` on is started (None: no end).

        `ledger` holds the accounts of earlier processes and what they logged; None: there was none.
        """
        self.stream = stream
        self.stage = stage
        self.config = config
        self.ledger = ledger or Ledger()
        self.position = position  # groups handed over
        self.end = end
        self._admitted = position
        self._version = position // config.groups_per_step
        self._running: dict[int, asyncio.Task[Group]] = {}
        self._dropped: list[Member] = []

    @property
    def capacity(self) -> int:
        """Groups that may start now."""
        bound = (self.config.max_staleness + self._version + 1) * self.config.groups_per_step
        return max(0, (bound if self.end is None else min(bound, self.end)) - self._admitted)

    async def next_groups(self) -> tuple[list[Group], list[Member]]:
        """Return the next `groups_per_step` groups in order, and every attempt that was dropped meanwhile.

        Raises:
            RunStopped: all tasks of the stream are set aside.
        """
        self._admit()
        wanted = range(self.position, self.position + self.config.groups_per_step)
        try:
            groups = [await self._running[number] for number in wanted]
        except BaseException:
            await self.close()
            raise
        for number, group in zip(wanted, groups, strict=True):
            del self._running[number]
            self.ledger.hand_over(group.id)
        self.position += len(groups)
        self.stream.observe(groups)
        dropped, self._dropped = self._dropped, []
        for member in dropped:
            self.ledger.note_stored(member.trajectory.id)
        return groups, dropped

    def advance(self, version: int) -> None:
        """Tell the scheduler that the engine samples with a new version; more groups may start now."""
        self._version = version
        if self.config.max_staleness > 0 and not self.stream.empty:  # the step goes first; `next_groups` ends the run
            self._admit()

    async def close(self) -> None:
        """Cancel what runs and wait until it is gone."""
        await _cancel(list(self._running.values()))
        self._running = {}

    def _drop(self, member: Member) -> None:
        self._dropped.append(member)  # to the list of that moment: a group may outlive several of them

    def _admit(self) -> None:
        numbers = range(self._admitted, self._admitted + self.capacity)
        if self.config.lockstep:
            self.ledger.require_whole([_name(n) for n in numbers], self.config.group_size)
        for number in numbers:
            plan = Plan(
                task=self.stream.task(number),
                group_id=_name(number),
                index=0,
                attempt=0,
                seed=derive(self.stream.seed, "group", number),
            )
            self._running[number] = start_group(
                plan, self.config.group_size, self.stage, self.config, self.ledger, self._drop
            )
            self._admitted += 1


def _name(number: int) -> str:
    return f"train-{number:07d}"


async def run_evaluation(
    tasks: Sequence[Task], samples: int, stage: Stage, config: RolloutConfig, *, seed: int, concurrency: int
) -> tuple[list[Group], list[Member]]:
    """Run `samples` episodes of each task outside training, at most `concurrency` episodes at once.

    Tasks are run in blocks of `concurrency` episodes, so that an evaluation repeats to the bit in lockstep as well.

    Returns:
        The groups in the order of the tasks, and the attempts that were retried.
    """
    ledger, dropped = Ledger(), []
    groups: list[Group] = []
    block = max(1, concurrency // samples)
    for start in range(0, len(tasks), block):
        running = [
            start_group(_evaluation_plan(task, start + k, seed), samples, stage, config, ledger, dropped.append)
            for k, task in enumerate(tasks[start : start + block])
        ]
        try:
            groups += [await task for task in running]
        except BaseException:
            await _cancel(running)
            raise
    return groups, dropped


def _evaluation_plan(task: Task, number: int, seed: int) -> Plan:
    return Plan(task=task, group_id=f"eval-{number:05d}", index=0, attempt=0, seed=derive(seed, "evaluation", number))


async def _cancel(tasks: Sequence[asyncio.Task[Group]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
