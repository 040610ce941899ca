"""Grades a hidden pytest suite outside of Sanderling: `python3 -I /tests/grade.py` in the workspace, from test.sh.

1. Files that steer a test run and are neither the task's nor the suite's own are removed; the hidden tests are put in place.
2. `run_suite.py` runs the wanted ids, with a canary that must fail, and reports over a pipe.
3. The reward is 1 if every id passed exactly once and the canary failed, else 0.

Standard library only.
"""

import contextlib
import fnmatch
import hashlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100,PTH120
REWARD = "/logs/verifier/reward.txt"
STEERING = (
    "conftest.py", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml", "sitecustomize.py",
    "usercustomize.py", "*.pth", "*.pyc", "*.so", "pytest.py", "_pytest",
)  # fmt: skip
MOST_OUTPUT = 32 << 20


def remove_steering(kept):
    """Remove files whose names steer a run, unless they are as the task has them."""
    for folder, _, names in os.walk("."):
        for name in names:
            path = os.path.normpath(os.path.join(folder, name))  # noqa: PTH118
            parts = path.split("/")
            if any(fnmatch.fnmatchcase(part, pattern) for part in parts for pattern in STEERING):
                with open(path, "rb") as file:  # noqa: PTH123
                    same = hashlib.sha256(file.read()).hexdigest() == kept.get(path)
                if not same:
                    os.unlink(path)  # noqa: PTH108


def put_suite():
    top = os.path.join(HERE, "suite")  # noqa: PTH118
    for folder, _, names in os.walk(top):
        for name in names:
            source = os.path.join(folder, name)  # noqa: PTH118
            place = os.path.relpath(source, top)
            os.makedirs(os.path.dirname(place) or ".", exist_ok=True)  # noqa: PTH103,PTH120
            if os.path.lexists(place):
                os.unlink(place)  # noqa: PTH108
            shutil.copyfile(source, place)


def put_canary(beside):
    """A test that fails; return its id."""
    name = f"test_{secrets.token_hex(4)}"
    place = "/".join([*beside.split("/")[:-1], f"{name}.py"])
    with open(place, "w", encoding="ascii") as file:  # noqa: PTH123
        file.write(f"def {name}():\n    assert {secrets.token_hex(4)!r} == {secrets.token_hex(4)!r}\n")
    return f"{place}::{name}"


def run(ids, roots, seconds):
    """What the runner reported, None where it didn't come to its end."""
    reader, writer = os.pipe()
    nonce = secrets.token_hex(16)
    argv = [sys.executable, "-I", "-B", os.path.join(HERE, "run_suite.py"), str(writer)]  # noqa: PTH118
    request = {"nonce": nonce, "ids": ids, "roots": roots, "packages": os.environ.get("PYTHONPATH", "")}
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=sys.stderr, pass_fds=[writer], start_new_session=True)
    os.close(writer)
    signal.signal(signal.SIGALRM, lambda *_: os.killpg(child.pid, signal.SIGKILL))
    signal.alarm(max(1, int(seconds)))
    assert child.stdin is not None
    with contextlib.suppress(OSError):
        child.stdin.write(json.dumps(request).encode())
        child.stdin.close()
    output = b""
    while len(output) <= MOST_OUTPUT and (piece := os.read(reader, 65_536)):
        output += piece
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    signal.alarm(0)
    return parsed(output, nonce)


def parsed(output, nonce):
    try:
        lines = [json.loads(line) for line in output.split(b"\n")[:-1]]
    except (ValueError, RecursionError):
        return None
    if any(not isinstance(line, dict) or line.get("nonce") != nonce for line in lines):
        return None
    if not lines or lines[-1] != {"nonce": nonce, "done": True}:
        return None
    outcomes = {}
    for line in lines[:-1]:
        outcomes.setdefault(line.get("id"), []).append(line.get("outcome"))
    return outcomes


def main():
    with open(os.path.join(HERE, "expected.json"), encoding="utf-8") as file:  # noqa: PTH118,PTH123
        expected = json.load(file)
    remove_steering(expected["steering"])
    put_suite()
    canary = put_canary(expected["ids"][0].partition("::")[0])
    outcomes = run([*expected["ids"], canary], expected["roots"], expected["seconds"]) or {}
    passed = [name for name in expected["ids"] if outcomes.get(name) == ["passed"]]
    reward = int(len(passed) == len(expected["ids"]) and outcomes.get(canary) == ["failed"])
    with open(f"{REWARD}.part", "w", encoding="ascii") as file:  # noqa: PTH123
        file.write(f"{reward}\n")
    os.replace(f"{REWARD}.part", REWARD)  # noqa: PTH105
    print(f"{len(passed)} of {len(expected['ids'])} tests passed, reward {reward}")  # noqa: T201 - a program of its own


if __name__ == "__main__":
    main()
