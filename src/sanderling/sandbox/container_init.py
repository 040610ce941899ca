"""The first process of a container: runs commands, reads and writes files, and kills whatever a command leaves.

It gets its own source through its standard input (`container_channel`), so that an image needs nothing but a Python 3.11, and
imports nothing but the standard library and the modules that came along. As process 1 of a pid namespace it can't be killed,
stopped or traced from inside; its commands run as the same unprivileged user and never hold a descriptor of its own.

A request is a JSON line, followed by as many bytes as its "size" says; so is an answer. One request at a time, but "kill" may
come while a command runs, and is never answered.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import time
from typing import Any

from sanderling.errors import UnsafePath
from sanderling.sandbox import container_files
from sanderling.sandbox.head_and_tail import HeadAndTail
from sanderling.sandbox.launcher import session_init

_PR_SET_DUMPABLE = 4
_OURS = 200  # our descriptors stand above those that `session_init.become` moves about
_CHUNK = 1 << 16
_OOM_KILLS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
_LIMITS = {
    "memory": ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"),
    "processes": ("/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"),
}
_HUGE = 1 << 60  # how the first version of control groups says that there is no limit
_LEADER_PATIENCE_S = 5.0


class Channel:
    """The conversation with the outside over what were descriptors 0 and 1."""

    def __init__(self) -> None:
        self.reader, self.writer = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _OURS) for fd in (0, 1))
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1):
            os.dup2(null, fd)
        os.close(null)
        self._pending = b""

    @property
    def waiting(self) -> bool:
        """Whether the beginning of a further request was read already."""
        return bool(self._pending)

    def receive(self) -> dict[str, Any] | None:
        """Return the next request, None at the end."""
        while b"\n" not in self._pending:
            chunk = os.read(self.reader, _CHUNK)
            if not chunk:
                return None
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return json.loads(line)

    def blob(self, size: int) -> bytes:
        """Return the next `size` bytes, which belong to the request."""
        parts = [self._pending[:size]]
        self._pending = self._pending[size:]
        left = size - len(parts[0])
        while left:
            chunk = os.read(self.reader, min(left, 1 << 20))
            if not chunk:
                raise EOFError("the conversation ended in the middle of a request")
            parts.append(chunk)
            left -= len(chunk)
        return b"".join(parts)

    def send(self, answer: dict[str, Any], blob: bytes = b"") -> None:
        self.write(json.dumps({**answer, "size": len(blob)}).encode() + b"\n")
        self.write(blob)

    def write(self, content: bytes) -> None:
        view = memoryview(content)
        while view:
            view = view[os.write(self.writer, view) :]


def kill_all() -> dict[int, int]:
    """Kill everything but ourselves and wait until it is gone; return the wait statuses by process id.

    The kernel signals all processes of the namespace while none can fork past it, so one round is enough; more are made
    because a process that was just being born is reaped a moment later.
    """
    statuses: dict[int, int] = {}
    while True:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return statuses
        statuses[pid] = status


def reap() -> dict[int, int]:
    """Reap what has ended and return the wait statuses by process id."""
    statuses: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return statuses
        if pid == 0:
            return statuses
        statuses[pid] = status


class Running:
    """One command, its output so far, and how it is going to end."""

    def __init__(self, channel: Channel, request: dict[str, Any], stdin: bytes) -> None:
        self._channel = channel
        self._request = request
        self._keeps = request["keep_processes"]
        self._outputs = {1: HeadAndTail(request["output_bytes"]), 2: HeadAndTail(request["output_bytes"])}
        self._pipes: dict[int, int] = {}  # read end: 1 or 2
        self.told = b""  # what the leader or the failed child said
        self._start(stdin)

    def _start(self, stdin: bytes) -> None:
        theirs = [_stdin_file(stdin)]
        for number in (1, 2):
            reader, writer = os.pipe()
            os.set_blocking(reader, False)
            self._pipes[reader] = number
            theirs.append(writer)
        self._teller, teller = os.pipe()
        os.set_blocking(self._teller, False)
        try:
            self._pid = os.fork()
            if self._pid == 0:
                _be_command(self._request, theirs, teller, keeps=self._keeps)
        finally:
            for fd in (*theirs, teller):
                os.close(fd)

    def finish(self) -> tuple[dict[str, Any], bytes]:
        """Wait for the end, see to it that nothing goes on that mustn't, and return the answer with both outputs."""
        patience = _LEADER_PATIENCE_S if self._keeps else 0.0
        deadline = time.monotonic() + self._request["timeout_s"] + patience
        status, cut = self._wait(deadline)
        if cut or not self._keeps:
            status = kill_all().get(self._pid, status)
        self._drain()
        answer = self._account(status, cut)
        if answer.get("left"):
            kill_all()
        for reader in (*self._pipes, self._teller):
            os.close(reader)
        out, err = self._outputs[1], self._outputs[2]
        answer |= {"stdout_bytes": len(out.kept), "omitted": [out.omitted, err.omitted]}
        return answer, out.kept + err.kept

    def _account(self, status: int | None, cut: bool) -> dict[str, Any]:
        if cut:
            return {"exit_code": 137, "timed_out": True}
        if self.told:
            return json.loads(self.told)
        code = os.waitstatus_to_exitcode(status) if status is not None else -signal.SIGKILL
        # a leader that says nothing was killed by its command
        return {"exit_code": 137 if self._keeps else code if code >= 0 else 128 - code, "timed_out": False}

    def _wait(self, deadline: float) -> tuple[int | None, bool]:
        """Pump output until the command ends. Return its wait status, and whether it has to be cut."""
        poll = select.poll()
        handle = os.pidfd_open(self._pid)
        for fd in (*self._pipes, handle, self._channel.reader):
            poll.register(fd, select.POLLIN)
        try:
            while True:
                left = deadline - time.monotonic()
                if left <= 0:
                    return None, True
                ready = {fd for fd, _ in poll.poll(min(left, 1.0) * 1000)}
                for fd in ready & self._pipes.keys():
                    if not self._pump(fd):
                        poll.unregister(fd)
                if self._channel.waiting or self._channel.reader in ready:
                    _expect_kill(self._channel)
                    return None, True
                ended = reap()
                if self._pid in ended:
                    return ended[self._pid], False
        finally:
            os.close(handle)

    def _pump(self, reader: int) -> bool:
        """Read once; False at the end of the stream."""
        try:
            chunk = os.read(reader, _CHUNK)
        except BlockingIOError:
            return True
        self._outputs[self._pipes[reader]].add(chunk)
        return bool(chunk)

    def _drain(self) -> None:
        """Take what is in the pipes: all of it, or what is there now where somebody still may write."""
        for reader, number in self._pipes.items():
            for _ in range(64):  # a pipe holds at most a few chunks
                try:
                    chunk = os.read(reader, _CHUNK)
                except BlockingIOError:
                    break
                if not chunk:
                    break
                self._outputs[number].add(chunk)
        try:
            self.told = os.read(self._teller, 8192)
        except BlockingIOError:
            self.told = b""


