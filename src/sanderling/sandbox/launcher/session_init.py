"""Runs commands one after another inside a session sandbox, so that what they leave in the background lives on.

It is started as `python3 -I -S` before any code of the agent has run, with a SOCK_SEQPACKET socket as descriptor 0, says
hello with descriptors of the directories that persist, and then serves requests:
`{"argv", "env", "cwd", "timeout_s", "limits"}` with the descriptors of stdin, stdout and stderr beside it, answered by
`{"exit_code", "timed_out", "left"}` or `{"refused", "errno"}`. Each command has a leader that adopts its orphans, so that
a timeout finds all of them. This file imports nothing but the standard library; inside there is nothing else.
"""

import array
import contextlib
import ctypes
import errno
import json
import os
import resource
import select
import signal
import socket
import sys
import time

PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36
PARTS = ("/work", "/tmp", "/home/agent", "/dev/shm")
KILL_PATIENCE_S = 2.0
HIGH_FD = 100


def prctl(option, value):
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def send(control, message, fds=()):
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    control.sendmsg([json.dumps(message).encode()], ancillary)


def receive(control):
    payload, ancillary, _, _ = control.recvmsg(1 << 20, socket.CMSG_SPACE(64), socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for _, _, data in ancillary:
        fds.frombytes(data)
    if not payload:
        return None
    fds = list(fds)
    if payload == b"F":  # a long request travels in a memory file
        with open(fds.pop(0), "rb") as file:
            payload = file.read()
    return json.loads(payload), fds


def children_of(pid):
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
                if int(file.read().rpartition(b")")[2].split()[1]) == pid:
                    found.append(int(name))
    return found


def kill_descendants():
    """Kill and reap until the leader has no descendant any more; orphans come to it, so that none is missed.

    Return False when some are left because they multiplied faster than they could be killed.
    """
    end = time.monotonic() + KILL_PATIENCE_S
    while time.monotonic() < end:
        pending = children_of(os.getpid())
        seen = set()
        while pending:
            pid = pending.pop()
            if pid not in seen:
                seen.add(pid)
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                pending += children_of(pid)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return True
        time.sleep(0.002)  # the killed ones end, and what they left comes to us
    return False


def kill_first():
    """Have the kernel choose this process, and not the one that it comes from, when memory runs out.

    The file belongs to us only while we are dumpable, which the program that we become is anyway.
    """
    prctl(PR_SET_DUMPABLE, 1)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def become(request, fds, problem):
    """Turn into the command; report through the pipe `problem` when that isn't possible."""
    refused = "program"
    try:
        os.setsid()
        high = [os.dup2(fd, HIGH_FD + place) for place, fd in enumerate(fds)]
        for place, fd in enumerate(high):
            os.dup2(fd, place, inheritable=True)
        os.closerange(HIGH_FD, HIGH_FD + 3)
        for name in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            with contextlib.suppress(OSError, ValueError):
                signal.signal(name, signal.SIG_DFL)
        for kind, soft, hard in request["limits"]:
            resource.setrlimit(kind, (soft, hard))
        if request.get("killed_first"):
            kill_first()
        refused = "directory"
        os.chdir(request["cwd"])
        refused = "program"
        os.execvpe(request["argv"][0], request["argv"], request["env"])
    except BaseException as error:
        number = error.errno if isinstance(error, OSError) else errno.EINVAL
        os.write(problem, json.dumps({"refused": refused, "errno": number}).encode())
    os._exit(126)


def run_led(request, fds):
    """Run a command as its leader and return the answer; after its limit nothing of it is alive."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    reader, problem = os.pipe()
    pid = os.fork()
    if pid == 0:
        become(request, fds, problem)
    os.close(problem)
    handle = os.pidfd_open(pid)
    try:
        ended, _, _ = select.select([handle], [], [], request["timeout_s"])
        if not ended:
            return {"exit_code": 137, "timed_out": True, "left": not kill_descendants()}
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        trouble = os.read(reader, 4096)
        return json.loads(trouble) if trouble else {"exit_code": code if code >= 0 else 128 - code, "timed_out": False}
    finally:
        os.close(handle)
        os.close(reader)


def lead(request, fds, answer):
    """Be the leader of one command of a session: what it leaves in the background goes on."""
    os.write(answer, json.dumps(run_led(request, fds)).encode())
    os._exit(0)


def serve(control):
    send(control, {"hello": os.getpid()}, [os.open(part, os.O_RDONLY | os.O_DIRECTORY) for part in PARTS])
    while True:
        received = receive(control)
        if received is None:
            return
        request, fds = received
        reader, answer = os.pipe()
        pid = os.fork()
        if pid == 0:
            control.close()
            os.close(reader)
            lead(request, fds, answer)
        for fd in (*fds, answer):
            os.close(fd)
        reply = os.read(reader, 8192)
        os.close(reader)
        os.waitpid(pid, 0)
        send(control, json.loads(reply or b'{"exit_code": 137, "timed_out": false}'))


if __name__ == "__main__":
    prctl(PR_SET_DUMPABLE, 0)
    sys.exit(serve(socket.socket(fileno=os.dup(0))))
