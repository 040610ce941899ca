"""Sandboxes that outlive their episode, so that reference graders can judge in the very place where the agent worked."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace

from sanderling.sandbox.protocol import Capabilities, Command, ExecResult, Kept, Sandbox, SandboxBackend, SandboxSpec
from sanderling.types import Submission

Look = Callable[[Sandbox], Awaitable[None]]
"""Called with the agent's sandbox before anything in it is killed."""


class KeepingBackend:
    """Implements `SandboxBackend` for one episode: its sandbox stays until `release`.

    Args:
        backend: where the sandbox really is.
        kept: what lives on between the agent's commands.
        look: what is done in the agent's place when it submits, beside whatever it left running.
    """

    def __init__(self, backend: SandboxBackend, kept: Kept = Kept.NOTHING, look: Look | None = None) -> None:
        self._backend = backend
        self._kept = kept
        self._look = look
        self.sandbox: Sandbox | None = None

    def probe(self) -> Capabilities:
        return self._backend.probe()

    async def create(self, spec: SandboxSpec) -> Sandbox:
        self.sandbox = await self._backend.create(replace(spec, kept=self._kept))
        return _KeptSandbox(self.sandbox, self._look)

    async def close(self) -> None:
        await self.release()

    async def release(self) -> None:
        """Destroy the sandbox."""
        sandbox, self.sandbox = self.sandbox, None
        if sandbox is not None:
            await sandbox.destroy()


@contextlib.asynccontextmanager
async def keeping(
    backend: SandboxBackend, kept: Kept = Kept.NOTHING, look: Look | None = None
) -> AsyncGenerator[KeepingBackend]:
    """Give a `KeepingBackend` and release its sandbox at the end, whatever happens."""
    keeper = KeepingBackend(backend, kept, look)
    try:
        yield keeper
    finally:
        await keeper.release()


class _KeptSandbox:
    """The sandbox as the episode sees it: `destroy` leaves it to its backend."""

    def __init__(self, sandbox: Sandbox, look: Look | None) -> None:
        self._sandbox = sandbox
        self._look = look
        self.id = sandbox.id

    async def exec(self, command: Command) -> ExecResult:
        return await self._sandbox.exec(command)

    async def read_file(self, path: str, max_bytes: int = 1_048_576) -> bytes:
        return await self._sandbox.read_file(path, max_bytes)

    async def write_file(self, path: str, content: bytes) -> None:
        await self._sandbox.write_file(path, content)

    async def list_files(self) -> tuple[str, ...]:
        return await self._sandbox.list_files()

    async def state_key(self) -> str:
        return await self._sandbox.state_key()

    async def fork(self) -> Sandbox:
        return await self._sandbox.fork()

    async def submission(self, editable: Sequence[str], max_bytes: int = 1_048_576) -> Submission:
        if self._look is not None:
            await self._look(self._sandbox)
        return await self._sandbox.submission(editable, max_bytes)

    async def destroy(self) -> None:
        """The place is still wanted."""
