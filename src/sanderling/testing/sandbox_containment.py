"""A helper process in namespaces of its own, for attacks that would disturb the host where a backend doesn't contain them.

Root gets new mount, pid, net, ipc and uts namespaces with a fresh /proc and a loopback interface that is up; a plain user gets
a forked process only. In both cases the work runs as leader of a new session with a controlling terminal, so that an attack on
the terminal has something to hit. What the work sends is received line by line, so nothing is lost when an attack kills it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import pty
import select
import signal
import socket
import struct
import sys
import termios
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

NEW_MOUNT, NEW_UTS, NEW_IPC, NEW_PID, NEW_NET = 0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
PR_SET_PDEATHSIG = 1

Send = Callable[[str], None]


def containment() -> str:
    """Say what will contain the helper process of this user."""
    if os.geteuid() == 0:
        return "mount, pid, net, ipc and uts namespaces"
    return "a forked process without namespaces (not root)"


def run_contained(work: Callable[[Send], None], silence_s: float | None = None) -> Iterator[str]:
    """Run `work(send)` in the helper process and yield each line that it sends.

    The iteration ends when the helper ends, for whatever reason, or is killed because it sent nothing for `silence_s` seconds;
    the caller sees it from what is missing. An exception of `work` is written to standard error by the helper.
    """
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    helper = os.fork()
    if helper == 0:
        os.close(reader)
        _end_with(lambda: _enter_and_run(work, writer))
    os.close(writer)
    try:
        yield from _lines(reader, silence_s)
    finally:
        os.close(reader)
        os.kill(helper, signal.SIGKILL)  # it is ours and not reaped yet, so the id can't be another's
        os.waitpid(helper, 0)


def _lines(reader: int, silence_s: float | None) -> Iterator[str]:
    pending = b""
    while select.select([reader], [], [], silence_s)[0]:
        received = os.read(reader, 65_536)
        if not received:
            return
        *complete, pending = (pending + received).split(b"\n")
        for line in complete:
            yield line.decode("utf-8", "replace")


def _end_with(function: Callable[[], int]) -> None:
    """Leave the process with the function's status and without the clean-up of the interpreter that was forked."""
    status = 1
    try:
        status = function()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _enter_and_run(work: Callable[[Send], None], writer: int) -> int:
    _die_with_parent()
    if os.geteuid() == 0:
        _unshare(NEW_MOUNT | NEW_UTS | NEW_IPC | NEW_PID | NEW_NET)
    first = os.fork()  # process 1 of the new pid namespace
    if first == 0:
        _end_with(lambda: _be_first(work, writer))
    os.close(writer)
    return os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) & 0xFF


def _be_first(work: Callable[[Send], None], writer: int) -> int:
    """Start the work and reap orphans until it ends; the kernel then kills whatever is left of the namespace."""
    _die_with_parent()
    if os.geteuid() == 0:
        _call("mount", None, b"/", None, MS_REC | MS_PRIVATE, None)
        _call("mount", b"proc", b"/proc", b"proc", 0, None)
        _raise_loopback()
    worker = os.fork()
    if worker == 0:
        _end_with(lambda: _work(work, writer))
    os.close(writer)
    while True:
        ended, status = os.wait()
        if ended == worker:
            return os.waitstatus_to_exitcode(status) & 0xFF


def _work(work: Callable[[Send], None], writer: int) -> int:
    _die_with_parent()
    os.setsid()
    master, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    os.set_inheritable(writer, False)
    work(lambda line: _write_all(writer, f"{line}\n".encode()))
    os.close(master)
    return 0


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _die_with_parent() -> None:
    _call("prctl", PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _unshare(flags: int) -> None:
    _call("unshare", flags)


def _call(name: str, *args: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*args) != 0:
        number = ctypes.get_errno()
        raise OSError(
            number, f"{name} failed in the helper process: {os.strerror(number)}; run the checks with CAP_SYS_ADMIN"
        )


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS, IFF_UP | IFF_RUNNING


def make_readable(interpreter: Path) -> None:
    """Open a path that only root may enter, such as /root/.../python, to every user of this private mount namespace.

    Each directory on the way that others can't enter is covered by an empty one that leads on to the same content.

    Raises:
        OSError: mounting isn't allowed.
    """
    for parent in reversed(interpreter.parents):
        if parent.stat().st_mode & 0o001:
            continue
        inner = parent / interpreter.relative_to(parent).parts[0]
        handle = os.open(inner, os.O_PATH)
        try:
            _call("mount", b"tmpfs", os.fsencode(parent), b"tmpfs", 0, b"mode=0755")
            inner.mkdir()
            _call("mount", f"/proc/self/fd/{handle}".encode(), os.fsencode(inner), None, 4096, None)  # MS_BIND
        finally:
            os.close(handle)
