"""The loop: groups -> credit -> rows -> update -> push -> report. Everything else is a part that it is given.

Synchronous and asynchronous training are this one loop: with `max_staleness` 0 the scheduler starts the next groups only
when the push is done, with more it has started them before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from sanderling.batch.checks import check_excluded_inert, check_row, check_token_lists, check_trained_once
from sanderling.batch.rows import assign_credit, training_rows
from sanderling.batch.weights import is_dead
from sanderling.credit.episodes import episodes
from sanderling.credit.fork_values import with_fork_values
from sanderling.credit.protocol import Credit, CreditEstimator, LearnsValues
from sanderling.engine.protocol import Engine
from sanderling.engine.weights import push
from sanderling.errors import ConfigError, InvariantViolation
from sanderling.learn.agreement import Gap, measure_gap
from sanderling.learn.measure import (
    disposition_counts,
    episode_metrics,
    fork_counts,
    require_graded,
    row_metrics,
    with_dropped,
)
from sanderling.learn.observations import with_observations
from sanderling.learn.protocol import Records, Trainer
from sanderling.loss.config import LossConfig
from sanderling.rollout.clock import now
from sanderling.rollout.scheduler import Scheduler
from sanderling.rollout.seeds import derive
from sanderling.screening.watch import Watch, screening_counts
from sanderling.types import Group, Member, StepReport, Task, TrainingRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the loop connects."""

    scheduler: Scheduler
    estimator: CreditEstimator
    learner: Trainer
    engine: Engine
    folder: Records
    seed: int
    shuffle_rewards: bool  # negative control: see `deal_out_rewards`
    tolerance: float  # largest mean |sampler - trainer| log-probability under the same weights; inf: only measured
    worst: float  # how much larger than that it may be on one token
    watch: Watch  # decides what becomes of episodes that were not earned


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What happens after a step. The caller times checkpoints and evaluations and shows progress."""

    commit: Callable[[StepReport], None]  # save; runs in a thread and belongs to the step: it is not cancelled
    after_step: Callable[[StepReport], Awaitable[None]]  # evaluate; may be cancelled


@dataclass(slots=True)
class _Clock:
    """Seconds by phase of one step."""

    phases: dict[str, float] = field(default_factory=dict)
    started: float = field(default_factory=now)
    last: float = field(default_factory=now)

    def lap(self, phase: str) -> None:
        at = now()
        self.phases[phase] = self.phases.get(phase, 0.0) + at - self.last
        self.last = at

    def report(self) -> dict[str, float]:
        return self.phases | {"step_s": now() - self.started}


async def train(parts: Parts, hooks: Hooks, *, first: int, last: int) -> None:
    """Run optimiser steps `first` to `last`, both included.

    Cancelled while episodes run, the step is given up; cancelled later, it is finished first: update, push, report and
    checkpoint of a step come together or not at all.

    Raises:
        InvariantViolation: the step was stopped; nothing of it was trained. Its rollouts are on disk.
        MeasurementError: not one episode of the step could be graded.
        EngineError, LearnerError, RunFolderError: as the parts say.
    """
    try:
        for step in range(first, last + 1):
            clock = _Clock()
            groups, dropped = await parts.scheduler.next_groups()
            clock.lap("rollout_s")
            work = asyncio.ensure_future(_learn(parts, hooks, _Batch(step, groups, dropped, clock)))
            try:
                report = await asyncio.shield(work)
            except asyncio.CancelledError:
                await work
                raise
            await hooks.after_step(report)
    finally:
        await parts.scheduler.close()


@dataclass(frozen=True, slots=True)
class _Batch:
    """The episodes of one step."""

    step: int
    groups: list[Group]
    dropped: list[Member]
    clock: _Clock


async def _learn(parts: Parts, hooks: Hooks, batch: _Batch) -> StepReport:
    """Train on the episodes of a step and return its report."""
    clock, learner, ledger = batch.clock, parts.learner, parts.scheduler.ledger
    groups = parts.watch.settle(batch.groups)
    if parts.shuffle_rewards:
        groups = deal_out_rewards(groups, derive(parts.seed, "shuffle", batch.step))
    critic = learner.critic
    if critic is not None:
        groups = await asyncio.to_thread(critic.valued, groups)
        clock.lap("critic_s")
    rows = _rows(parts, groups, batch)
    clock.lap("store_s")
    waits = critic is not None and critic.warming_up(batch.step)
    trainable = [] if waits else rows
    metrics = episode_metrics(groups, batch.dropped) | row_metrics(trainable, groups, learner.policy_version)
    for quarantine in parts.watch.count(batch.step, groups):
        parts.folder.append_event("quarantined", step=batch.step, task=quarantine.task_id, reason=quarantine.reason)
    gap = await asyncio.to_thread(measure_gap, learner, rows, parts.tolerance, parts.worst)
    if critic is not None:  # before the policy moves, on whose hidden states a value head stands
        metrics |= await asyncio.to_thread(critic.step, groups, _learns_values(parts.estimator))
        clock.lap("critic_s")
    if learner.config.batch.observations == "trained":
        trainable = await asyncio.to_thread(with_observations, trainable, learner.logprobs, learner.policy_version)
    learned = await asyncio.to_thread(learner.step, trainable)
    clock.lap("train_s")
    trained = dict(learned.metrics)
    updates = int(trained.pop("updates"))
    if updates:
        ledger.note_weights(learner.policy_version, await push(parts.engine, learner.weights(), learner.policy_version))
    parts.scheduler.advance(batch.step)
    clock.lap("push_s")
    report = StepReport(
        step=batch.step,
        policy_version=learner.policy_version,
        metrics={**metrics, **parts.watch.metrics(), **_gap_metrics(gap), **trained},
        timing=clock.report() | _episode_timing(groups),
        counts=ledger.close_step(batch.step)
        | _fates(groups, rows, trainable)
        | fork_counts(groups)
        | screening_counts(groups)
        | {"updates": updates},
    )
    parts.folder.append_metrics(report)
    await ledger.durable()
    await asyncio.to_thread(hooks.commit, report)
    return report


def _learns_values(estimator: CreditEstimator) -> LearnsValues:
    """Return an estimator that has targets for a value model.

    Raises:
        ConfigError: it has none, so that a value model would learn nothing.
    """
    if not isinstance(estimator, LearnsValues):
        raise ConfigError(
            f"critic.model is set, but the credit estimator {type(estimator).__name__} has no targets for a value model; set "
            'critic.model to "none" or choose an estimator with a critic, such as turn-gae'
        )
    return estimator


def _fates(groups: Sequence[Group], rows: Sequence[TrainingRow], trainable: Sequence[TrainingRow]) -> dict[str, int]:
    """Return what became of the graded episodes; while the value model warms up, none of them is trained."""
    counts = disposition_counts(groups, rows)
    if trainable or not rows:
        return counts
    return counts | {"trained": 0, "dropped_critic_warmup": counts["trained"]}


def _rows(parts: Parts, groups: Sequence[Group], batch: _Batch) -> list[TrainingRow]:
    """Give credit, make rows and check both; the rollouts are on disk whatever comes of it."""
    stored, tasks = with_dropped(groups, batch.dropped), _tasks(parts, groups)
    try:
        require_graded(groups, f"step {batch.step}")
        groups = [with_fork_values(group) for group in groups]
        credit = assign_credit(groups, parts.estimator)
        rows = training_rows(groups, credit, parts.learner.config.batch)
        check_step(parts, groups, credit, rows)
    except Exception:
        parts.folder.write_rollouts(batch.step, stored, tasks=tasks)
        raise
    parts.folder.write_rollouts(batch.step, stored, tasks=tasks, advantages=credit)
    return rows


def deal_out_rewards(groups: Sequence[Group], seed: int) -> list[Group]:
    """Return the groups with each group's rewards dealt out at random among its graded episodes.

    A negative control: the same rewards, batches and updates, but no reward belongs to its work any more.
    """
    random = Random(seed)
    dealt = []
    for group in groups:
        gathered = episodes(group)
        rewards = [episode.reward for episode in gathered]
        random.shuffle(rewards)
        hand = {
            member.trajectory.id: reward
            for episode, reward in zip(gathered, rewards, strict=True)
            for member in episode.members
        }
        members = tuple(
            replace(member, disposition=replace(member.disposition, reward=hand[member.trajectory.id]))
            if member.trajectory.id in hand
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
    check_excluded_inert(groups, credit, parts.estimator)
    for row in rows:
        check_row(row)
    check_whole_sequences(groups, parts.learner.config.loss)
    dropped = parts.learner.config.batch.dead_groups == "drop"
    check_trained_once([g for g in groups if not (dropped and is_dead(g, credit))], rows)
    check_staleness(rows, parts.learner.policy_version, parts.scheduler.config.max_staleness)


def check_whole_sequences(groups: Sequence[Group], loss: LossConfig) -> None:
    """Refuse a loss over whole sequences where an episode lies in several rows: each would count as a sequence.

    Raises:
        ConfigError: names the trajectory.
    """
    if not loss.needs_sequences:
        return
    for member in (member for group in groups for member in group.graded()):
        if not member.trajectory.begins_episode:
            raise ConfigError(
                f"trajectory {member.trajectory.id!r} is a further row of its episode, and the loss (surrogate "
                f"{loss.surrogate!r}, correction_level {loss.correction_level!r}, drift_bound {loss.drift_bound}) takes a "
                "row for the whole sequence; use a loss of tokens, or a harness whose context only grows"
            )


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
