"""The asyncio end of the launcher's socket."""

from __future__ import annotations

import asyncio
import itertools
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sanderling.errors import SandboxLost, SandboxUnavailable
from sanderling.sandbox.launcher import wire

_START_S = 20.0
_SEND_BUFFER = 1 << 20
_BOOT = "import sys; sys.path[:0] = [{directory!r}]; from launcher import main; main.main()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer of the launcher. The receiver owns the descriptors."""

    fields: dict[str, Any]
    fds: list[int]


class LauncherError(OSError):
    """The launcher couldn't do what was asked; carries the errno of the system call."""


class LauncherClient:
    """Starts a launcher and sends it requests; many may be under way at once.

    It follows the running event loop, so that a backend may be used from one `asyncio.run` after another.
    """

    def __init__(self, settings: dict[str, Any], log: Path, fds: Sequence[int] = ()) -> None:
        self._numbers = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Reply]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._dead: str | None = None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._sock = ours
        boot = _BOOT.format(directory=str(Path(__file__).parent))
        with theirs, log.open("ab") as log_file:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", boot], stdin=theirs.fileno(), stdout=subprocess.DEVNULL, stderr=log_file,
                cwd="/", env={}, start_new_session=True,
            )  # fmt: skip
        try:
            self._shake_hands(settings, log, fds)
        except BaseException:
            self.close()
            raise

    def _shake_hands(self, settings: dict[str, Any], log: Path, fds: Sequence[int]) -> None:
        self._sock.settimeout(_START_S)
        try:
            wire.send(self._sock, settings, fds)
            received = wire.receive(self._sock)
        except OSError as error:
            raise SandboxUnavailable(f"the sandbox launcher didn't answer ({error}); its log is {log}") from error
        if received is None:
            trouble = log.read_text(errors="replace")[-2000:]
            raise SandboxUnavailable(f"the sandbox launcher ended at its start: {trouble.strip() or 'no message'}")
        fields, _ = received
        if "error" in fields:
            raise LauncherError(fields.get("errno"), f"{fields['error']} (while preparing {fields['stage']})")
        self._sock.setblocking(False)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)

    async def call(self, op: str, fields: dict[str, Any], fds: Sequence[int] = ()) -> Reply:
        """Send a request and wait for its answer.

        Raises:
            LauncherError: the launcher refused, with the errno. SandboxLost: the launcher is gone.
        """
        number, future = await self.begin(op, fields, fds)
        return await self.end(number, future)

    async def begin(
        self, op: str, fields: dict[str, Any], fds: Sequence[int] = ()
    ) -> tuple[int, asyncio.Future[Reply]]:
        """Send a request and return its number and the future of its answer."""
        self._follow_loop()
        number = next(self._numbers)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        while True:
            if self._dead is not None:
                raise SandboxLost(self._dead)
            try:
                wire.send(self._sock, {"id": number, "op": op, **fields}, fds)
                break
            except BlockingIOError:
                await asyncio.sleep(0.001)
            except OSError as error:
                self._fail(f"the sandbox launcher is gone ({error})")
        self._pending[number] = future
        return number, future

    async def end(self, number: int, future: asyncio.Future[Reply]) -> Reply:
        """Wait for the answer to `begin`."""
        try:
            reply = await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(_discard)
            raise
        if "error" in reply.fields:
            raise LauncherError(reply.fields.get("errno"), reply.fields["error"])
        return reply

    def _follow_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(self._sock)
            self._loop = loop
            loop.add_reader(self._sock, self._on_readable)

    def _on_readable(self) -> None:
        while True:
            try:
                received = wire.receive(self._sock)
            except BlockingIOError:
                return
            except OSError as error:
                self._fail(f"the sandbox launcher is gone ({error})")
                return
            if received is None:
                self._fail("the sandbox launcher ended; its log is in the state directory")
                return
            fields, fds = received
            reply = Reply(fields=fields, fds=fds)
            future = self._pending.pop(fields["id"], None)
            if future is None or future.done():
                _close(reply)
            else:
                future.set_result(reply)

    def _fail(self, message: str) -> None:
        self._dead = message
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._sock)
        for future in self._pending.values():
            if not future.done():
                future.set_exception(SandboxLost(message))
        self._pending.clear()

    @property
    def dead(self) -> bool:
        """Whether the launcher is known to be gone: every call raises SandboxLost."""
        return self._dead is not None

    @property
    def pid(self) -> int:
        """Process id of the launcher's guard, which ends when the launcher does."""
        return self._process.pid

    def close(self) -> None:
        """End the launcher, hence every process that it started, and wait for its end. May be called twice."""
        self._fail("the sandbox backend was closed")
        self._sock.close()
        try:
            self._process.wait(timeout=_START_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _discard(future: asyncio.Future[Reply]) -> None:
    if not future.cancelled() and future.exception() is None:
        _close(future.result())


def _close(reply: Reply) -> None:
    import os

    for fd in reply.fds:
        os.close(fd)
