"""From a plan to a member of a group: run, judge, retry what failed through our fault, decide what becomes of it."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

from sanderling.errors import SandboxError, VerifierError
from sanderling.rollout.checks import check_paid
from sanderling.rollout.clock import now
from sanderling.rollout.config import RolloutConfig
from sanderling.rollout.disposition import as_probe, dispose, needs_grading, untrained
from sanderling.rollout.episode import Episode, Plan, Stage, Watch, run_episode
from sanderling.rollout.ledger import Ledger
from sanderling.rollout.lockstep import LockstepEngine
from sanderling.rollout.opening import DESTROY_S, Opening, destroy
from sanderling.rollout.seeds import derive
from sanderling.sandbox.protocol import Sandbox
from sanderling.types import (
    Exhibit,
    Finding,
    Graded,
    Member,
    Phase,
    StopReason,
    Submission,
    Task,
    Trajectory,
    Ungraded,
    Verdict,
)

GRADING_MARGIN = 2.0
QUEUE_S = 60.0  # for a sandbox to grade in
GRACE_S = 30.0  # for an attempt that was told to end
_PHASES: dict[StopReason, Phase] = {StopReason.ENGINE_ERROR: "sampling", StopReason.CANCELLED: "scheduling"}
BACK_OFF_S = 0.2  # before the first retry; doubled for each further one


Attempt = Callable[[Plan], Awaitable[tuple[Member, ...]]]


class EpisodeWatch(Watch, Protocol):
    """A watch that is also told when the episode takes no more turns, before it is judged."""

    def ended(self) -> None: ...


async def run_member(
    plan: Plan,
    stage: Stage,
    config: RolloutConfig,
    ledger: Ledger,
    on_dropped: Callable[[Member], None],
    *,
    opening: Opening | None = None,
) -> tuple[Member, ...]:
    """Run one place of a group until it is graded or its retries are used up; return the last attempt.

    An attempt is one member for each of its rows, the root first; they share verdict and disposition, but for rows that are
    never trained. `on_dropped` gets
    every earlier attempt, so that nothing that ran is lost.
    """

    async def once(plan: Plan) -> tuple[Member, ...]:
        return await attempt(plan, stage, config, ledger, opening=opening)

    return await until_graded(once, plan, config, ledger, on_dropped)


async def until_graded(
    attempt: Attempt, plan: Plan, config: RolloutConfig, ledger: Ledger, on_dropped: Callable[[Member], None]
) -> tuple[Member, ...]:
    """Repeat `attempt` until its first member is graded or the retries are used up; see `run_member`."""
    while True:
        members = await attempt(plan)
        if not isinstance(members[0].verdict, Ungraded) or plan.attempt >= config.retries:
            return members
        if not ledger.is_stored(plan.trajectory_id):
            for member in members:
                on_dropped(member)
        await asyncio.sleep(BACK_OFF_S * 2**plan.attempt)
        plan = replace(plan, attempt=plan.attempt + 1)


async def attempt(
    plan: Plan,
    stage: Stage,
    config: RolloutConfig,
    ledger: Ledger,
    *,
    opening: Opening | None = None,
    watch: EpisodeWatch | None = None,
) -> tuple[Member, ...]:
    """Run an episode once and judge it; return a member for each of its rows.

    They are those that an earlier process logged, or new ones, which are on disk then.
    """
    if (members := ledger.recall(plan.trajectory_id)) is not None:
        leave(stage, plan)
        return members
    ledger.start(plan.trajectory_id)
    join(stage, plan)
    work = asyncio.ensure_future(_run(plan, stage, config, opening, watch))
    try:
        members = await _within(work, plan, stage, config)
    except BaseException:
        ledger.abandon(plan.trajectory_id)
        raise
    ledger.finish(members)
    if work.done():
        await ledger.durable()
        return members
    work.add_done_callback(lambda late: _hand_in_late(late, ledger))
    return members


async def _within(
    work: asyncio.Future[tuple[Member, ...]], plan: Plan, stage: Stage, config: RolloutConfig
) -> tuple[Member, ...]:
    """Wait for an attempt. Its own limits end it; one that does not even let itself be cancelled is left behind."""
    limits = plan.task.limits
    limit_s = limits.overhead_s + limits.episode_s + _grading_s(plan.task) + DESTROY_S + GRACE_S
    try:
        await asyncio.wait({work}, timeout=limit_s)
        if not work.done():
            work.cancel()
            await asyncio.wait({work}, timeout=GRACE_S)
    except asyncio.CancelledError:
        work.cancel()
        await asyncio.wait({work}, timeout=DESTROY_S + GRACE_S)  # until its sandbox is gone
        raise
    if work.done() and not work.cancelled():
        return work.result()
    leave(stage, plan)
    return _straggler(plan, stage, config, f"not over {limit_s} s after its start, though told to end by then")


def _straggler(plan: Plan, stage: Stage, config: RolloutConfig, cause: str) -> tuple[Member, ...]:
    trajectory = Trajectory(
        id=plan.trajectory_id,
        task_id=plan.task.id,
        group_id=plan.group_id,
        attempt=plan.attempt,
        prompt_ids=stage.codec.open(stage.environment.harness.prompt(plan.task)).prompt_ids,
        turns=(),
        stop=StopReason.CANCELLED,
        detail=cause,
        isolation=stage.capabilities.isolation,
    )
    verdict = Ungraded(cause=cause, phase="scheduling")
    return (Member(trajectory=trajectory, verdict=verdict, disposition=dispose(trajectory, verdict, config)),)


def _hand_in_late(work: asyncio.Future[tuple[Member, ...]], ledger: Ledger) -> None:
    if not work.cancelled() and work.exception() is None:
        ledger.finish(work.result())  # refused: the attempt is closed


def join(stage: Stage, plan: Plan) -> None:
    """Tell a lockstep engine of an episode: no round starts before it asks or leaves."""
    if isinstance(stage.engine, LockstepEngine):
        stage.engine.join(plan.trajectory_id)


def leave(stage: Stage, plan: Plan) -> None:
    """Take back what `join` told."""
    if isinstance(stage.engine, LockstepEngine):
        stage.engine.leave(plan.trajectory_id)


async def _run(
    plan: Plan, stage: Stage, config: RolloutConfig, opening: Opening | None, watch: EpisodeWatch | None
) -> tuple[Member, ...]:
    place: Sandbox | None = None
    try:
        try:
            judged = _judged_stops(config)
            episode = await run_episode(plan, stage, take_submission=judged, opening=opening, watch=watch)
            place = episode.place
            if watch is not None:
                watch.ended()
        finally:
            leave(stage, plan)
        return await _judged(episode, plan, stage, config)
    finally:
        if place is not None:
            await destroy(place)


async def _judged(episode: Episode, plan: Plan, stage: Stage, config: RolloutConfig) -> tuple[Member, ...]:
    began = now()
    trajectory, verdict = await judge(episode, plan, stage, config)
    grade_s = now() - began
    trajectory = replace(trajectory, timing=replace(trajectory.timing, grade_s=grade_s))
    rows = (trajectory, *(replace(row, stop=trajectory.stop, detail=trajectory.detail) for row in episode.further))
    findings = await _look(episode, rows, verdict, plan, stage)
    fate = dispose(trajectory, verdict, config, action_tokens=sum(row.num_action_tokens for row in rows))
    if stage.screen is not None:
        fate = stage.screen.decide(fate, findings)
    if plan.fork is not None and config.forks.use == "value":
        fate = as_probe(fate)
    members = (
        Member(trajectory=row, verdict=verdict, disposition=untrained(fate) if row.id in episode.untrained else fate)
        for row in rows
    )
    root = replace(next(members), findings=findings)
    return (root, *members)


async def _look(
    episode: Episode, rows: tuple[Trajectory, ...], verdict: Verdict, plan: Plan, stage: Stage
) -> tuple[Finding, ...]:
    """Return the findings of the screen; there is nothing to find where our own failure ended the episode."""
    if stage.screen is None or not isinstance(verdict, Graded):
        return ()
    exhibit = Exhibit(task=plan.task, rows=rows, submission=episode.submission, verdict=verdict)
    return await stage.screen.look(exhibit, stage.backend, _grading_seed(plan), episode.place)


def _grading_seed(plan: Plan) -> int:
    return derive(plan.seed, "grading", plan.trajectory_id)


async def judge(episode: Episode, plan: Plan, stage: Stage, config: RolloutConfig) -> tuple[Trajectory, Verdict]:
    """Return the verdict on an episode, and its record with the stop reason that the verdict implies."""
    trajectory = episode.trajectory
    if trajectory.stop.infrastructure:
        phase = _PHASES.get(trajectory.stop, "sandbox")
        return trajectory, Ungraded(cause=trajectory.detail or trajectory.stop.value, phase=phase)
    if episode.submission is None or not needs_grading(trajectory.stop, config):
        return trajectory, Graded(reward=0.0)
    try:
        verdict = await _grade(stage, plan.task, episode.submission, _grading_seed(plan))
    except (
        Exception
    ) as error:  # also what a third party's verifier did not mean to raise: our failure, not the policy's
        cause = _cause(error)
        failed = replace(trajectory, stop=StopReason.VERIFIER_ERROR, detail=cause[:500])
        return failed, Ungraded(cause=cause, phase="grading")
    check_paid(trajectory, verdict)
    return trajectory, verdict


async def _grade(stage: Stage, task: Task, submission: Submission, seed: int) -> Graded:
    # The verifier itself holds the submission to `grading_s`, which costs the reward. This clock also covers the queue
    # for a sandbox, so it runs longer: what ends here can't have been caused by the submission.
    async with asyncio.timeout(_grading_s(task)):
        return await stage.environment.verifier.grade(task, submission, stage.backend, seed)


def _grading_s(task: Task) -> float:
    return GRADING_MARGIN * task.limits.grading_s + QUEUE_S


def _cause(error: Exception) -> str:
    if isinstance(error, VerifierError | SandboxError):
        return str(error)
    if isinstance(error, TimeoutError):
        return "no verdict in time"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} at {frame.filename}, line {frame.lineno}"


def _judged_stops(config: RolloutConfig) -> frozenset[StopReason]:
    return frozenset(stop for stop in StopReason if needs_grading(stop, config))
