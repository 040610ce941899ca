"""One episode: ask, append, act, encode once, append; until a stop. Then take the change out and let it be judged."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Protocol

from sanderling.engine.protocol import Engine, SampleRequest, SamplingParams
from sanderling.environment import Environment
from sanderling.errors import EngineError, SandboxBroken, SandboxError
from sanderling.harness.folding import folded_prompt
from sanderling.harness.protocol import Codec, Continuation, Conversation, Reply, Transcript
from sanderling.rollout.clock import now
from sanderling.rollout.lockstep import generate_within
from sanderling.rollout.opening import FromStart, Opening, Scene, Stopped, destroy
from sanderling.rollout.record import Ending, Recorder, nothing
from sanderling.rollout.screen import Screen
from sanderling.rollout.seeds import derive
from sanderling.sandbox.protocol import Capabilities, Sandbox, SandboxBackend
from sanderling.types import Action, Limits, Observation, StopReason, Submission, Task, Trajectory, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """Where in an episode another one goes on: before turn `turn` (from 0), as the `number`-th of its kind."""

    episode: str  # id of the episode's first trajectory
    turn: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which episode to run: the task, its place in the group, the seed of its actions, and what it goes on from."""

    task: Task
    group_id: str
    index: int
    attempt: int
    seed: int
    fork: Fork | None = None

    @property
    def trajectory_id(self) -> str:
        """ "<group>/<index>.<attempt>", and of a fork "<episode>~<turn>.<number>.<attempt>"."""
        if self.fork is not None:
            return f"{self.fork.episode}~{self.fork.turn}.{self.fork.number}.{self.attempt}"
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
    screen: Screen | None = None  # looks at every episode that was graded

    def from_start(self, task: Task) -> FromStart:
        """Return the task's own beginning."""
        return FromStart(task=task, environment=self.environment, backend=self.backend, codec=self.codec)


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """What an episode leaves behind. `submission` is None where there is nothing to judge.

    `further` are the rows after the first, where the context was folded or the codec changed it between two turns. They
    belong to the same attempt: one verdict, one place in the baseline, one share in the loss. `place` is the sandbox of what
    was handed in, with nothing alive in it, where the stage's screen enters it: whoever gets it destroys it.
    """

    trajectory: Trajectory
    submission: Submission | None
    further: tuple[Trajectory, ...] = ()
    place: Sandbox | None = None
    untrained: frozenset[str] = (
        frozenset()
    )  # ids of rows whose tokens get no gradient, such as summaries that aren't trained


class Watch(Protocol):
    """Somebody who looks at an episode while it runs, such as to take snapshots of it. It ends the engine's session."""

    async def before_turn(self, scene: Scene) -> None:
        """Called before each action is sampled. What it raises ends the episode as the sandbox's errors do."""
        ...


async def run_episode(
    plan: Plan,
    stage: Stage,
    *,
    take_submission: frozenset[StopReason],
    opening: Opening | None = None,
    watch: Watch | None = None,
) -> Episode:
    """Run one episode to its end; every failure but cancellation becomes a stop reason of the record.

    `take_submission` names the stops after which the change is taken out of the sandbox for judging. `opening` is where it
    begins (None: at the task's start); `watch` is called before each turn.
    """
    started = now()
    opening = opening or stage.from_start(plan.task)
    record = opening.record()
    sandbox: Sandbox | None = None
    submission: Submission | None = None
    stop, detail = StopReason.CANCELLED, ""
    clock = asyncio.timeout(plan.task.limits.overhead_s + plan.task.limits.episode_s)
    try:
        async with clock:
            sandbox = await opening.sandbox(record)
            scene = Scene(sandbox=sandbox, conversation=opening.conversation(sandbox), record=record)
            try:
                await _turns(plan, stage, scene, watch)
            except Stopped as end:
                stop, detail = end.stop, end.detail
            if stop in take_submission:
                async with asyncio.timeout(plan.task.limits.setup_s):
                    submission = await sandbox.submission(plan.task.editable)
    except Stopped as end:
        stop, detail = end.stop, end.detail
    except SandboxBroken as error:
        stop, detail = StopReason.SANDBOX_BROKEN, str(error)
    except (SandboxError, OSError, TimeoutError) as error:
        stop, detail = StopReason.SANDBOX_LOST, str(error) or f"{type(error).__name__} while using the sandbox"
        if clock.expired():  # its tools had their own limit, so the rest is what took so long
            stop, detail = StopReason.CANCELLED, f"more than {plan.task.limits.overhead_s} s outside its tools"
    finally:
        if watch is None:  # a watch may need what is cached of it, and ends it itself
            stage.engine.end_session(plan.trajectory_id)
        kept = sandbox if submission is not None and stage.screen is not None and stage.screen.enters else None
        if sandbox is not None and kept is None:
            await destroy(sandbox)
    ending = Ending(
        task_id=plan.task.id,
        group_id=plan.group_id,
        attempt=plan.attempt,
        stop=stop,
        detail=detail,
        isolation=stage.capabilities.isolation,
    )
    first, *further = record.trajectories(plan.trajectory_id, ending, now() - started)
    untrained = record.untrained(plan.trajectory_id)
    return Episode(trajectory=first, submission=submission, further=tuple(further), place=kept, untrained=untrained)


