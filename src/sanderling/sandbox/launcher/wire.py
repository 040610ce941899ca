"""Messages between a backend and its launcher: JSON over a SOCK_SEQPACKET pair, with descriptors beside them.

A message longer than a packet should be travels in a memory file, which is then the first descriptor.
"""

from __future__ import annotations

import array
import errno
import json
import os
import socket
from collections.abc import Sequence
from typing import Any

_INLINE_BYTES = 32_768
_MAX_FDS = 8
_IN_FILE = b"F"


def memory_file(content: bytes, name: str = "message") -> int:
    """Return the descriptor of an unlinked file in memory that holds `content`, positioned at its start."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def send(sock: socket.socket, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
    """Send one message. `BlockingIOError` leaves nothing sent."""
    send_bytes(sock, json.dumps(message).encode(), fds)


def send_bytes(sock: socket.socket, payload: bytes, fds: Sequence[int] = ()) -> None:
    """Send one message that is encoded already."""
    extra: list[int] = []
    if len(payload) > _INLINE_BYTES:
        extra.append(memory_file(payload))
        payload = _IN_FILE
    passed = array.array("i", [*extra, *fds])
    try:
        sock.sendmsg([payload], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)] if passed else [])
    finally:
        for fd in extra:
            os.close(fd)


def receive(sock: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Receive one message and its descriptors (close-on-exec); None at the end of the connection."""
    size = array.array("i").itemsize
    payload, ancillary, flags, _ = sock.recvmsg(
        2 * _INLINE_BYTES, socket.CMSG_SPACE(_MAX_FDS * size), socket.MSG_CMSG_CLOEXEC
    )
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % size])
    if not payload:
        return None
    passed = list(fds)
    if payload == _IN_FILE and passed:
        with open(passed.pop(0), "rb") as file:
            payload = file.read()
    message = json.loads(payload)
    if flags & socket.MSG_CTRUNC:
        for fd in passed:
            os.close(fd)
        return message | {"error": "no descriptor is left in this process", "errno": errno.EMFILE}, []
    return message, passed
