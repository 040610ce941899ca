"""Runs commands one after another in a sandbox that keeps its interpreter, so that a Python script needs no new one.

It is started as `python3 -P -s -S` before any code of the agent has run, as process 1 of its namespace, with a SOCK_SEQPACKET
socket as descriptor 0. It says hello with descriptors of the directories that persist, and then serves requests: a
marshalled `(argv, env, cwd, timeout_s, cpu_s, script, code)` with the descriptors of stdin, stdout and stderr beside it,
answered in JSON by `{"exit_code", "timed_out", "left"}` or `{"refused", "errno"}`. `script` is the path of a warm command's
script, `code` its marshalled code when it comes for the first time; with None the command is executed. "left" says that the
session has to end.

The agent's code runs in forks alone. After each command everything but this process is killed: as process 1 it gets
all orphans, can't be killed from inside, and kill(-1) reaches the rest at once, however fast it multiplies.

The start of this process and each fork are paid in every episode, so nothing is imported that has to be read from a file
of Python code: `os`, `socket`, `signal` and `json` together would cost as much as the interpreter's own start.
"""

import _ctypes
import _io
import _signal  # ty: ignore[import-not-found]
import _socket
import atexit
import errno
import gc
import marshal
import posix
import resource
import sys
import time
from _weakref import CallableProxyType, ProxyType, ReferenceType

PR_SET_DUMPABLE = 4
PARTS = ("/work", "/tmp", "/home/agent", "/dev/shm")
PACKET = 65_536
LIMITS = 16  # RLIM_NLIMITS
IGNORED_BY_PYTHON = (_signal.SIGPIPE, _signal.SIGXFSZ)
PLAIN_CODES = (int, bool, type(None))
OURS = ("_ctypes", "_socket", "resource")  # modules that a fresh interpreter hasn't loaded
OPENED = {}  # the streams of a fork, by name
STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def prctl(option, value):
    _ctypes.call_function(_ctypes.dlsym(_ctypes.dlopen("", 0), "prctl"), (option, value, 0, 0, 0))


def receive(control):
    payload, ancillary, _, _ = control.recvmsg(PACKET, _socket.CMSG_SPACE(64), _socket.MSG_CMSG_CLOEXEC)
    fds = [fd for _, _, data in ancillary for fd in memoryview(data).cast("i")]
    if not payload:
        return None
    if payload == b"F":  # a long request travels in a memory file
        with open(fds.pop(0), "rb") as file:
            payload = file.read()
    return marshal.loads(payload), fds


def settle(fds, cpu_s):
    """Give a fork its streams, the signals of a fresh process and its limit. All else it has from process 1."""
    for place, fd in enumerate(fds):
        posix.dup2(fd, place)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    resource.setrlimit(resource.RLIMIT_CPU, cpu_s)


def execute(argv, env, problem):
    """Execute a program; report through the pipe `problem` when that isn't possible."""
    number = errno.ENOENT
    for name in IGNORED_BY_PYTHON:
        _signal.signal(name, _signal.SIG_DFL)
    name = argv[0]
    places = [name] if "/" in name else [f"{place or '.'}/{name}" for place in env["PATH"].split(":")]
    for place in places:
        try:
            posix.execve(place, argv, env)
        except OSError as error:
            if error.errno == errno.ENOEXEC:  # it doesn't say what runs it: the shell then, as with execvp
                posix.execve("/bin/sh", ["/bin/sh", place, *argv[1:]], env)
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                number = error.errno
    posix.write(problem, str(number).encode())
    posix._exit(126)


def become_interpreter(argv, cwd, script):
    """Make this fork look like an interpreter that was started for `script`; return the namespace of its __main__."""
    posix.closerange(3, 1 << 20)
    prctl(PR_SET_DUMPABLE, 1)
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    for place, (name, mode) in enumerate(STREAMS):
        before = getattr(sys, name)
        raw = _io.FileIO(place, mode, closefd=False)
        raw.name = f"<{name}>"
        buffered = _io.BufferedReader(raw) if mode == "r" else _io.BufferedWriter(raw)
        stream = _io.TextIOWrapper(buffered, before.encoding, before.errors, "\n", name == "stderr")
        stream.__dict__["mode"] = mode
        OPENED[name] = stream
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    posix.environ[b"PWD"] = cwd.encode(errors="surrogateescape")
    posix.putenv("PWD", cwd)
    sys.argv[:] = argv[argv.index(script) :]
    sys.orig_argv[:] = argv
    for name in OURS:
        del sys.modules[name]
    main = type(sys)("__main__")
    loader = sys.modules["_frozen_importlib_external"].SourceFileLoader("__main__", script)
    namespace = main.__dict__
    namespace.update(__loader__=loader, __annotations__={}, __builtins__=sys.modules["builtins"])
    namespace.update(__file__=script, __cached__=None)
    sys.modules["__main__"] = main
    gc.freeze()
    return namespace


def end_plainly(code):
    """End this fork with an exit code at once if nothing is left to do; return if it takes an interpreter's own end.

    That end frees all memory, which costs more than many a script. It can be left out where no function, thread or object
    of the script waits for it: what has a finalizer or is watched is found among the objects made since the fork.
    """
    try:
        changed = sys.stdout is not OPENED["stdout"] or sys.stderr is not OPENED["stderr"]
        if changed or "threading" in sys.modules or atexit._ncallbacks() or abs(code) >> 31:
            return
        for thing in gc.get_objects():
            kind = thing if isinstance(thing, type) else type(thing)
            if hasattr(kind, "__del__") or kind in (ProxyType, CallableProxyType):  # whose watcher can't be asked for
                return
            if isinstance(thing, ReferenceType) and thing.__callback__ is not None:
                return
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        return
    posix._exit(code & 0xFF)


