"""Grades a function outside of Sanderling: `python3 -I -S /tests/grade.py`, the heart of an exported test.sh.

It compares what the submitted function shows on hidden calls with what the right one showed. A child process runs the
submitted code and gets the arguments only; this process holds what is right, and nothing of that is left on the disk when the
child starts. So the folder judges as `observation.py` does, with a fixed set of calls instead of fresh ones.

As root the child is the user nobody, who can't read /tests nor write /logs. Otherwise child and grader are one user: then the
grader's memory is closed to it, and the child can't write to any file. What it can still do is end the grader: then there is no
reward at all.

Standard library only; `observer.py` and `values.py` lie beside it.
"""

import contextlib
import ctypes
import json
import os
import resource
import secrets
import signal
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from types import ModuleType

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100,PTH120
REWARD = "/logs/verifier/reward.txt"
NOBODY = 65534
SET_DUMPABLE, SET_SUBREAPER = 4, 36  # of prctl
MOST_OUTPUT = 4 << 20


def load(name):
    """The module beside this file; nothing is put on the path."""
    module = ModuleType(name)
    SourceFileLoader(name, os.path.join(HERE, f"{name}.py")).exec_module(module)  # noqa: PTH118
    return module


def take_calls():
    """The hidden calls, from a file that is gone when the child starts."""
    path = os.path.join(HERE, "calls.json")  # noqa: PTH118
    with open(path, encoding="utf-8") as file:  # noqa: PTH123
        calls = json.load(file)
    os.unlink(path)  # noqa: PTH108
    return calls


def confine():
    """Runs in the child before it becomes the observer."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)


def observe(request, seconds):
    """What the child wrote to its channel, or None where it didn't end well."""
    argv = [sys.executable, "-I", "-S", os.path.join(HERE, "observer.py")]  # noqa: PTH118
    child = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"},
        start_new_session=True,
        preexec_fn=confine,  # noqa: PLW1509 - this process has one thread
    )
    signal.signal(signal.SIGALRM, lambda *_: end_all())
    signal.alarm(max(1, int(seconds)))
    output = b""
    assert child.stdin is not None and child.stdout is not None
    with contextlib.suppress(OSError):  # where the child ended before it had read: it gave no answers
        child.stdin.write(json.dumps(request).encode())
        child.stdin.close()
        while len(output) <= MOST_OUTPUT and (piece := os.read(child.stdout.fileno(), 65_536)):
            output += piece
    if len(output) > MOST_OUTPUT:
        end_all()
    code = child.wait()
    signal.alarm(0)
    end_all()
    return output if code == 0 and len(output) <= MOST_OUTPUT else None


def end_all():
    """Kill whatever is below this process, children that a child left behind too."""
    for _ in range(20):
        below = descendants()
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not below:
            return
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return


def descendants():
    parents = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
            except OSError:
                continue
            if state != b"Z":
                parents[int(name)] = int(parent)
    found, front = set(), {os.getpid()}
    while front:
        front = {pid for pid, parent in parents.items() if parent in front} - found
        found |= front
    return found


def earned(values, output, ready, asked, done):
    """Whether the output is exactly one right answer per call, in order, between the first line and the last."""
    try:
        lines = [json.loads(line) for line in output.split(b"\n")[:-1]]
    except (ValueError, RecursionError):
        return False
    if len(lines) != len(asked) + 2 or lines[0] != {"nonce": ready} or lines[-1] != {"nonce": done}:
        return False
    parts = ("raised", "value", "arguments", "printed")
    for (nonce, expected), answer in zip(asked, lines[1:-1]):  # noqa: B905
        if not isinstance(answer, dict) or answer.get("nonce") != nonce or set(answer) != {"nonce", *parts}:
            return False
        if not all(values.same(expected[part], answer[part]) for part in parts):
            return False
    return True


def main():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(SET_DUMPABLE, 0, 0, 0, 0) or libc.prctl(SET_SUBREAPER, 1, 0, 0, 0):
        sys.exit("this process can't be closed to its children, so nothing is graded")
    values = load("values")
    calls = take_calls()
    if os.geteuid() == 0:
        os.chmod("/logs/verifier", 0o700)  # noqa: PTH101
        os.chmod(HERE, 0o711)  # noqa: PTH101
    ready, done = secrets.token_hex(8), secrets.token_hex(8)
    asked = [(secrets.token_hex(8), call["expected"]) for call in calls["calls"]]
    request = {
        "file": calls["file"],
        "function": calls["function"],
        "ready": ready,
        "calls": [
            {"nonce": nonce, "arguments": call["arguments"]}
            for (nonce, _), call in zip(asked, calls["calls"])  # noqa: B905
        ],
        "done": done,
        "call_cpu_s": calls["call_cpu_s"],
        "call_s": calls["call_s"],
    }
    output = observe(request, calls["total_s"])
    reward = 1 if output is not None and earned(values, output, ready, asked, done) else 0
    with open(f"{REWARD}.part", "w", encoding="ascii") as file:  # noqa: PTH123
        file.write(f"{reward}\n")
    os.replace(f"{REWARD}.part", REWARD)  # noqa: PTH105
    print(f"reward {reward}")  # noqa: T201 - a program of its own, whose output is its log


if __name__ == "__main__":
    main()
