"""A sandbox of the bubblewrap backend: a stack of layers between commands, a process tree during one."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from sanderling.errors import SandboxBroken, SandboxError, SandboxLost
from sanderling.sandbox import safe_files, workspace
from sanderling.sandbox.interpreter import ENVIRONMENT
from sanderling.sandbox.launcher.wire import memory_file
from sanderling.sandbox.launcher_client import LauncherError, Reply
from sanderling.sandbox.layers import Stack
from sanderling.sandbox.output import OutputReader
from sanderling.sandbox.protocol import Command, ExecResult, SandboxSpec
from sanderling.types import Submission

if TYPE_CHECKING:
    from sanderling.sandbox.bubblewrap import BubblewrapBackend

_MIB = 1 << 20
_INODES_PER_TURN = 50_000
_OVERFULL_SLACK = 1 << 20
_GRACE_S = 15.0  # the launcher enforces the limit; beyond this it is the launcher that hangs
_LONGEST_ARGUMENT = 131_071  # MAX_ARG_STRLEN
_NOT_FOUND, _NOT_RUNNABLE = 127, 126
_EXEC_FAILED = "bwrap: execvp "

Result = TypeVar("Result")


class LayeredSandbox:
    """See `sanderling.sandbox.protocol.Sandbox`. Created by `BubblewrapBackend.create`."""

    def __init__(
        self, backend: BubblewrapBackend, spec: SandboxSpec, stack: Stack, *, owner: int, tools: str | None
    ) -> None:
        self.id = backend.next_id()
        self._backend = backend
        self._spec = spec
        self._stack = stack
        self._owner = owner
        self._tools = tools
        self._view: int | None = None  # descriptor of the merged workspace
        self._upper: str | None = None  # layer that the view writes to
        self._state: workspace.State | None = None
        self._used = stack.store.pristine_bytes
        self._destroyed = False

    async def exec(self, command: Command) -> ExecResult:
        """Run a command; see `Sandbox.exec`."""
        self._check_alive()
        refusal = _unrunnable(command)
        if refusal is not None:
            return refusal
        await self._close_view()
        async with self._backend.slots():
            return await self._run(command)

    async def _run(self, command: Command) -> ExecResult:
        limits = self._spec.limits
        timeout_s = limits.command_s if command.timeout_s is None else command.timeout_s
        upper = self._stack.next_layer()
        fields = {
            "argv": list(command.argv),
            "env": {**ENVIRONMENT, **command.env},
            "cwd": os.path.normpath(f"/work/{command.cwd}"),
            "timeout_s": timeout_s,
            "cpu_s": limits.command_cpu_s if command.cpu_s is None else command.cpu_s,
            "memory_bytes": limits.memory_mb * _MIB,
            "file_bytes": limits.disk_mb * _MIB,
            "processes": limits.processes,
            "layers": self._stack.layers,
            "upper": upper,
            "tools": self._tools,
            "uid": self._owner,
            "gid": self._owner,
            **self._room(),
        }
        reply, stdout, stderr = await self._talk(fields, command.stdin, limits.output_bytes, timeout_s)
        self._note_layer(upper, reply)
        return _judge(reply, stdout, stderr, command)

    def _room(self) -> dict[str, int]:
        """How much the next layer may add. A disk found overfull gets just enough to delete files again."""
        limit = self._spec.limits.disk_mb * _MIB
        overfull = self._used - self._stack.store.pristine_bytes > limit
        return {"extra": _OVERFULL_SLACK if overfull else limit, "extra_inodes": _INODES_PER_TURN}

    async def _talk(
        self, fields: dict[str, Any], stdin: bytes, keep: int, timeout_s: float
    ) -> tuple[Reply, OutputReader, OutputReader]:
        client = await self._backend.client()
        stdin_fd = memory_file(stdin, "stdin") if stdin else os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        out_reader, out_writer = os.pipe()
        err_reader, err_writer = os.pipe()
        readers = (OutputReader(out_reader, keep), OutputReader(err_reader, keep))
        try:
            try:
                number, future = await client.begin("exec", fields, (stdin_fd, out_writer, err_writer))
            finally:
                for fd in (stdin_fd, out_writer, err_writer):
                    os.close(fd)
            reply = await self._await_end(number, future, timeout_s)
        except LauncherError as error:
            raise _setup_error(error) from error
        finally:
            for reader in readers:
                reader.finish()
        return reply, *readers

    async def _await_end(self, number: int, future: asyncio.Future[Reply], timeout_s: float) -> Reply:
        client = await self._backend.client()
        try:
            return await asyncio.wait_for(client.end(number, future), timeout_s + _GRACE_S)
        except TimeoutError as error:
            raise SandboxLost(f"the launcher didn't end a command {_GRACE_S} s after its limit") from error
        except asyncio.CancelledError:
            # nothing of the command may be alive when the caller goes on
            with contextlib.suppress(SandboxError, LauncherError):
                await client.call("kill", {"target": number})
                await asyncio.wait_for(asyncio.shield(future), _GRACE_S)
            raise

    def _note_layer(self, layer: str, reply: Reply) -> None:
        self._used = reply.fields["used"]
        if reply.fields["changed"]:
            self._stack.layers.append(layer)
            self._state = None

    async def read_file(self, path: str, max_bytes: int = 1_048_576) -> bytes:
        """Read a plain file of the workspace; see `Sandbox.read_file`."""
        return safe_files.read_plain(await self._open_view(), path, max_bytes)

    async def write_file(self, path: str, content: bytes) -> None:
        """Write a plain file of the workspace; see `Sandbox.write_file`."""
        safe_files.checked_parts(path)
        view = await self._open_view(writing=True)
        owner = (self._owner, self._owner) if self._backend.mode == "root" else None
        try:
            safe_files.write_plain(view, path, content, owner)
        except OSError as error:
            limit = self._spec.limits.disk_mb
            raise SandboxBroken(
                f"can't write {path!r}: {error.strerror}; the sandbox's limit is {limit} MiB"
            ) from error

    async def list_files(self) -> tuple[str, ...]:
        """Return the plain files of the workspace; see `Sandbox.list_files`."""
        return await self._inspect(workspace.plain_files)

    async def state_key(self) -> str:
        """Return a digest of the workspace's content; see `Sandbox.state_key`."""
        await self._close_view()
        if self._state is None:
            self._state = await self._inspect(workspace.scan)
        return workspace.state_key(self._state)

    async def submission(self, editable: Sequence[str], max_bytes: int = 1_048_576) -> Submission:
        """Take out the change; see `Sandbox.submission`."""
        await self._close_view()
        base = self._spec.files
        return await self._inspect(lambda root: workspace.submission(root, base, editable, max_bytes))

    async def fork(self) -> LayeredSandbox:
        """Return an independent sandbox on the same layers; see `Sandbox.fork`."""
        await self._close_view()
        client = await self._backend.client()
        store, top = await self._backend.new_store(client, _MIB, self._owner)
        os.close(top)
        self._backend.share_user(self._owner)
        for held in self._stack.held:
            held.users += 1
        stack = Stack(store=store, layers=list(self._stack.layers), held=[store, *self._stack.held])
        child = LayeredSandbox(self._backend, self._spec, stack, owner=self._owner, tools=self._tools)
        child._state = self._state
        return self._backend.adopt(child)

    async def destroy(self) -> None:
        """Remove everything; see `Sandbox.destroy`."""
        if self._destroyed:
            return
        self._destroyed = True
        self._backend.forget(self)
        try:
            await self._close_view()
            for store in self._stack.held:
                await self._backend.drop(store)
        finally:
            self._backend.give_back_user(self._owner)

    async def _inspect(self, look: Callable[[int], Result]) -> Result:
        view = await self._open_view()
        return await asyncio.to_thread(look, view)

    async def _open_view(self, *, writing: bool = False) -> int:
        """Return a descriptor of the merged workspace, kept open until something else has to use the layers."""
        self._check_alive()
        if self._view is not None and (self._upper is not None or not writing):
            return self._view
        await self._close_view()
        client = await self._backend.client()
        upper = self._stack.next_layer() if writing else None
        fields = {"layers": self._stack.layers, "upper": upper, **self._room()}
        try:
            reply = await client.call("view", fields)
        except LauncherError as error:
            raise _setup_error(error) from error
        self._view, self._upper = reply.fds[0], upper
        return self._view

    async def _close_view(self) -> None:
        """Close the merged workspace; what was written through it becomes a layer."""
        if self._view is None:
            return
        os.close(self._view)
        self._view = None
        if self._upper is not None:
            upper, self._upper = self._upper, None
            client = await self._backend.client()
            self._note_layer(upper, await client.call("finish", {"upper": upper}))

    def _check_alive(self) -> None:
        if self._destroyed:
            raise SandboxLost(f"sandbox {self.id} was destroyed; create a new one")


