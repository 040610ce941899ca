"""From a plan to a member of a group: run, judge, retry what failed through our fault, decide what becomes of it."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable
from dataclasses import replace

from sanderling.errors import SandboxError, VerifierError
from sanderling.rollout.checks import check_paid
from sanderling.rollout.config import RolloutConfig
from sanderling.rollout.disposition import dispose, needs_grading
from sanderling.rollout.episode import Episode, Plan, Stage, run_episode
from sanderling.rollout.ledger import Ledger
from sanderling.rollout.lockstep import LockstepEngine
from sanderling.rollout.seeds import derive
from sanderling.types import Graded, Member, StopReason, Submission, Task, Trajectory, Ungraded, Verdict

GRADING_MARGIN = 2.0
BACK_OFF_S = 0.2  # before the first retry; doubled for each further one


async def run_member(
    plan: Plan, stage: Stage, config: RolloutConfig, ledger: Ledger, on_dropped: Callable[[Member], None]
) -> tuple[Member, ...]:
    """Run one place of a group until it is graded or its retries are used up; return the last attempt.

    An attempt is one member for each of its rows, the root first; they share verdict and disposition. `on_dropped` gets
    every earlier attempt, so that nothing that ran is lost.
    """
    while True:
        members = await _attempt(plan, stage, config, ledger)
        if not isinstance(members[0].verdict, Ungraded) or plan.attempt >= config.retries:
            return members
        for member in members:
            on_dropped(member)
        ledger.retried += 1
        await asyncio.sleep(BACK_OFF_S * 2**plan.attempt)
        plan = replace(plan, attempt=plan.attempt + 1)


async def _attempt(plan: Plan, stage: Stage, config: RolloutConfig, ledger: Ledger) -> tuple[Member, ...]:
    ledger.start()
    if isinstance(stage.engine, LockstepEngine):
        stage.engine.join(plan.trajectory_id)
    try:
        try:
            episode = await run_episode(plan, stage, take_submission=_judged_stops(config))
        finally:
            if isinstance(stage.engine, LockstepEngine):
                stage.engine.leave(plan.trajectory_id)
        began = time.monotonic()
        trajectory, verdict = await judge(episode, plan, stage, config)
    except BaseException:
        ledger.abandon()
        raise
    grade_s = time.monotonic() - began
    trajectory = replace(trajectory, timing=replace(trajectory.timing, grade_s=grade_s))
    rows = [trajectory, *(replace(row, stop=trajectory.stop, detail=trajectory.detail) for row in episode.further)]
    fate = dispose(trajectory, verdict, config, action_tokens=sum(row.num_action_tokens for row in rows))
    members = tuple(Member(trajectory=row, verdict=verdict, disposition=fate) for row in rows)
    ledger.finish(members[0])
    return members


async def judge(episode: Episode, plan: Plan, stage: Stage, config: RolloutConfig) -> tuple[Trajectory, Verdict]:
    """Return the verdict on an episode, and its record with the stop reason that the verdict implies."""
    trajectory = episode.trajectory
    if trajectory.stop.infrastructure:
        phase = "sampling" if trajectory.stop is StopReason.ENGINE_ERROR else "sandbox"
        return trajectory, Ungraded(cause=trajectory.detail or trajectory.stop.value, phase=phase)
    if episode.submission is None or not needs_grading(trajectory.stop, config):
        return trajectory, Graded(reward=0.0)
    seed = derive(plan.seed, "grading", plan.trajectory_id)
    try:
        verdict = await _grade(stage, plan.task, episode.submission, seed)
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
    async with asyncio.timeout(GRADING_MARGIN * task.limits.grading_s + 60.0):
        return await stage.environment.verifier.grade(task, submission, stage.backend, seed)


def _cause(error: Exception) -> str:
    if isinstance(error, VerifierError | SandboxError):
        return str(error)
    if isinstance(error, TimeoutError):
        return "no verdict in time"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} at {frame.filename}, line {frame.lineno}"


def _judged_stops(config: RolloutConfig) -> frozenset[StopReason]:
    return frozenset(stop for stop in StopReason if needs_grading(stop, config))
