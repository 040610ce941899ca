"""The live process tree of a session sandbox, and the conversation with the first process in it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Sequence
from typing import Any

from sanderling.errors import SandboxError, SandboxLost
from sanderling.sandbox.launcher import wire
from sanderling.sandbox.launcher.cgroups import Kills
from sanderling.sandbox.launcher.root import INTERPRETER_BIN, INTERPRETER_INIT, SESSION_INIT
from sanderling.sandbox.launcher_client import LauncherClient, LauncherError, Reply
from sanderling.sandbox.protocol import PYTHON, Command, Kept

_START_S = 15.0
_END_S = 15.0
_FIRST = {Kept.PROCESSES: SESSION_INIT, Kept.INTERPRETER: INTERPRETER_INIT}


def first_command(kept: Kept) -> Command:
    """Return the command of a session's first process."""
    # bound at once, symbols are bound for all forks, and the start is no slower
    env = {"LD_BIND_NOW": "1"} if kept is Kept.INTERPRETER else {}
    return Command(argv=(f"{INTERPRETER_BIN}/{PYTHON[0]}", *PYTHON[1:], _FIRST[kept]), env=env)


class SessionEnded(Exception):
    """The session's processes are gone: the agent killed them, or they ran out of memory."""


class Session:
    """One conversation. `parts` are descriptors of the live directories: workspace, /tmp, home, /dev/shm."""

    def __init__(
        self, client: LauncherClient, control: socket.socket, number: int, ended: asyncio.Future[Reply]
    ) -> None:
        self._client = client
        self._control = control
        self._number = number
        self._ended = ended
        self.parts: list[int] = []
        self.scripts: set[str] = set()  # whose code the first process has
        self._kills: Kills | None = None  # None: no control group counts them

    @classmethod
    async def start(cls, client: LauncherClient, fields: dict[str, Any]) -> Session:
        """Start the first process of a session; `fields` are those of a command without limit.

        Raises:
            SandboxLost: it didn't come up.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            number, ended = await client.begin("exec", fields, (theirs.fileno(), null, null))
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(null)
        session = cls(client, ours, number, ended)
        try:
            _, session.parts = await asyncio.wait_for(session._receive(), _START_S)
            await session._watch_kills()
        except (SessionEnded, TimeoutError) as error:
            reply = await session.end()
            reason = reply.fields.get("trouble") if reply is not None else ""
            raise SandboxLost(f"a session couldn't be started: {reason or repr(error)}") from error
        return session

    @property
    def alive(self) -> bool:
        return not self._ended.done()

    async def run(self, request: bytes, fds: Sequence[int]) -> dict[str, Any]:
        """Have one command run and return the answer of the first process. `request` is encoded as that one expects.

        Raises:
            SessionEnded: the first process is gone.
        """
        try:
            wire.send_bytes(self._control, request, fds)
        except OSError as error:
            raise SessionEnded from error
        answer, _ = await self._receive()
        return {**answer, "out_of_memory": self._kills is not None and self._kills.anew()}

    async def _watch_kills(self) -> None:
        reply = await self._client.call("open_kills", {"target": self._number})
        if reply.fds:
            self._kills = Kills(*reply.fds)

    async def _receive(self) -> tuple[dict[str, Any], list[int]]:
        loop = asyncio.get_running_loop()
        while True:
            with contextlib.suppress(BlockingIOError):
                try:
                    received = wire.receive(self._control)
                except (ConnectionError, ValueError) as error:
                    raise SessionEnded from error
                if received is None:
                    raise SessionEnded
                return received
            readable: asyncio.Future[None] = loop.create_future()
            loop.add_reader(self._control, _wake, readable)
            try:
                await readable
            finally:
                loop.remove_reader(self._control)

    async def end(self) -> Reply | None:
        """Kill everything and wait until it is gone; return the launcher's account, None when the launcher is gone too."""
        self._control.close()
        for fd in (*self.parts, *(() if self._kills is None else (self._kills.fd,))):
            os.close(fd)
        self.parts, self._kills = [], None
        try:
            if self.alive:
                await self._client.call("kill", {"target": self._number})
            return await asyncio.wait_for(self._client.end(self._number, self._ended), _END_S)
        except (SandboxError, LauncherError, TimeoutError):
            return None


def _wake(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)