def _unrunnable(command: Command) -> ExecResult | None:
    """Return the result of a command that no system would start: the caller's words, not our failure."""
    words = [*command.argv, *command.env, *command.env.values(), command.cwd]
    if not command.argv or not command.argv[0]:
        return _refused("no command was given", _NOT_FOUND)
    if any("\0" in word for word in words):
        return _refused("a command, its environment and its directory can't hold NUL characters", _NOT_RUNNABLE)
    if any(len(os.fsencode(word)) > _LONGEST_ARGUMENT for word in words):
        return _refused(f"an argument is longer than {_LONGEST_ARGUMENT} bytes; pass it on stdin", _NOT_RUNNABLE)
    if os.path.commonpath([os.path.normpath(f"/work/{command.cwd}"), "/work"]) != "/work":
        return _refused(f"directory {command.cwd!r} is outside of the workspace", _NOT_RUNNABLE)
    return None


def _refused(message: str, exit_code: int) -> ExecResult:
    return ExecResult(
        exit_code=exit_code, stdout=b"", stderr=f"sandbox: {message}\n".encode(), timed_out=False, omitted_bytes=0,
        duration_s=0.0,
    )  # fmt: skip


def _judge(reply: Reply, stdout: OutputReader, stderr: OutputReader, command: Command) -> ExecResult:
    """Tell what the command did from what our side failed to do."""
    fields = reply.fields
    exit_code, errors = fields["exit_code"], stderr.kept.kept
    if fields["timed_out"] or (exit_code is None and fields["out_of_memory"]):
        exit_code = 137
    elif exit_code is None:
        return _setup_result(fields["trouble"], errors, command)
    return ExecResult(
        exit_code=exit_code, stdout=stdout.kept.kept, stderr=errors, timed_out=fields["timed_out"],
        omitted_bytes=stdout.kept.omitted + stderr.kept.omitted, duration_s=fields["duration_s"],
        out_of_memory=fields["out_of_memory"],
    )  # fmt: skip


def _setup_result(trouble: str, errors: bytes, command: Command) -> ExecResult:
    """The command never began: a program or directory that isn't there is the caller's doing, the rest ours."""
    text = errors.decode(errors="replace").strip()
    if text.startswith(_EXEC_FAILED):
        missing = text.endswith("No such file or directory")
        return _refused(f"can't run {text.removeprefix(_EXEC_FAILED)}", _NOT_FOUND if missing else _NOT_RUNNABLE)
    if "chdir" in text:
        if os.path.normpath(command.cwd) != ".":
            return _refused(f"can't enter directory {command.cwd!r}: {text.rpartition(': ')[2]}", _NOT_RUNNABLE)
        raise SandboxBroken(f"the workspace can't be entered any more: {text}")
    raise SandboxLost(f"a command couldn't be started: {trouble or text or 'bubblewrap gave no reason'}")


def _setup_error(error: LauncherError) -> SandboxError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return SandboxBroken(f"the sandbox's disk is full beyond repair: {error}")
    return SandboxLost(f"the launcher couldn't prepare the sandbox: {error}")
