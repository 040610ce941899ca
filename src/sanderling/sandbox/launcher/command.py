"""One command: the process that becomes bubblewrap, and what is known about it while it runs."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import resource
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from . import layers, root, syscalls

_STATUS_FD, _BLOCK_FD, _FILTER_FD, _FIRST_FREE_FD = 3, 4, 5, 6
_HIGH_FD = 100
_SETUP_FAILED = 125
# ignored by the launcher or by Python, and that would be inherited
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)


@dataclass(kw_only=True)
class Running:
    """A command that was started and isn't wholly gone yet. Process ids are those of the launcher's namespace."""

    request: dict[str, Any]
    outer: int  # bubblewrap's monitor, our child
    status: int  # read end of bubblewrap's status messages
    release: int  # writing to it lets the command start
    errors: int  # read end: what our own child reports when it can't get as far as bubblewrap
    deadline: float
    started: float = field(default_factory=time.monotonic)
    init: int | None = None  # first process of the sandbox's pid namespace
    init_handle: int | None = None
    outer_gone: bool = False
    init_gone: bool = False
    timed_out: bool = False
    over_memory: bool = False
    messages: bytes = b""
    trouble: str = ""  # why we gave it up before it began
    exit_code: int | None = None

    def read_status(self) -> bool:
        """Take in status messages; True once the sandbox stands and waits to be released."""
        with contextlib.suppress(BlockingIOError):
            self.messages += os.read(self.status, 4096)
        fresh = False
        for line in self.messages.split(b"\n")[:-1]:
            message = json.loads(line)
            if "child-pid" in message and self.init is None:
                self.init = int(message["child-pid"])
                fresh = True
            if "exit-code" in message:
                self.exit_code = int(message["exit-code"])
        return fresh

    def read_trouble(self) -> str:
        """Return why the command never began, as far as our own child could tell."""
        with contextlib.suppress(BlockingIOError):
            return self.trouble or os.read(self.errors, 4096).decode(errors="replace")
        return ""

    def kill(self) -> None:
        """SIGKILL the namespace's first process, hence all of them, and bubblewrap's monitor."""
        if self.init_handle is not None:
            try:
                signal.pidfd_send_signal(self.init_handle, signal.SIGKILL)
            except ProcessLookupError:
                self.init_gone = True
        if not self.outer_gone:
            os.kill(self.outer, signal.SIGKILL)

    def close(self) -> None:
        for fd in (self.status, self.release, self.errors, self.init_handle):
            if fd is not None:
                os.close(fd)


def start(
    request: dict[str, Any], streams: Sequence[int], launch: Callable[[dict[str, Any], list[int]], int]
) -> Running:
    """Prepare the layer and the pipes of a command and have `launch` start it.

    `launch` gets the request and six descriptors (the command's streams, bubblewrap's status, its release, our child's
    errors), which it has to leave open, and returns the process id of a new child of ours that runs `become_bubblewrap`.
    """
    layers.create_upper(request["upper"])
    status, status_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    release_reader, release = os.pipe()
    errors, errors_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    os.set_blocking(status_writer, True)
    theirs = (status_writer, release_reader, errors_writer)
    try:
        pid = launch(request, [*streams, *theirs])
    except BaseException:
        for fd in (status, release, errors):
            os.close(fd)
        layers.finish_upper(request["upper"])
        raise
    finally:
        for fd in theirs:
            os.close(fd)
    limit = request["timeout_s"]
    deadline = math.inf if limit is None else time.monotonic() + limit
    return Running(request=request, outer=pid, status=status, release=release, errors=errors, deadline=deadline)


def bubblewrap_arguments(request: dict[str, Any], system: list[str]) -> list[str]:
    """Return the argument vector of bubblewrap for one command."""
    vector = ["bwrap", "--unshare-user", "--uid", "1000", "--gid", "1000", "--disable-userns"]
    vector += ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    vector += ["--hostname", "sandbox", "--die-with-parent", "--new-session", "--clearenv"]
    if request["as_pid_1"]:
        vector.append("--as-pid-1")
    vector += [*system, "--proc", "/proc", "--dev", "/dev"]
    for part, place in layers.PARTS.items():
        vector += ["--bind", f"{root.MERGED}/{part}", place]
    if request["tools"]:
        vector += ["--ro-bind", root.TOOLS, "/tools"]
    else:
        vector += ["--dir", "/tools"]
    for link, target in request["links"].items():
        vector += ["--symlink", target, link]
    vector += ["--remount-ro", "/dev", "--remount-ro", "/"]
    for name, value in request["env"].items():
        vector += ["--setenv", name, value]
    vector += ["--chdir", request["cwd"], "--seccomp", str(_FILTER_FD)]
    vector += ["--json-status-fd", str(_STATUS_FD), "--block-fd", str(_BLOCK_FD), "--", *request["argv"]]
    return vector


def become_bubblewrap(request: dict[str, Any], fds: Sequence[int], bubblewrap: int, system: list[str]) -> NoReturn:
    """Turn this process into bubblewrap. `fds` are those that `start` hands out."""
    *fds, errors = fds
    try:
        arguments = bubblewrap_arguments(request, system)
        os.setsid()
        syscalls.unshare(syscalls.CLONE_NEWNS)
        layers.mount_merged(request["layers"], request["upper"], request["overlay"])
        if request["tools"]:
            syscalls.bind(request["tools"], root.TOOLS)
        os.chdir("/")
        syscalls.umount(root.STORES)
        high = {fd: _raise(fd) for fd in (*fds, bubblewrap, errors)}
        filter_fd = _raise(os.open(root.FILTER, os.O_RDONLY))
        for place, fd in enumerate((*(high[fd] for fd in fds), filter_fd)):
            os.dup2(fd, place, inheritable=True)
        keep = sorted((high[bubblewrap], high[errors]))
        os.closerange(_FIRST_FREE_FD, keep[0])
        os.closerange(keep[0] + 1, keep[1])
        os.closerange(keep[1] + 1, 1 << 20)
        errors, bubblewrap = high[errors], high[bubblewrap]
        os.umask(0o022)
        for name in _SIGNALS:
            signal.signal(name, signal.SIG_DFL)
        _limit(request)
        _become_nobody(request)
        os.execve(bubblewrap, arguments, {})
    except BaseException as error:
        os.write(errors, f"{type(error).__name__}: {error}".encode()[:2000])
    os._exit(_SETUP_FAILED)


def _raise(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH_FD)


def _limit(request: dict[str, Any]) -> None:
    """Set what bubblewrap itself can live with; the number of processes follows inside (`limit_processes`)."""
    limits = [
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_DATA, request["memory_bytes"], request["memory_bytes"]),
        (resource.RLIMIT_FSIZE, request["file_bytes"], request["file_bytes"]),
        (resource.RLIMIT_NOFILE, 1024, 1024),
        (resource.RLIMIT_MEMLOCK, 65_536, 65_536),
        (resource.RLIMIT_MSGQUEUE, 819_200, 819_200),
        (resource.RLIMIT_SIGPENDING, 1024, 1024),
    ]
    if request["cpu_s"] is not None:
        cpu = max(1, int(request["cpu_s"] + 0.999))
        limits.append((resource.RLIMIT_CPU, cpu, cpu + 1))
    for kind, soft, hard in limits:
        ceiling = resource.getrlimit(kind)[1]
        if ceiling == resource.RLIM_INFINITY:
            ceiling = max(soft, hard)
        resource.setrlimit(kind, (min(soft, ceiling), min(hard, ceiling)))
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def limit_processes(init: int, request: dict[str, Any]) -> None:
    """Bound the processes of a sandbox, counted by the kernel per user namespace.

    Set from outside once the namespaces stand: set earlier, it would count against everything that the same user runs.
    One is added for the namespace's first process. The kernel lets a process change the limits of another one whose
    user it really is; root needs that too where it was given no CAP_SYS_RESOURCE.
    """
    processes = request["processes"] + 1
    if request["user_namespace"]:
        resource.prlimit(init, resource.RLIMIT_NPROC, (processes, processes))
        return
    os.setresgid(request["gid"], -1, -1)
    os.setresuid(request["uid"], -1, -1)
    try:
        resource.prlimit(init, resource.RLIMIT_NPROC, (processes, processes))
    finally:
        os.setresuid(0, -1, -1)
        os.setresgid(0, -1, -1)


def _become_nobody(request: dict[str, Any]) -> None:
    uid, gid = request["uid"], request["gid"]
    if not request["user_namespace"]:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    syscalls.drop_capabilities()
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
