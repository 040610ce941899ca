"""One episode: ask, append, act, encode once, append; until a stop. Then take the change out and let it be judged."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, replace

from sanderling.engine.protocol import Engine, SampleRequest, SamplingParams
from sanderling.environment import Environment
from sanderling.errors import EngineError, SandboxBroken, SandboxError, TaskError
from sanderling.harness.protocol import Codec, Continuation, Conversation, Reply
from sanderling.rollout.lockstep import generate_within
from sanderling.rollout.record import Ending, Recorder, nothing
from sanderling.rollout.seeds import derive
from sanderling.sandbox.protocol import Capabilities, Command, Sandbox, SandboxBackend
from sanderling.types import Action, Limits, Observation, StopReason, Submission, Task, Trajectory, Turn

logger = logging.getLogger("sanderling.rollout")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which episode to run: the task, its place in the group, and the seed of its actions."""

    task: Task
    group_id: str
    index: int
    attempt: int
    seed: int

    @property
    def trajectory_id(self) -> str:
        return f"{self.group_id}/{self.index}.{self.attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The parts that all episodes of a run share."""

    environment: Environment
    backend: SandboxBackend
    engine: Engine
    codec: Codec
    sampling: SamplingParams
    capabilities: Capabilities  # of the backend; its isolation is stored in every record


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """What an episode leaves behind. `submission` is None where there is nothing to judge.

    `further` are the rows after the first, where the codec changed the context between two turns. They belong to the same
    attempt: one verdict, one place in the baseline, one share in the loss.
    """

    trajectory: Trajectory
    submission: Submission | None
    further: tuple[Trajectory, ...] = ()


class _Stopped(Exception):
    """Ends the loop from inside; never leaves this module."""

    def __init__(self, stop: StopReason, detail: str = "") -> None:
        super().__init__(detail)
        self.stop = stop
        self.detail = detail


async def run_episode(plan: Plan, stage: Stage, *, take_submission: frozenset[StopReason]) -> Episode:
    """Run one episode to its end; every failure but cancellation becomes a stop reason of the record.

    `take_submission` names the stops after which the change is taken out of the sandbox for judging.
    """
    started = time.monotonic()
    record = Recorder(stage.codec.open(stage.environment.harness.prompt(plan.task)))
    sandbox: Sandbox | None = None
    submission: Submission | None = None
    stop, detail = StopReason.CANCELLED, ""
    try:
        sandbox = await _open_sandbox(plan.task, stage, record)
        try:
            await _turns(plan, stage, sandbox, record)
        except _Stopped as end:
            stop, detail = end.stop, end.detail
        if stop in take_submission:
            async with asyncio.timeout(plan.task.limits.setup_s):
                submission = await sandbox.submission(plan.task.editable)
    except _Stopped as end:
        stop, detail = end.stop, end.detail
    except SandboxBroken as error:
        stop, detail = StopReason.SANDBOX_BROKEN, str(error)
    except (SandboxError, OSError, TimeoutError) as error:
        stop, detail = StopReason.SANDBOX_LOST, str(error) or f"{type(error).__name__} while using the sandbox"
    finally:
        stage.engine.end_session(plan.trajectory_id)
        if sandbox is not None:
            await _destroy(sandbox)
    ending = Ending(
        task_id=plan.task.id,
        group_id=plan.group_id,
        attempt=plan.attempt,
        stop=stop,
        detail=detail,
        isolation=stage.capabilities.isolation,
    )
    first, *further = record.trajectories(plan.trajectory_id, ending, time.monotonic() - started)
    return Episode(trajectory=first, submission=submission, further=tuple(further))


async def _turns(plan: Plan, stage: Stage, sandbox: Sandbox, record: Recorder) -> None:
    """The loop. It ends by raising `_Stopped`."""
    conversation = stage.environment.harness.start(plan.task, sandbox)
    limits = plan.task.limits
    while True:
        if record.num_turns >= limits.max_turns:
            raise _Stopped(StopReason.MAX_TURNS)
        state_key = await sandbox.state_key()
        action = await _sample(plan, stage, record, limits)
        if action.finish_reason == "length":
            record.append(Turn(action=action, observation=nothing(), state_key=state_key))
            full = record.length >= limits.max_context_tokens
            raise _Stopped(StopReason.MAX_TOKENS if full else StopReason.MAX_ACTION_TOKENS)
        reply = await _act(conversation, action, record, limits.episode_s)
        _answer(record, action, reply, state_key)
        if reply.stop is not None:
            raise _Stopped(reply.stop)
        if record.bad_in_a_row >= limits.max_bad_calls:
            raise _Stopped(StopReason.FORMAT_ERROR, f"{record.bad_in_a_row} invalid calls in a row")


