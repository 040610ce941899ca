"""Forks: episodes that go on from a state of another one, with the same world, the same context tokens and fresh seeds.

A `Snapshot` is an episode before one of its turns: a copy-on-write fork of its sandbox, of its side of the protocol and of its
record. Any number of episodes can begin there (`run_forks`). Snapshots come from an episode that runs (`run_with_forks`, the
setting `rollout.forks`) or from one on disk (`sanderling.rollout.replay`).

What a fork shares with its parent stands in its record up to `forked_at` and is trained in the parent alone. A context that
forks have in common is read once by an engine that shares prompts (`engine.prompts = "shared"`), the parent's cache included.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from sanderling.errors import ConfigError, SandboxBroken, SandboxLost, SandboxUnavailable
from sanderling.harness.protocol import Conversation
from sanderling.rollout.clock import now
from sanderling.rollout.config import RolloutConfig
from sanderling.rollout.episode import Fork, Plan, Stage
from sanderling.rollout.ledger import Ledger
from sanderling.rollout.member import attempt, join, leave, run_member, until_graded
from sanderling.rollout.opening import Scene, Stopped, destroy
from sanderling.rollout.record import Recorder, forked
from sanderling.rollout.seeds import derive
from sanderling.sandbox.protocol import Kept, Sandbox
from sanderling.types import Limits, Member, StopReason, Task, Ungraded

logger = logging.getLogger("sanderling.rollout")
_CONVERSATION = "the harness's conversation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """An episode before turn `turn` (from 0). Implements `Opening`: each episode that begins here gets forks of its parts."""

    episode: str  # id of the episode's first trajectory
    turn: int
    limits: Limits
    scene: Scene  # forked from the episode's own
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    def record(self) -> Recorder:
        return self.scene.record.copy()

    async def sandbox(self, record: Recorder) -> Sandbox:
        began = now()
        try:
            async with self._one_at_a_time:
                sandbox = await _forked_sandbox(self.scene.sandbox, self.limits)
        except SandboxBroken as error:  # whoever goes on from here has not acted yet
            raise Stopped(StopReason.SANDBOX_LOST, f"can't be forked before turn {self.turn}: {error}") from error
        record.sandbox_s += now() - began
        return sandbox

    def conversation(self, sandbox: Sandbox) -> Conversation:
        return forked(self.scene.conversation, _CONVERSATION, sandbox)

    async def close(self) -> None:
        """Give the sandbox back. Episodes that began here keep theirs."""
        await destroy(self.scene.sandbox)


async def take_snapshot(scene: Scene, episode: str, limits: Limits) -> Snapshot:
    """Fork everything that an episode stands on; the episode itself isn't touched.

    Raises:
        ConfigError: the backend, the harness or the codec can't be forked.
        SandboxLost, TimeoutError: our side failed. SandboxBroken: what the agent did makes it impossible.
    """
    record = scene.record.fork(episode)
    sandbox = await _forked_sandbox(scene.sandbox, limits)
    try:
        conversation = forked(scene.conversation, _CONVERSATION, sandbox)
    except BaseException:
        await destroy(sandbox)
        raise
    kept = Scene(sandbox=sandbox, conversation=conversation, record=record)
    return Snapshot(episode=episode, turn=record.num_turns, limits=limits, scene=kept)


async def check_forkable(stage: Stage, task: Task) -> None:
    """Begin an episode of the task and fork it twice over, before anything depends on it.

    Raises:
        ConfigError: the environment, the harness, the codec or the backend can't be forked; says which and what to do.
        SandboxError: there was no sandbox to try it with.
    """
    environment = stage.environment
    if environment.kept is Kept.PROCESSES:
        raise ConfigError(
            f"environment {environment.name!r} keeps processes between commands (Kept.PROCESSES), and a fork has the files "
            "alone; set rollout.forks.continuations = 0"
        )
    opening = stage.from_start(task)
    record = opening.record()
    async with contextlib.AsyncExitStack() as stack:
        try:
            sandbox = await opening.sandbox(record)
        except Stopped as error:
            raise SandboxLost(f"no sandbox to try a fork with: {error.detail}") from error
        stack.push_async_callback(destroy, sandbox)
        scene = Scene(sandbox=sandbox, conversation=opening.conversation(sandbox), record=record)
        snapshot = await take_snapshot(scene, "check", task.limits)
        stack.push_async_callback(snapshot.close)
        twin = await snapshot.sandbox(snapshot.record())
        stack.push_async_callback(destroy, twin)
        snapshot.conversation(twin)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutParts:
    """What the episodes of a run share."""

    stage: Stage
    config: RolloutConfig
    ledger: Ledger
    on_dropped: Callable[[Member], None]  # gets every attempt that is tried again


async def run_with_forks(
    plan: Plan, stage: Stage, config: RolloutConfig, ledger: Ledger, on_dropped: Callable[[Member], None]
) -> tuple[Member, ...]:
    """Run one place of a group and the forks that `config.forks` asks for; see `run_member`. Forks follow their parent.

    An episode of one turn has no fork. Where an episode is tried again, its forks are given up with it.
    """
    parts = RolloutParts(stage=stage, config=config, ledger=ledger, on_dropped=on_dropped)

    async def once(plan: Plan) -> tuple[Member, ...]:
        forks = _Forks(plan, parts)
        try:
            members = await attempt(plan, stage, config, ledger, watch=forks)
            if isinstance(members[0].verdict, Ungraded):
                return members
            return (*members, *(await forks.members()))
        finally:
            await forks.close()

    return await until_graded(once, plan, config, ledger, on_dropped)


def fork_plans(plan: Plan, snapshot: Snapshot, count: int) -> list[Plan]:
    """Return the plans of `count` episodes that go on from a snapshot of the episode of `plan`, each with its own seed."""
    return [
        replace(
            plan,
            attempt=0,
            seed=derive(plan.seed, "fork", snapshot.turn, number),
            fork=Fork(episode=snapshot.episode, turn=snapshot.turn, number=number),
        )
        for number in range(count)
    ]


def start_forks(
    plan: Plan, snapshot: Snapshot, count: int, parts: RolloutParts
) -> list[asyncio.Task[tuple[Member, ...]]]:
    """Start `count` episodes that go on from a snapshot of the episode of `plan`; a lockstep engine hears of all at once."""
    running = []
    for fork in fork_plans(plan, snapshot, count):
        join(parts.stage, fork)
        member = run_member(fork, parts.stage, parts.config, parts.ledger, parts.on_dropped, opening=snapshot)
        running.append(asyncio.get_running_loop().create_task(member))
        running[-1].add_done_callback(
            lambda _, fork=fork: leave(parts.stage, fork)
        )  # also one cancelled before it began
    return running


def replaces_snapshot(seed: int, turn: int) -> bool:
    """Return whether the only snapshot of an episode is to be the one before `turn` (1, 2, ...) in place of an earlier one.

    The t-th candidate replaces the one before with probability 1/t: so each turn is drawn alike, however many there will
    be (reservoir sampling).
    """
    return Random(derive(seed, "fork before", turn)).random() < 1 / turn


class _Forks:
    """Snapshots of one episode while it runs, and what goes on from them. Implements `EpisodeWatch`."""

    def __init__(self, plan: Plan, parts: RolloutParts) -> None:
        self._plan = plan
        self._parts = parts
        self._snapshots: list[Snapshot] = []
        self._running: list[asyncio.Task[tuple[Member, ...]]] = []

    async def before_turn(self, scene: Scene) -> None:
        limits, turn = self._plan.task.limits, scene.record.num_turns
        if scene.record.length >= limits.max_context_tokens or not self._is_due(turn):
            return
        try:
            snapshot = await take_snapshot(scene, self._plan.trajectory_id, limits)
        except SandboxBroken as error:  # no fork here; the episode itself goes on
            logger.warning("%s can't be forked before turn %d: %s", self._plan.trajectory_id, turn, error)
            return
        if self._parts.config.forks.turns == "one":
            await self._drop_snapshots()
        self._snapshots.append(snapshot)

    def _is_due(self, turn: int) -> bool:
        config = self._parts.config
        if config.forks.turns == "every":
            return turn > 0 or config.group_size == 1  # siblings are continuations from the start already
        return turn > 0 and replaces_snapshot(self._plan.seed, turn)

    def ended(self) -> None:
        """Start the forks, before the episode leaves the engine's rounds: so the make-up of every round is fixed."""
        count = self._parts.config.forks.continuations
        for snapshot in self._snapshots:
            self._running += start_forks(self._plan, snapshot, count, self._parts)

    async def members(self) -> tuple[Member, ...]:
        """Return the members of all forks, in the order of their turns."""
        results = await asyncio.gather(*self._running)
        return tuple(member for members in results for member in members)

    async def close(self) -> None:
        """Cancel what still runs and give back what was held."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._parts.stage.engine.end_session(self._plan.trajectory_id)
        await self._drop_snapshots()

    async def _drop_snapshots(self) -> None:
        while self._snapshots:
            await self._snapshots.pop().close()


async def _forked_sandbox(sandbox: Sandbox, limits: Limits) -> Sandbox:
    try:
        async with asyncio.timeout(limits.sandbox_create_s):
            return await sandbox.fork()
    except (NotImplementedError, SandboxUnavailable) as error:
        raise ConfigError(
            f"the sandbox {sandbox.id}, a {type(sandbox).__name__}, can't be forked ({error or 'not implemented'}); use the "
            "backend bubblewrap, or set rollout.forks.continuations = 0"
        ) from error
