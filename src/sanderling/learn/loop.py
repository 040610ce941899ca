"""The loop: groups -> credit -> rows -> update -> push -> report. Everything else is a part that it is given.

Synchronous and asynchronous training are this one loop: with `max_staleness` 0 the scheduler starts the next groups only
when the push is done, with more it has started them before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from sanderling.batch.checks import check_excluded_inert, check_row, check_token_lists, check_trained_once
from sanderling.batch.rows import assign_credit, training_rows
from sanderling.batch.weights import is_dead
from sanderling.credit.protocol import Credit, CreditEstimator
from sanderling.engine.protocol import Engine
from sanderling.engine.weights import push
from sanderling.errors import InvariantViolation
from sanderling.learn.agreement import Gap, measure_gap
from sanderling.learn.learner import Learner
from sanderling.learn.measure import disposition_counts, episode_metrics, row_metrics
from sanderling.rollout.scheduler import Scheduler
from sanderling.rollout.seeds import derive
from sanderling.store.run_folder import RunFolder
from sanderling.types import Group, Member, StepReport, Task, TrainingRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the loop connects."""

    scheduler: Scheduler
    estimator: CreditEstimator
    learner: Learner
    engine: Engine
    folder: RunFolder
    seed: int
    shuffle_rewards: bool  # negative control: see `deal_out_rewards`
    tolerance: float  # largest |sampler - trainer| log-probability under the same weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What happens around a step: evaluation and checkpoint are the caller's to time, progress is the caller's to show."""

    after_step: Callable[
        [StepReport], Awaitable[Mapping[str, float]]
    ]  # returns metrics to add, such as an evaluation's


@dataclass(slots=True)
class _Clock:
    """Seconds by phase of one step."""

    phases: dict[str, float] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)
    last: float = field(default_factory=time.monotonic)

    def lap(self, phase: str) -> None:
        now = time.monotonic()
        self.phases[phase] = self.phases.get(phase, 0.0) + now - self.last
        self.last = now

    def report(self) -> dict[str, float]:
        return self.phases | {"step_s": time.monotonic() - self.started}


async def train(parts: Parts, hooks: Hooks, *, first: int, last: int) -> None:
    """Run optimiser steps `first` to `last`, both included.

    Raises:
        InvariantViolation: the step was stopped; nothing of it was trained.
        EngineError, LearnerError, RunFolderError: as the parts say.
    """
    try:
        for step in range(first, last + 1):
            await _step(parts, hooks, step)
    finally:
        await parts.scheduler.close()


async def _step(parts: Parts, hooks: Hooks, step: int) -> None:
    clock = _Clock()
    before = parts.scheduler.ledger.snapshot()
    groups, dropped = await parts.scheduler.next_groups()
    clock.lap("rollout_s")
    if parts.shuffle_rewards:
        groups = deal_out_rewards(groups, derive(parts.seed, "shuffle", step))
    credit = assign_credit(groups, parts.estimator)
    rows = training_rows(groups, credit, parts.learner.config.batch)
    check_step(parts, groups, credit, rows)
    parts.folder.write_rollouts(step, _with_dropped(groups, dropped), tasks=_tasks(parts, groups), advantages=credit)
    clock.lap("store_s")
    metrics = episode_metrics(groups, dropped) | row_metrics(rows, groups, parts.learner.policy_version)
    gap = await asyncio.to_thread(measure_gap, parts.learner, rows, parts.tolerance)
    learned = await asyncio.to_thread(parts.learner.step, rows)
    clock.lap("train_s")
    if learned.metrics["updates"]:
        await push(parts.engine, parts.learner.weights(), parts.learner.policy_version)
    parts.scheduler.advance(step)
    clock.lap("push_s")
    trained = dict(learned.metrics)
    updates = int(trained.pop("updates"))
    report = StepReport(
        step=step,
        policy_version=parts.learner.policy_version,
        metrics={**metrics, **_gap_metrics(gap), **trained},
        timing=clock.report() | _episode_timing(groups),
        counts=_counts(before, parts.scheduler.ledger.snapshot())
        | disposition_counts(groups, rows)
        | {"updates": updates},
    )
    extra = await hooks.after_step(report)
    parts.folder.append_metrics(replace(report, metrics={**report.metrics, **extra}))


