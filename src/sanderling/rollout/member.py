"""From a plan to a member of a group: run, judge, retry what failed through our fault, decide what becomes of it."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

from sanderling.errors import SandboxError, VerifierError
from sanderling.rollout.checks import check_paid
from sanderling.rollout.config import RolloutConfig
from sanderling.rollout.disposition import as_probe, dispose, needs_grading
from sanderling.rollout.episode import Episode, Plan, Stage, Watch, run_episode
from sanderling.rollout.ledger import Ledger
from sanderling.rollout.lockstep import LockstepEngine
from sanderling.rollout.opening import Opening
from sanderling.rollout.seeds import derive
from sanderling.types import Graded, Member, StopReason, Submission, Task, Trajectory, Ungraded, Verdict

GRADING_MARGIN = 2.0
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

    An attempt is one member for each of its rows, the root first; they share verdict and disposition. `on_dropped` gets
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
        for member in members:
            on_dropped(member)
        ledger.retried += 1
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
    """Run an episode once and judge it; return a member for each of its rows."""
    ledger.start()
    join(stage, plan)
    try:
        try:
            episode = await run_episode(
                plan, stage, take_submission=_judged_stops(config), opening=opening, watch=watch
            )
            if watch is not None:
                watch.ended()
        finally:
            leave(stage, plan)
        began = time.monotonic()
        trajectory, verdict = await judge(episode, plan, stage, config)
    except BaseException:
        ledger.abandon()
        raise
    grade_s = time.monotonic() - began
    trajectory = replace(trajectory, timing=replace(trajectory.timing, grade_s=grade_s))
    rows = [trajectory, *(replace(row, stop=trajectory.stop, detail=trajectory.detail) for row in episode.further)]
    fate = dispose(trajectory, verdict, config, action_tokens=sum(row.num_action_tokens for row in rows))
    if plan.fork is not None and config.forks.use == "value":
        fate = as_probe(fate)
    members = tuple(Member(trajectory=row, verdict=verdict, disposition=fate) for row in rows)
    ledger.finish(members[0])
    return members


def join(stage: Stage, plan: Plan) -> None:
    """Tell a lockstep engine of an episode: no round starts before it asks or leaves."""
    if isinstance(stage.engine, LockstepEngine):
        stage.engine.join(plan.trajectory_id)


def leave(stage: Stage, plan: Plan) -> None:
    """Take back what `join` told."""
    if isinstance(stage.engine, LockstepEngine):
        stage.engine.leave(plan.trajectory_id)


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
