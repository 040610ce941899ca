"""Processes that sit in control groups and start commands there.

To move a process into a group the kernel waits until every processor has passed a quiet point: 10 to 20 ms per hierarchy,
during which nothing on the machine can fork. A child is born into its parent's group at no cost. So a seat moves once and
then starts one command after another; the commands are children of the launcher all the same (CLONE_PARENT).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

from . import syscalls, wire
from .cgroups import Home, Kills

_ANSWER_S = 20.0
Starter = Callable[[dict[str, Any], Sequence[int]], None]


class Seat:
    """One such process and its group. `starter` runs in the new child and never returns; it needs the descriptor `kept`."""

    def __init__(self, home: Home, name: str, starter: Starter, kept: int) -> None:
        self.name = name
        self._home = home
        joins = home.create(name)
        self.kills = Kills(home.open_kills(name))
        self._sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._sock.settimeout(_ANSWER_S)
        self.pid = os.fork()
        if self.pid == 0:
            _sit(theirs, joins, starter, kept)
        theirs.close()
        for fd in joins:
            os.close(fd)

    def start(self, request: dict[str, Any], fds: Sequence[int]) -> int:
        """Start a command within the request's limits and return its process id.

        Raises:
            OSError: the seat is gone (what ran in it took it along), or the kernel refused.
        """
        self._home.limit(self.name, request["memory_bytes"], request["processes"])
        self.kills.anew()  # what came before is no matter
        wire.send(self._sock, request, fds)
        received = wire.receive(self._sock)
        if received is None:
            raise BrokenPipeError("a seat for commands is gone")
        answer, _ = received
        if "errno" in answer:
            raise OSError(answer["errno"], answer["error"])
        return answer["pid"]

    def ran_out(self) -> bool:
        """Whether the kernel killed something of the last command for want of memory."""
        return self.kills.anew()

    def close(self) -> None:
        """Give the seat up: its process ends, its group is removed."""
        self._sock.close()
        os.close(self.kills.fd)
        self._home.remove(self.name)


def _sit(sock: socket.socket, joins: Sequence[int], starter: Starter, kept: int) -> None:
    try:
        for fd in joins:
            os.write(fd, b"0")
        _close_all_but(sock.fileno(), kept)
        while (received := wire.receive(sock)) is not None:
            request, fds = received
            try:
                pid = syscalls.fork_sibling()
                if pid == 0:
                    starter(request, fds)
                answer: dict[str, Any] = {"pid": pid}
            except OSError as error:
                answer = {"errno": error.errno, "error": str(error)}
            for fd in fds:
                os.close(fd)
            wire.send(sock, answer)
    finally:
        os._exit(0)


def _close_all_but(*kept: int) -> None:
    """Close what was inherited from the launcher; streams 0 to 2 stay."""
    first = 3
    for fd in sorted(kept):
        os.closerange(first, fd)
        first = fd + 1
    os.closerange(first, 1 << 20)