def deal_out_rewards(groups: Sequence[Group], seed: int) -> list[Group]:
    """Return the groups with each group's rewards dealt out at random among its graded members.

    A negative control: the same rewards, batches and updates, but no reward belongs to its work any more.
    """
    random = Random(seed)
    dealt = []
    for group in groups:
        rewards = [member.disposition.reward for member in group.graded()]
        random.shuffle(rewards)
        hand = iter(rewards)
        graded = {id(member) for member in group.graded()}
        members = tuple(
            replace(member, disposition=replace(member.disposition, reward=next(hand)))
            if id(member) in graded
            else member
            for member in group.members
        )
        dealt.append(replace(group, members=members))
    return dealt


def check_step(parts: Parts, groups: Sequence[Group], credit: Credit, rows: Sequence[TrainingRow]) -> None:
    """Check invariants 1, 3, 5 and 7 on everything that a step is about to train.

    Raises:
        InvariantViolation: names the trajectory; nothing of the step is trained.
    """
    for group in groups:
        for member in group.members:
            check_token_lists(member.trajectory)
        if len(group.graded()) < len(group.members):
            check_excluded_inert(group, credit, parts.estimator)
    for row in rows:
        check_row(row)
    dropped = parts.learner.config.batch.dead_groups == "drop"
    check_trained_once([g for g in groups if not (dropped and is_dead(g, credit))], rows)
    check_staleness(rows, parts.learner.policy_version, parts.scheduler.config.max_staleness)


def check_staleness(rows: Sequence[TrainingRow], version: int, bound: int) -> None:
    """Check invariant 7: no trained token is older than the bound.

    Raises:
        InvariantViolation: names the trajectory and its oldest version.
    """
    for row in rows:
        if not row.loss_mask.any():
            continue
        oldest = int(row.policy_versions[row.loss_mask].min())
        newest = int(row.policy_versions[row.loss_mask].max())
        if version - oldest > bound or newest > version:
            raise InvariantViolation(
                f"invariant 7, trajectory {row.trajectory_id}: tokens of versions {oldest} to {newest} would be trained at "
                f"version {version}; max_staleness is {bound}"
            )


def _with_dropped(groups: Sequence[Group], dropped: Sequence[Member]) -> list[Group]:
    """Add the attempts that were retried to their groups, for the record only."""
    by_group: dict[str, list[Member]] = {}
    for member in dropped:
        by_group.setdefault(member.trajectory.group_id, []).append(member)
    known = {group.id for group in groups}
    # With staleness, an attempt may be dropped in an earlier step than the one that trains its group.
    later = [
        Group(id=name, task_id=members[0].trajectory.task_id, members=tuple(members))
        for name, members in by_group.items()
        if name not in known
    ]
    return [replace(g, members=(*g.members, *by_group.get(g.id, ()))) for g in groups] + later


def _tasks(parts: Parts, groups: Sequence[Group]) -> dict[str, Task]:
    tasks = parts.scheduler.stream.environment.tasks
    return {group.task_id: tasks.get(group.task_id) for group in groups}


def _gap_metrics(gap: Gap | None) -> dict[str, float]:
    return {} if gap is None else {"logprob_gap_max": gap.max, "logprob_gap_mean": gap.mean}


def _episode_timing(groups: Sequence[Group]) -> dict[str, float]:
    timings = [member.trajectory.timing for group in groups for member in group.members]
    return {
        "episodes_sandbox_s": sum(t.sandbox_s for t in timings),
        "episodes_sample_s": sum(t.sample_s for t in timings),
        "episodes_tools_s": sum(t.tools_s for t in timings),
        "episodes_grade_s": sum(t.grade_s for t in timings),
    }


def _counts(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Return what the step added to the accounts; `running` is a level, not a flow."""
    counts = {name: after[name] - before[name] for name in ("submitted", "graded", "ungraded", "retried")}
    return counts | {"running": after["running"]}