def hide_this_file():
    """See that the traceback of an uncaught exception begins in the script."""
    if not hasattr(sys, "excepthook"):
        return
    shown = sys.excepthook

    def show(kind, error, trace):
        sys.excepthook = shown
        error.__traceback__ = trace.tb_next
        shown(kind, error, trace.tb_next)

    sys.excepthook = show


def wait_for(pid, timeout_s):
    """Return the status of process `pid`, None when it doesn't end in time. Orphans are reaped meanwhile."""
    end = time.monotonic() + timeout_s
    while True:
        ended, status = posix.waitpid(-1, posix.WNOHANG)
        if ended == pid:
            return status
        left = end - time.monotonic()
        if left <= 0:
            return None
        if not ended:
            _signal.sigtimedwait((_signal.SIGCHLD,), left)


def kill_all():
    """Kill and reap every process but this one."""
    try:
        posix.kill(-1, _signal.SIGKILL)
    except ProcessLookupError:
        return
    try:
        while True:
            posix.waitpid(-1, 0)
    except ChildProcessError:
        pass


def answer(pid, timeout_s, problem, untouched):
    """Wait for a command, see that nothing of it is left, and return what to say about it."""
    status = wait_for(pid, timeout_s)
    kill_all()
    left = "false" if condition() == untouched else "true"
    if status is None:
        return f'{{"exit_code": 137, "timed_out": true, "left": {left}}}'
    number = posix.read(problem, 16) if problem is not None else b""
    if number:
        return f'{{"refused": "program", "errno": {number.decode()}}}'
    code = posix.waitstatus_to_exitcode(status)
    return f'{{"exit_code": {code if code >= 0 else 128 - code}, "timed_out": false, "left": {left}}}'


def condition():
    """Return what processes of the same user can change from outside: limits, priority, processors. Forks inherit it."""
    limits = [resource.getrlimit(kind) for kind in range(LIMITS)]
    return limits, posix.getpriority(posix.PRIO_PROCESS, 0), posix.sched_getaffinity(0), posix.sched_getscheduler(0)


def serve(control):
    """Serve requests until the other end is closed. Return in forks for warm commands: [(code, namespace of __main__)].

    When a command changed the condition of this process, the other end is told so and ends the session; when this process
    fails for such a reason, it ends itself. A new session begins with the next command, which nothing of it may reach.
    """
    scripts = {}
    untouched = condition()
    while (received := receive(control)) is not None:
        request, fds = received
        if len(fds) != len(STREAMS):
            break
        _, _, cwd, timeout_s, _, script, code = request
        if code is not None:
            scripts[script] = marshal.loads(code)
        try:
            posix.chdir(cwd)
        except OSError as error:
            reply = f'{{"refused": "directory", "errno": {error.errno}}}'
        else:
            problem, writer = posix.pipe() if script is None else (None, None)
            pid = posix.fork()
            if pid == 0:
                return [begin(request, fds, scripts.get(script), writer)]
            if writer is not None:
                posix.close(writer)
            reply = answer(pid, timeout_s, problem, untouched)
            if problem is not None:
                posix.close(problem)
        for fd in fds:
            posix.close(fd)
        control.send(reply.encode())
    return []


def begin(request, fds, code, problem):
    """Be the fork for a command: execute it, or return its code and namespace. No error of it may reach the loop."""
    argv, env, cwd, _, cpu_s, script, _ = request
    try:
        settle(fds, cpu_s)
        if script is None:
            execute(argv, env, problem)
        return code, become_interpreter(argv, cwd, script)
    except BaseException as error:
        posix.write(2, f"sandbox: the command couldn't begin: {error!r}\n".encode())
        posix._exit(126)


def main():
    """Say hello and serve; see `serve` for what is returned."""
    if posix.getpid() != 1:
        sys.exit("this must be process 1 of a namespace of its own, since it kills all others that it can reach")
    prctl(PR_SET_DUMPABLE, 0)
    posix.unsetenv(b"LD_BIND_NOW")
    del posix.environ[b"LD_BIND_NOW"]
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_BLOCK, (_signal.SIGCHLD,))
    control = _socket.socket(fileno=posix.dup(0))
    posix.dup2(1, 0)
    parts = [posix.open(part, posix.O_RDONLY | posix.O_DIRECTORY) for part in PARTS]
    passed = b"".join(fd.to_bytes(4, sys.byteorder) for fd in parts)
    control.sendmsg([b'{"hello": 1}'], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, passed)])
    for fd in parts:
        posix.close(fd)
    exec(compile("", "", "exec"), {})  # its first use makes the types of syntax trees; here it is paid once
    gc.freeze()
    return serve(control)


if __name__ == "__main__":
    STARTED = main()
    if STARTED:  # this is a fork for a warm command; the script runs as near to the bottom as it can
        try:
            exec(*STARTED.pop())
        except SystemExit as ending:
            if type(ending) is SystemExit and type(ending.code) in PLAIN_CODES:
                end_plainly(ending.code or 0)
            raise
        except BaseException:
            hide_this_file()
            raise
        else:
            end_plainly(0)
        finally:
            gc.unfreeze()