def _answer(record: Recorder, action: Action, reply: Reply, state_key: str | None) -> None:
    """Put the turn into the record; where the codec changed the context, a new row begins behind it."""
    end = Continuation(token_ids=nothing().token_ids)
    more = end if reply.stop is not None else record.continuation(action, reply.parts or (reply.text,))
    observation = Observation(
        token_ids=more.token_ids,
        text=reply.text,
        source=reply.source,
        exit_code=reply.exit_code,
        duration_s=reply.duration_s,
        omitted_bytes=reply.omitted_bytes,
        bad_calls=tuple(kind.value for kind in reply.bad_calls),
    )
    record.append(
        Turn(action=action, observation=observation, reward=reply.reward, state_key=state_key, score=reply.score)
    )
    if more.new_prompt_ids is not None:
        record.begin_row(more.new_prompt_ids)


async def _sample(plan: Plan, stage: Stage, record: Recorder, limits: Limits) -> Action:
    """Ask the engine for one action and decode its text; a hung or broken engine is our failure."""
    room = limits.max_context_tokens - record.length
    if room <= 0:
        raise _Stopped(StopReason.MAX_TOKENS)
    request = SampleRequest(
        session=plan.trajectory_id,
        context_ids=record.context(),
        params=replace(
            stage.sampling,
            max_tokens=min(room, limits.max_action_tokens),
            stop_token_ids=stage.codec.stop_token_ids,
        ),
        seed=derive(plan.seed, record.num_turns),
    )
    record.note_sent()
    began = time.monotonic()
    try:
        action = await generate_within(stage.engine, request, limits.model_call_s)
    except EngineError as error:
        raise _Stopped(StopReason.ENGINE_ERROR, str(error)) from error
    finally:
        record.sample_s += time.monotonic() - began
    return replace(action, text=stage.codec.decode_action(action.token_ids))


async def _act(conversation: Conversation, action: Action, record: Recorder, episode_s: float) -> Reply:
    """Carry out an action. Only this time counts against `episode_s`: waiting for the engine or a sandbox is our doing."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(max(0.0, episode_s - record.tools_s)) as clock:
            reply = await conversation.act(action.text)
    except TimeoutError:
        if not clock.expired():
            raise
        record.append(Turn(action=action, observation=nothing()))
        raise _Stopped(StopReason.TIMEOUT, f"the episode's tools took longer than {episode_s} s") from None
    finally:
        record.tools_s += time.monotonic() - began
    record.commands += reply.commands
    return reply


async def _destroy(sandbox: Sandbox) -> None:
    """Remove the sandbox even when we are being cancelled; a failure here costs resources, never a result."""
    try:
        await asyncio.shield(sandbox.destroy())
    except (SandboxError, OSError) as error:
        logger.warning("sandbox %s could not be removed: %s", sandbox.id, error)


async def _open_sandbox(task: Task, stage: Stage, record: Recorder) -> Sandbox:
    began = time.monotonic()
    _require_room(task, record)
    try:
        async with asyncio.timeout(task.limits.sandbox_create_s):
            sandbox = await stage.backend.create(stage.environment.sandbox_spec(task))
    except TimeoutError as error:
        raise _Stopped(StopReason.SANDBOX_LOST, f"not created within {task.limits.sandbox_create_s} s") from error
    try:
        for argv in task.setup:
            result = await sandbox.exec(Command(argv=argv, timeout_s=task.limits.setup_s))
            if result.exit_code != 0:
                tail = result.stderr.decode("utf-8", "replace")[-200:]
                raise _Stopped(StopReason.SANDBOX_LOST, f"setup {argv} failed with {result.exit_code}: {tail}")
    except SandboxBroken as error:  # the policy has not acted yet, so it can't be its doing
        await _destroy(sandbox)
        raise _Stopped(StopReason.SANDBOX_LOST, f"broken during setup: {error}") from error
    except BaseException:
        await _destroy(sandbox)
        raise
    record.sandbox_s += time.monotonic() - began
    return sandbox


def _require_room(task: Task, record: Recorder) -> None:
    limit = task.limits.max_context_tokens
    if record.length >= limit:
        raise TaskError(
            f"the prompt of task {task.id} has {record.length} tokens and max_context_tokens is {limit}: no action would "
            "ever fit; raise limits.max_context_tokens or leave the task out"
        )
