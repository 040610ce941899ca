"""A sandbox that is a container: its files live as long as its first process, which we talk to."""

from __future__ import annotations

import asyncio
import json
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sanderling.errors import SandboxBroken, SandboxError, SandboxLost, UnsafePath
from sanderling.sandbox import digests, safe_files, workspace
from sanderling.sandbox.command_results import command_fields, cpu_limit, judged_led, unrunnable
from sanderling.sandbox.container_channel import ChannelLost, ContainerChannel, OperationFailed
from sanderling.sandbox.container_engine import EngineError, lost
from sanderling.sandbox.protocol import Command, ExecResult, Kept, SandboxSpec
from sanderling.sandbox.safe_files import FoundFile
from sanderling.types import Submission

if TYPE_CHECKING:
    from sanderling.sandbox.container import ContainerBackend

_MIB = 1 << 20
_GRACE_S = 20.0  # the first process enforces the limit; beyond this it is our side that hangs
_FILES_S = 60.0

Entries = list[tuple[dict[str, Any], bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Output:
    kept: bytes
    omitted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outputs:
    stdout: _Output
    stderr: _Output


class ContainerSandbox:
    """See `sanderling.sandbox.protocol.Sandbox`. Created by `ContainerBackend.create`."""

    def __init__(
        self,
        backend: ContainerBackend,
        name: str,
        spec: SandboxSpec,
        environment: dict[str, str],
        channel: ContainerChannel,
    ) -> None:
        self.id = name
        self._backend = backend
        self._spec = spec
        self._environment = environment
        self._channel = channel
        self._gone: SandboxError | None = None  # what every further call says

    async def exec(self, command: Command) -> ExecResult:
        """Run a command; see `Sandbox.exec`. `Start.WARM` begins fresh."""
        self._check_alive()
        refusal = unrunnable(command)
        if refusal is not None:
            return refusal
        limits = self._spec.limits
        fields = command_fields(command, self._spec)
        memory = limits.memory_mb * _MIB
        fields |= {
            "op": "exec",
            "env": {**self._environment, **self._spec.env, **command.env},
            "output_bytes": limits.output_bytes,
            "keep_processes": self._spec.kept is Kept.PROCESSES,
            "killed_first": True,
            "limits": [
                (resource.RLIMIT_CORE, 0, 0),
                *cpu_limit(fields["cpu_s"]),
                (resource.RLIMIT_DATA, memory, memory),
                (resource.RLIMIT_FSIZE, limits.disk_mb * _MIB, limits.disk_mb * _MIB),
            ],
        }
        async with self._backend.slots():
            began = time.monotonic()
            answer, blob = await self._ask(fields, command.stdin, limit_s=fields["timeout_s"] + _GRACE_S)
        took = time.monotonic() - began
        return judged_led(answer, _outputs(answer, blob), command, took)

    async def read_file(self, path: str, max_bytes: int = 1_048_576) -> bytes:
        """Read a plain file of the workspace; see `Sandbox.read_file`."""
        safe_files.checked_parts(path)
        _, content = await self._ask({"op": "read", "path": path, "max_bytes": max_bytes})
        return content

    async def write_file(self, path: str, content: bytes) -> None:
        """Write a plain file of the workspace; see `Sandbox.write_file`."""
        safe_files.checked_parts(path)
        await self._ask({"op": "write", "path": path}, content)

    async def list_files(self) -> tuple[str, ...]:
        """Return the plain files of the workspace; see `Sandbox.list_files`."""
        return workspace.plain_paths(entry for entry, _ in await self._scan(with_digests=False))

    async def state_key(self) -> str:
        """Return a digest of the workspace's content, the same as other backends give; see `Sandbox.state_key`."""
        return digests.state_key({entry.path: digest for entry, digest in await self._scan(with_digests=True)})

    async def _scan(self, *, with_digests: bool) -> list[tuple[FoundFile, bytes]]:
        _, content = await self._ask({"op": "scan", "digests": with_digests})
        return [
            (FoundFile(path=path, kind=kind, size=size, mode=mode), bytes.fromhex(digest[0]) if digest else b"")
            for path, kind, size, mode, *digest in json.loads(content)
        ]

    async def submission(self, editable: Sequence[str], max_bytes: int = 1_048_576) -> Submission:
        """Kill what is alive and take out the change; see `Sandbox.submission`."""
        await self._ask({"op": "end"})
        found = await self._scan(with_digests=True)
        base = {"/".join(safe_files.checked_parts(path)): content for path, content in self._spec.files.items()}
        changed = {
            e.path for e, digest in found if e.path not in base or digests.digest_with(e, base[e.path]) != digest
        }
        contents: dict[str, bytes | UnsafePath] = {}
        for entry, _ in found:
            takes = entry.kind == "file" and entry.size <= max_bytes and safe_files.is_text_name(entry.path)
            if takes and entry.path in changed and workspace.is_editable(entry.path, editable):
                try:
                    contents[entry.path] = await self.read_file(entry.path, max_bytes)
                except UnsafePath as error:
                    contents[entry.path] = error

        def read(entry: FoundFile, most: int) -> bytes:
            if entry.path not in changed:
                return base[entry.path]
            content = contents.get(
                entry.path, base.get(entry.path, b"") + b"\0"
            )  # not to be taken: no matter how it differs
            if isinstance(content, UnsafePath):
                raise content
            return content

        return workspace.changes((entry for entry, _ in found), read, base, editable, max_bytes)

    async def fork(self) -> ContainerSandbox:
        """Return a new container with a copy of the files; see `Sandbox.fork`."""
        self._check_alive()
        try:
            entries = await self._channel.receive_many({"op": "pack"}, limit_s=_FILES_S)
        except (OperationFailed, ChannelLost) as error:
            raise await self._blamed(error) from error
        return await self._backend.start_sandbox(self._spec, entries)

    async def fill(self, entries: Entries) -> None:
        """Put files into a container that was just made.

        Raises:
            UnsafePath: a path that can't be. SandboxLost: the rest.
        """
        try:
            await self._channel.send_many({"op": "unpack", "count": len(entries)}, entries, limit_s=_FILES_S)
        except (OperationFailed, ChannelLost) as error:
            raise SandboxLost(f"the files of container {self.id} can't be written: {error}") from error

    async def destroy(self) -> None:
        """Remove the container with all that is in it; see `Sandbox.destroy`."""
        if self._gone is not None and self.id not in self._backend.alive:
            return
        self._gone = self._gone or SandboxLost(f"sandbox {self.id} was destroyed; create a new one")
        try:
            await self._backend.remove(self.id)
        finally:
            await self._channel.close()

    async def _ask(
        self, fields: dict[str, Any], blob: bytes = b"", *, limit_s: float = _FILES_S
    ) -> tuple[dict[str, Any], bytes]:
        self._check_alive()
        try:
            return await self._channel.request(fields, blob, limit_s=limit_s)
        except (OperationFailed, ChannelLost) as error:
            raise await self._blamed(error) from error

    async def _blamed(self, error: Exception) -> SandboxError:
        """Decide who is to blame: nothing but commands changes the world inside, and they can't end its first process."""
        if isinstance(error, OperationFailed):
            return SandboxBroken(f"the sandbox's files can't be worked with any more: {error}")
        engine = self._backend.engine
        try:
            state = await asyncio.to_thread(engine.state, self.id)
        except EngineError as failure:
            self._gone = lost(engine, failure)
            return self._gone
        if state is None:
            self._gone = SandboxLost(f"container {self.id} was removed from outside; {error}")
        elif state.get("OOMKilled") and not state.get("Running"):
            self._gone = SandboxBroken(
                f"commands used up the memory of container {self.id} until the kernel ended it whole"
            )
        elif state.get("Running"):
            self._gone = SandboxLost(f"container {self.id} runs, but doesn't answer: {error}")
        else:
            self._gone = SandboxLost(
                f"container {self.id} ended with {state.get('ExitCode')}, killed from outside: {error}"
            )
        return self._gone

    def _check_alive(self) -> None:
        if self._gone is None and self._channel.lost:
            self._gone = SandboxLost(f"container {self.id}: {self._channel.lost}")
        if self._gone is not None:
            raise type(self._gone)(str(self._gone))


def _outputs(answer: dict[str, Any], blob: bytes) -> _Outputs:
    cut = answer.get("stdout_bytes", 0)
    first, second = answer.get("omitted", (0, 0))
    return _Outputs(stdout=_Output(kept=blob[:cut], omitted=first), stderr=_Output(kept=blob[cut:], omitted=second))


def base_entries(spec: SandboxSpec) -> Entries:
    """Return the entries that fill the workspace of a new sandbox.

    Raises:
        UnsafePath: a path leaves the workspace.
    """
    for path in (*spec.files, *spec.readonly):
        safe_files.checked_parts(path)
    return [({"place": "work", "path": path, "kind": "file"}, content) for path, content in spec.files.items()]
