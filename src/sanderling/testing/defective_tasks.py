"""An environment with one good task and one for each way in which a task can be broken, graded by named test programs.

assert audit finds: gold-fails, flaky, no-op-paid, missing-id, needs-network, expires
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta

from sanderling.environment import Environment
from sanderling.harness.line_edit import LineEditHarness
from sanderling.sandbox.protocol import Command, ExecResult, SandboxBackend, SandboxSpec
from sanderling.tasks.listed import TaskList
from sanderling.types import Evidence, Graded, Limits, Submission, Task

FILE = "solution.py"
BUGGY = b"def double(number):\n    return number + 2\n"
RIGHT = b"def double(number):\n    return number * 2\n"
_LIMITS = Limits(command_s=10.0, memory_mb=256, disk_mb=16, processes=16)
_EXPIRES_IN = timedelta(days=200)
_RUNNER = b"""\
import io, json, random, sys
asked = json.load(sys.stdin)
with open("solution.py", encoding="utf-8") as file:
    source = file.read()
seen = {}
for name, program in asked["programs"].items():
    scope = {"random": random.Random(asked["seed"])}
    try:
        exec(compile(source, "solution.py", "exec"), scope)
        exec(program, scope)
        seen[name] = ""
    except BaseException as error:
        seen[name] = f"{type(error).__name__}: {error}"
json.dump(seen, sys.stdout)
"""
_WEAK = {"double_two": "assert double(2) == 4"}
_TESTS = {
    **_WEAK,
    "double_more": "for _ in range(8):\n    n = random.randint(3, 99)\n    assert double(n) == 2 * n, f'double({n})'",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The hidden part of a task."""

    programs: Mapping[str, str]  # by name; each sees the submission's names and `random`, seeded by the grading
    required: tuple[str, ...]  # names that have to be seen passed; a name without program is a defect of the task
    right: bytes = RIGHT


class ProgramVerifier:
    """Implements `Verifier` and `Auditable`: runs test programs in the process that runs the submission, by exception.

    A verifier of the usual kind, with evidence by name; what an attack on the process does to it is another matter.
    """

    def __init__(self, hidden: Mapping[str, Programs]) -> None:
        self._hidden = hidden
        self._isolation: str | None = None  # of the first backend; found by running a sandbox, which takes its time

    async def grade(self, task: Task, submission: Submission, backend: SandboxBackend, seed: int) -> Graded:
        return await self._graded(task, submission.files, backend, seed)

    async def control(self, task: Task, backend: SandboxBackend, seed: int) -> Graded:
        return await self._graded(task, await self.solution(task, backend), backend, seed)

    async def solution(self, task: Task, backend: SandboxBackend) -> Mapping[str, bytes]:
        return {FILE: self._hidden[task.id].right}

    def hidden(self, task: Task) -> Mapping[str, bytes]:
        mine = self._hidden[task.id]
        return {"gold": mine.right, **{f"test {name}": text.encode() for name, text in mine.programs.items()}}

    async def _graded(self, task: Task, files: Mapping[str, bytes], backend: SandboxBackend, seed: int) -> Graded:
        mine = self._hidden[task.id]
        asked = {"programs": {**mine.programs, "": "raise AssertionError('canary')"}, "seed": seed}
        spec = SandboxSpec(files={**task.base, **files}, readonly={"programs.py": _RUNNER}, limits=task.limits)
        sandbox = await backend.create(spec)
        try:
            argv = ("python3", "-I", "-S", "/tools/programs.py")
            result = await sandbox.exec(Command(argv=argv, stdin=json.dumps(asked).encode()))
        finally:
            await sandbox.destroy()
        seen = _seen(result)
        passed = [name for name in mine.required if seen.get(name) == ""]
        failed = [f"{name}: {seen[name]}" for name in mine.required if seen.get(name)]
        evidence = Evidence(
            required=len(mine.required),
            executed=sum(name in seen for name in mine.required),
            passed=len(passed),
            canary_failed=bool(seen.get("")),
            processes_gone=True,
            channel="exception",
            isolation=await self._isolation_of(backend),
            notes=tuple(failed) or (f"ended with {result.exit_code}",),
        )
        return Graded(reward=float(len(passed) == len(mine.required) and evidence.canary_failed), evidence=evidence)

    async def _isolation_of(self, backend: SandboxBackend) -> str:
        if self._isolation is None:
            self._isolation = (await asyncio.to_thread(backend.probe)).isolation
        return self._isolation


def _seen(result: ExecResult) -> dict[str, str]:
    if result.exit_code or result.timed_out or result.omitted_bytes:
        return {}
    try:
        found = json.loads(result.stdout)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _hidden_parts() -> dict[str, Programs]:
    """Return the hidden part of each task by the name of what is wrong with it."""
    last = (date.today() + _EXPIRES_IN).isoformat()
    sometimes = {"sometimes": "assert random.random() < 0.6"}
    network = {"asks": "import socket\nsocket.create_connection(('192.0.2.1', 80), 2)"}
    dated = {"dated": f"import datetime\nassert datetime.date.today() < datetime.date.fromisoformat({last!r})"}
    return {
        "good": _of(_TESTS),
        "gold-fails": Programs(
            programs=_TESTS, required=tuple(_TESTS), right=b"def double(number):\n    return number * 3\n"
        ),
        "flaky": _of({**_TESTS, **sometimes}),
        "no-op-paid": _of(_WEAK),
        "missing-id": Programs(programs=_TESTS, required=(*_TESTS, "double_tenfold")),
        "needs-network": _of({**_TESTS, **network}),
        "expires": _of({**_TESTS, **dated}),
    }


def _of(programs: Mapping[str, str]) -> Programs:
    return Programs(programs=programs, required=tuple(programs))


def defective_environment() -> Environment:
    """Return the environment; the name of each task is the defect that an audit has to find, "good" for the one without."""
    hidden = {f"defective/train/{name}": part for name, part in _hidden_parts().items()}
    tasks = [
        Task(id=name, prompt="Fix double.", base={FILE: BUGGY}, editable=(FILE,), limits=_LIMITS) for name in hidden
    ]
    return Environment(
        name="defective",
        version="1",
        tasks=TaskList(tasks),
        harness=LineEditHarness(file=FILE, test_argv=("python3", "-m", "py_compile", FILE)),
        verifier=ProgramVerifier(hidden),
        tools={},
    )
