"""A sandbox in memory, with faults that can be switched on. For tests of what stands above the sandbox layer.

It isolates nothing and runs nothing: commands are answered by a Python function of the command and the files.
"""

from __future__ import annotations

import asyncio
import fnmatch
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sanderling.errors import SandboxBroken, SandboxLost, UnsafePath
from sanderling.sandbox.protocol import Capabilities, Command, ExecResult, SandboxSpec
from sanderling.types import Refusal, Submission

CommandFunction = Callable[[Command, dict[str, bytes]], ExecResult]
"""Answers a command; may change the files in place."""


def result(stdout: str = "", exit_code: int = 0) -> ExecResult:
    """Return the result of a command that printed `stdout`."""
    return ExecResult(
        exit_code=exit_code, stdout=stdout.encode(), stderr=b"", timed_out=False, omitted_bytes=0, duration_s=0.0
    )


def _no_commands(command: Command, files: dict[str, bytes]) -> ExecResult:
    return result(f"{command.argv[0]}: not found", exit_code=127)


@dataclass(slots=True)
class Faults:
    """What goes wrong. Counters go down with each fault, so that a retry can succeed; -1 means always."""

    create_lost: int = 0
    exec_lost: int = 0
    exec_broken: int = 0
    exec_hangs: int = 0


@dataclass(slots=True)
class MemoryBackend:
    """Implements `SandboxBackend`. `alive` counts sandboxes that were not destroyed."""

    commands: CommandFunction = _no_commands
    faults: Faults = field(default_factory=Faults)
    created: int = 0
    alive: int = 0

    def probe(self) -> Capabilities:
        return Capabilities(
            name="memory", mode="test", isolation="none", usable=True, open_risks=("runs nothing",), missing=()
        )

    async def create(self, spec: SandboxSpec) -> MemorySandbox:
        await asyncio.sleep(0)
        if _strikes(self.faults, "create_lost"):
            raise SandboxLost("creation failed on request of the test")
        self.created += 1
        self.alive += 1
        return MemorySandbox(self, f"memory-{self.created}", dict(spec.files), dict(spec.files))

    async def close(self) -> None:
        self.alive = 0


class MemorySandbox:
    """Implements `Sandbox` on a dictionary."""

    def __init__(self, backend: MemoryBackend, name: str, base: dict[str, bytes], files: dict[str, bytes]) -> None:
        self.id = name
        self._backend = backend
        self._base = base
        self._files = files
        self._alive = True

    async def exec(self, command: Command) -> ExecResult:
        await asyncio.sleep(0)
        if _strikes(self._backend.faults, "exec_lost"):
            raise SandboxLost("the host failed on request of the test")
        if _strikes(self._backend.faults, "exec_broken"):
            raise SandboxBroken("the agent destroyed its world on request of the test")
        if _strikes(self._backend.faults, "exec_hangs"):
            await asyncio.Event().wait()
        return self._backend.commands(command, self._files)

    async def read_file(self, path: str, max_bytes: int = 1_048_576) -> bytes:
        if path not in self._files:
            raise UnsafePath(f"no file {path!r}")
        return self._files[path]

    async def write_file(self, path: str, content: bytes) -> None:
        if path.startswith("/") or ".." in path.split("/"):
            raise UnsafePath(f"{path!r} leaves the workspace")
        self._files[path] = content

    async def list_files(self) -> tuple[str, ...]:
        return tuple(sorted(self._files))

    async def state_key(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for path in sorted(self._files):
            digest.update(f"{path}\0{len(self._files[path])}\0".encode() + self._files[path])
        return digest.hexdigest()

    async def fork(self) -> MemorySandbox:
        self._backend.created += 1
        self._backend.alive += 1
        return MemorySandbox(self._backend, f"memory-{self._backend.created}", self._base, dict(self._files))

    async def submission(self, editable: Sequence[str], max_bytes: int = 1_048_576) -> Submission:
        changed = {path: body for path, body in self._files.items() if self._base.get(path) != body}
        kept = {path: body for path, body in changed.items() if any(fnmatch.fnmatch(path, p) for p in editable)}
        refused = tuple(
            Refusal(path=path, reason="not an editable path") for path in sorted(changed.keys() - kept.keys())
        )
        return Submission(files=kept, refused=refused)

    async def destroy(self) -> None:
        if self._alive:
            self._alive = False
            self._backend.alive -= 1


def _strikes(faults: Faults, name: str) -> bool:
    left: int = getattr(faults, name)
    if left > 0:
        setattr(faults, name, left - 1)
    return left != 0