async def _turns(plan: Plan, stage: Stage, scene: Scene, watch: Watch | None) -> None:
    """The loop. It ends by raising `Stopped`."""
    record, limits = scene.record, plan.task.limits
    while True:
        if record.num_turns >= limits.max_turns:
            raise Stopped(StopReason.MAX_TURNS)
        if watch is not None:
            await watch.before_turn(scene)
        state_key = record.state_key(await scene.sandbox.state_key())
        action = await _sample(plan, stage, record, limits)
        if action.finish_reason == "length":
            record.append(Turn(action=action, observation=nothing(), state_key=state_key))
            full = record.length >= limits.max_context_tokens
            raise Stopped(StopReason.MAX_TOKENS if full else StopReason.MAX_ACTION_TOKENS)
        reply = await _act(scene.conversation, action, record, limits.episode_s)
        _answer(record, action, reply, state_key, _folded(plan, stage, reply))
        if reply.stop is not None:
            raise Stopped(reply.stop)
        if record.bad_in_a_row >= limits.max_bad_calls:
            raise Stopped(StopReason.FORMAT_ERROR, f"{record.bad_in_a_row} invalid calls in a row")


def _folded(plan: Plan, stage: Stage, reply: Reply) -> Transcript | None:
    """Return the context that begins anew with a summary; None: the reply folds nothing."""
    if reply.fold is None:
        return None
    return stage.codec.open(folded_prompt(stage.environment.harness.prompt(plan.task), reply.fold.summary))


def _answer(record: Recorder, action: Action, reply: Reply, state_key: str | None, folded: Transcript | None) -> None:
    """Put the turn into the record; where it was folded or the codec changed the context, a new row begins behind it."""
    ends = reply.stop is not None or folded is not None
    end = Continuation(token_ids=nothing().token_ids)
    more = end if ends else record.continuation(action, reply.parts or (reply.text,))
    observation = Observation(
        token_ids=more.token_ids,
        text=reply.text,
        source=reply.source,
        exit_code=reply.exit_code,
        duration_s=reply.duration_s,
        omitted_bytes=reply.omitted_bytes,
        bad_calls=tuple(kind.value for kind in reply.bad_calls),
    )
    turn = Turn(action=action, observation=observation, reward=reply.reward, state_key=state_key, score=reply.score)
    if reply.fold is not None and folded is not None:
        record.fold(turn, folded, reply.fold.gradient)
        return
    record.append(turn)
    if more.new_prompt_ids is not None:
        record.begin_row(more.new_prompt_ids)


async def _sample(plan: Plan, stage: Stage, record: Recorder, limits: Limits) -> Action:
    """Ask the engine for one action and decode its text; a hung or broken engine is our failure."""
    room = limits.max_context_tokens - record.length
    if room <= 0:
        raise Stopped(StopReason.MAX_TOKENS)
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
    began = now()
    try:
        action = await generate_within(stage.engine, request, limits.model_call_s)
    except EngineError as error:
        raise Stopped(StopReason.ENGINE_ERROR, str(error)) from error
    finally:
        record.sample_s += now() - began
    return replace(action, text=stage.codec.decode_action(action.token_ids))


async def _act(conversation: Conversation, action: Action, record: Recorder, episode_s: float) -> Reply:
    """Carry out an action. Only this time counts against `episode_s`: waiting for the engine or a sandbox is our doing."""
    began = now()
    try:
        async with asyncio.timeout(max(0.0, episode_s - record.tools_s)) as clock:
            reply = await conversation.act(action.text)
    except TimeoutError:
        if not clock.expired():
            raise
        record.append(Turn(action=action, observation=nothing()))
        raise Stopped(StopReason.TIMEOUT, f"the episode's tools took longer than {episode_s} s") from None
    finally:
        record.tools_s += now() - began
    record.commands += reply.commands
    return reply
