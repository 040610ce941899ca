"""How an episode begins: in a fresh sandbox with the task's prompt, or where another episode stood."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Protocol

from sanderling.environment import Environment
from sanderling.errors import SandboxBroken, SandboxError, TaskError
from sanderling.harness.protocol import Codec, Conversation
from sanderling.rollout.clock import now
from sanderling.rollout.record import Recorder
from sanderling.sandbox.protocol import Command, Sandbox, SandboxBackend
from sanderling.types import StopReason, Task

DESTROY_S = 60.0  # for removing a sandbox
logger = logging.getLogger("sanderling.rollout")


class Stopped(Exception):
    """Ends an episode from inside; never leaves `run_episode`."""

    def __init__(self, stop: StopReason, detail: str = "") -> None:
        super().__init__(detail)
        self.stop = stop
        self.detail = detail


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """An episode in the middle: its world, its side of the protocol, and its record so far."""

    sandbox: Sandbox
    conversation: Conversation
    record: Recorder


class Opening(Protocol):
    """Where an episode begins. The parts are made in this order."""

    def record(self) -> Recorder: ...

    async def sandbox(self, record: Recorder) -> Sandbox:
        """Return a sandbox of the episode's own, and charge `record.sandbox_s`.

        Raises:
            Stopped, SandboxError: there is none; nothing is left behind.
        """
        ...

    def conversation(self, sandbox: Sandbox) -> Conversation: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FromStart:
    """Implements `Opening`: the task's own beginning."""

    task: Task
    environment: Environment
    backend: SandboxBackend
    codec: Codec

    def record(self) -> Recorder:
        return Recorder(self.codec.open(self.environment.harness.prompt(self.task)), self.environment.states)

    async def sandbox(self, record: Recorder) -> Sandbox:
        began = now()
        task = self.task
        _require_room(task, record)
        try:
            async with asyncio.timeout(task.limits.sandbox_create_s):
                sandbox = await self.backend.create(self.environment.sandbox_spec(task))
        except TimeoutError as error:
            raise Stopped(StopReason.SANDBOX_LOST, f"not created within {task.limits.sandbox_create_s} s") from error
        try:
            for argv in task.setup:
                result = await sandbox.exec(Command(argv=argv, timeout_s=task.limits.setup_s))
                if result.exit_code != 0:
                    tail = result.stderr.decode("utf-8", "replace")[-200:]
                    raise Stopped(StopReason.SANDBOX_LOST, f"setup {argv} failed with {result.exit_code}: {tail}")
        except SandboxBroken as error:  # the policy has not acted yet, so it can't be its doing
            await destroy(sandbox)
            raise Stopped(StopReason.SANDBOX_LOST, f"broken during setup: {error}") from error
        except BaseException:
            await destroy(sandbox)
            raise
        record.sandbox_s += now() - began
        return sandbox

    def conversation(self, sandbox: Sandbox) -> Conversation:
        return self.environment.harness.start(self.task, sandbox)


async def destroy(sandbox: Sandbox) -> None:
    """Remove the sandbox even when we are being cancelled; a failure here costs resources, never a result."""
    try:
        async with asyncio.timeout(DESTROY_S):
            await asyncio.shield(sandbox.destroy())
    except (SandboxError, OSError) as error:  # TimeoutError is an OSError
        logger.warning("sandbox %s could not be removed: %s", sandbox.id, str(error) or f"not within {DESTROY_S} s")


def _require_room(task: Task, record: Recorder) -> None:
    limit = task.limits.max_context_tokens
    if record.length >= limit:
        raise TaskError(
            f"the prompt of task {task.id} has {record.length} tokens and max_context_tokens is {limit}: no action would "
            "ever fit; raise limits.max_context_tokens or leave the task out"
        )