def _stdin_file(content: bytes) -> int:
    if not content:
        return os.open(os.devnull, os.O_RDONLY)
    fd = os.memfd_create("stdin")
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _be_command(request: dict[str, Any], fds: list[int], teller: int, *, keeps: bool) -> None:
    """Turn the forked process into the command, or into the leader of one whose children may live on."""
    os.closerange(_OURS, _OURS + 8)
    try:
        if keeps:
            session_init.lead(request, fds, teller)
        session_init.become(request, fds, teller)
    finally:
        os._exit(126)


def _expect_kill(channel: Channel) -> None:
    request = channel.receive()
    if request is None:
        os._exit(0)  # nobody is there any more; the kernel ends the container with us
    if request["op"] != "kill":
        raise ValueError(f"request {request['op']!r} while a command runs; expected 'kill'")


def _oom_kills() -> int:
    """Return how many processes of this container the kernel has killed for memory; 0 where it doesn't tell."""
    for path in _OOM_KILLS:
        try:
            with open(path) as file:
                counts = dict(line.split() for line in file)
        except (OSError, ValueError):
            continue
        return int(counts.get("oom_kill", 0))
    return 0


def _execute(channel: Channel, request: dict[str, Any], stdin: bytes) -> tuple[dict[str, Any], bytes]:
    before = _oom_kills()
    if not request["keep_processes"]:
        kill_all()
    answer, outputs = Running(channel, request, stdin).finish()
    return {**answer, "out_of_memory": _oom_kills() > before}, outputs


def _answer(channel: Channel, request: dict[str, Any], blob: bytes) -> tuple[dict[str, Any], bytes] | None:
    """Do what a request asks for. None: it was answered already, or needs no answer."""
    op = request["op"]
    if op == "exec":
        return _execute(channel, request, blob)
    if op == "scan":
        return {}, json.dumps(container_files.scan(with_digests=request["digests"])).encode()
    if op == "read":
        return {}, container_files.read(request)
    if op == "write":
        container_files.write(request, blob)
    elif op == "pack":
        container_files.pack(channel)
        return None
    elif op == "unpack":
        container_files.unpack(channel, request["count"])
    elif op == "end":
        kill_all()
    elif op == "kill":
        return None
    return {}, b""


def _unbounded() -> list[str]:
    """Return what the engine was asked to limit and didn't, as far as the kernel shows it in here."""
    return [name for name, paths in _LIMITS.items() if not any(_is_limit(path) for path in paths)]


def _is_limit(path: str) -> bool:
    try:
        with open(path) as file:
            text = file.read().strip()
    except OSError:
        return False
    return text.isdigit() and int(text) < _HUGE


def _hello() -> dict[str, Any]:
    return {
        "uid": os.getuid(),
        "writable_root": os.access("/", os.W_OK),
        "closed": [path for path in container_files.PLACES.values() if not os.access(path, os.W_OK | os.X_OK)],
        "tools": sum(len(files) for _, _, files in os.walk("/tools")),
        "unbounded": _unbounded(),
    }


def serve(channel: Channel) -> None:
    """Say hello, and answer requests until nobody asks any more."""
    channel.send(_hello())
    while (request := channel.receive()) is not None:
        blob = channel.blob(request["size"])
        try:
            answer = _answer(channel, request, blob)
        except UnsafePath as error:
            answer = {"unsafe": str(error)}, b""
        except OSError as error:
            answer = {"failed": f"{request['op']}: {error}", "errno": error.errno}, b""
        if answer is not None:
            channel.send(*answer)


def main() -> None:
    """Shut ourselves off from what will run beside us, and serve."""
    if os.getpid() != 1:
        raise SystemExit(
            "not process 1 of a container: nothing is run, since a command's end kills all that can be seen"
        )
    session_init.prctl(_PR_SET_DUMPABLE, 0)
    # A process 1 gets no signal from inside but those that it handles; Python handles this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.umask(0o022)
    serve(Channel())
