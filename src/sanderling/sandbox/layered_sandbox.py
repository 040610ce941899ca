"""A sandbox of the bubblewrap backend: a stack of layers between commands, a process tree during one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from sanderling.errors import SandboxBroken, SandboxError, SandboxLost
from sanderling.sandbox import digests, safe_files, workspace
from sanderling.sandbox.command_results import (
    command_fields,
    judged,
    judged_led,
    setup_error,
    unrunnable,
)
from sanderling.sandbox.launcher_client import LauncherError, Reply
from sanderling.sandbox.layers import Digests, Stack
from sanderling.sandbox.links import checked_links
from sanderling.sandbox.output import Streams
from sanderling.sandbox.protocol import Command, ExecResult, Kept, SandboxSpec
from sanderling.sandbox.session import Session, SessionEnded, first_command
from sanderling.sandbox.session_requests import encoded_request
from sanderling.types import Submission

if TYPE_CHECKING:
    from sanderling.sandbox.bubblewrap import BubblewrapBackend

_MIB = 1 << 20
_INODES_PER_TURN = 50_000
_OVERFULL_SLACK = 1 << 20
_GRACE_S = 15.0  # the launcher enforces the limit; beyond this it is the launcher that hangs
_BASE_SLACK = 1 << 20
_MOST_LAYERS = 32
_LAYERS_OF_KERNEL = 450  # overlayfs takes 500

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
        self._session: Session | None = None
        self._digests = Digests()
        self._used = stack.store.pristine_bytes
        self._destroyed = False

    async def exec(self, command: Command) -> ExecResult:
        """Run a command; see `Sandbox.exec`."""
        self._check_alive()
        refusal = unrunnable(command)
        if refusal is not None:
            return refusal
        await self._close_view()
        async with self._backend.slots():
            if self._spec.kept is not Kept.NOTHING:
                return await self._run_in_session(command)
            return await self._run(command)

    async def _run(self, command: Command) -> ExecResult:
        fields = self._launch_fields(command)
        reply, streams = await self._talk(fields, command.stdin)
        await self._note_layer(fields["upper"], reply)
        return judged(reply.fields, streams, command)

    def _launch_fields(self, command: Command) -> dict[str, Any]:
        limits = self._spec.limits
        return {
            **command_fields(command, self._spec),
            "memory_bytes": limits.memory_mb * _MIB,
            "file_bytes": limits.disk_mb * _MIB,
            "processes": limits.processes,
            "layers": self._stack.layers,
            "upper": self._stack.next_layer(),
            "tools": self._tools,
            "links": checked_links(self._spec.links),
            "as_pid_1": False,
            "uid": self._owner,
            "gid": self._owner,
            **self._room(),
        }

    def _room(self) -> dict[str, int]:
        """How much the next layer may add. A disk found overfull gets just enough to delete files again."""
        limit = self._spec.limits.disk_mb * _MIB
        overfull = self._used - self._stack.store.pristine_bytes > limit
        return {"extra": _OVERFULL_SLACK if overfull else limit, "extra_inodes": _INODES_PER_TURN}

    async def _talk(self, fields: dict[str, Any], stdin: bytes) -> tuple[Reply, Streams]:
        client = await self._backend.client()
        with Streams(stdin, self._spec.limits.output_bytes) as streams:
            try:
                number, future = await client.begin("exec", fields, streams.theirs)
                streams.close_theirs()
                return await self._await_end(number, future, fields["timeout_s"]), streams
            except LauncherError as error:
                raise setup_error(error) from error

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

    async def _run_in_session(self, command: Command) -> ExecResult:
        session = await self._live_session()
        fields = command_fields(command, self._spec)
        request = encoded_request(session, command, fields, self._spec)
        began = time.monotonic()
        with Streams(command.stdin, self._spec.limits.output_bytes) as streams:
            try:
                answer = await asyncio.wait_for(session.run(request, streams.theirs), fields["timeout_s"] + _GRACE_S)
            except (SessionEnded, TimeoutError) as error:
                answer = await self._end_session(timed_out=isinstance(error, TimeoutError))
            except BaseException:
                await self._end_session(timed_out=False)
                raise
            finally:
                streams.close_theirs()
            if answer.get("left"):
                await self._end_session(timed_out=True)
        return judged_led(answer, streams, command, time.monotonic() - began)

    async def _live_session(self) -> Session:
        if self._session is not None and not self._session.alive:
            await self._end_session(timed_out=False)
        if self._session is None:
            fields = self._launch_fields(first_command(self._spec.kept))
            fields |= {"timeout_s": None, "cpu_s": None, "as_pid_1": self._spec.kept is Kept.INTERPRETER}
            self._upper = fields["upper"]
            client = await self._backend.client()
            try:
                self._session = await Session.start(client, fields)
            except LauncherError as error:
                raise setup_error(error) from error
        return self._session

    async def _end_session(self, *, timed_out: bool) -> dict[str, Any]:
        """Kill the session's processes; what they wrote becomes a layer. Return the answer of a command cut by it."""
        session, self._session = self._session, None
        upper, self._upper = self._upper, None
        reply = await session.end() if session is not None else None
        if reply is None or upper is None:
            raise SandboxLost("the launcher didn't end a session; the sandbox is lost")
        await self._note_layer(upper, reply)
        return {"exit_code": 137, "timed_out": timed_out, "out_of_memory": reply.fields["out_of_memory"]}

    async def _note_layer(self, layer: str, reply: Reply) -> None:
        self._used = reply.fields["used"]
        changed = reply.fields["changed"]
        if changed:
            self._stack.layers.append(layer)
            self._digests.note(layer, workspace_changed="work" in changed)
        overfull = self._used - self._stack.store.pristine_bytes > self._spec.limits.disk_mb * _MIB
        if changed and (len(self._stack.layers) >= _MOST_LAYERS or overfull):
            await self._squash()

    async def _squash(self) -> None:
        """Copy what the layers show into one, and let go of those that no fork stands on."""
        client = await self._backend.client()
        target = self._stack.next_layer()
        fields = {
            "layers": self._stack.layers,
            "target": target,
            "obsolete": self._stack.obsolete(),
            "extra": self._used + self._spec.limits.disk_mb * _MIB,
            "extra_inodes": 2 * _INODES_PER_TURN,
        }
        try:
            reply = await client.call("merge", fields)
        except LauncherError as error:
            if len(self._stack.layers) >= _LAYERS_OF_KERNEL:
                raise SandboxBroken(
                    f"the sandbox's {len(self._stack.layers)} layers can't be merged: {error}"
                ) from error
            return  # deeper than is copied, say; there is still room for layers, and no harm done
        self._stack.layers = [target]
        self._digests.note_squash()
        self._used = reply.fields["used"]
        needed = {self._stack.store.name, *((self._tools or "").split("/")[:1])}
        for store in [held for held in self._stack.held if held.name not in needed]:
            self._stack.held.remove(store)
            await self._backend.drop(store)

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
        if self._session is not None:
            return digests.state_key(await self._inspect(digests.scan))
        await self._close_view()
        return await self._digests.key(self._open_layer, lambda: self._inspect(digests.scan))

    async def _open_layer(self, layer: str) -> int:
        client = await self._backend.client()
        reply = await client.call("open", {"path": f"{layer}/work"})
        return reply.fds[0]

    async def submission(self, editable: Sequence[str], max_bytes: int = 1_048_576) -> Submission:
        """Take out the change; see `Sandbox.submission`."""
        if self._session is not None:
            await self._end_session(timed_out=False)
        await self._close_view()
        base = self._spec.files
        return await self._inspect(lambda root: workspace.submission(root, base, editable, max_bytes))

    async def fork(self) -> LayeredSandbox:
        """Return an independent sandbox with the same files; see `Sandbox.fork`."""
        if self._session is not None and self._spec.kept is Kept.INTERPRETER:
            await self._end_session(timed_out=False)  # nothing is lost, and its layer can be shared
        await self._close_view()
        client = await self._backend.client()
        store, top = await self._backend.new_store(client, _MIB, self._owner)
        os.close(top)
        tools = [held for held in self._stack.held if self._tools and held.name == self._tools.split("/")[0]]
        shared = tools if self._session is not None else self._stack.held
        layers = [f"{store.name}/0"] if self._session is not None else list(self._stack.layers)
        for held in shared:
            held.users += 1
        self._backend.share_user(self._owner)
        stack = Stack(store=store, layers=layers, held=[store, *shared])
        child = LayeredSandbox(self._backend, self._spec, stack, owner=self._owner, tools=self._tools)
        self._backend.adopt(child)
        if self._session is None:
            child._digests = self._digests.copy()
        else:
            await child._copy_from(self._session)
        return child

    async def _copy_from(self, session: Session) -> None:
        """Copy the files of a live session: its layers can't be shared while something writes to them."""
        client = await self._backend.client()
        fields = {"target": self._stack.layers[0], "extra": 2 * self._spec.limits.disk_mb * _MIB + _BASE_SLACK}
        fields["extra_inodes"] = 2 * _INODES_PER_TURN
        try:
            reply = await client.call("copy", fields, session.parts)
        except LauncherError as error:
            await self.destroy()
            raise SandboxBroken(f"the files of a live session can't be copied: {error}") from error
        self._used = self._stack.store.pristine_bytes = reply.fields["used"]

    async def destroy(self) -> None:
        """Kill what is alive and remove everything; see `Sandbox.destroy`."""
        if self._destroyed:
            return
        self._destroyed = True
        self._backend.forget(self)
        try:
            if self._session is not None:
                await self._session.end()
                self._session = self._upper = None
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
        if self._session is not None:
            return self._session.parts[0]
        if self._view is not None and (self._upper is not None or not writing):
            return self._view
        await self._close_view()
        client = await self._backend.client()
        upper = self._stack.next_layer() if writing else None
        fields = {"layers": self._stack.layers, "upper": upper, **self._room()}
        try:
            reply = await client.call("view", fields)
        except LauncherError as error:
            raise setup_error(error) from error
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
            await self._note_layer(upper, await client.call("finish", {"upper": upper}))

    def _check_alive(self) -> None:
        if self._destroyed:
            raise SandboxLost(f"sandbox {self.id} was destroyed; create a new one")
