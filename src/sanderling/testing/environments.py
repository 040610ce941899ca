"""Small environments for tests: the calc repository, whose `add` subtracts, in memory and judged by a rule."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sanderling.environment import Environment
from sanderling.errors import TaskError, VerifierError
from sanderling.harness.line_edit import LineEditHarness
from sanderling.sandbox.protocol import Command, ExecResult, SandboxBackend
from sanderling.testing.sandboxes import MemoryBackend, result
from sanderling.types import Evidence, Graded, Limits, Submission, Task

BUGGY = b"def add(a, b):\n    return a - b\n"
FIXED = b"def add(a, b):\n    return a + b\n"
FIX = "set 2 | return a + b"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalcTasks:
    """`count` copies of the calc task in each of the splits train and held-out."""

    count: int = 4
    limits: Limits = field(default_factory=Limits)

    def splits(self) -> tuple[str, ...]:
        return ("train", "held-out")

    def ids(self, split: str) -> Sequence[str]:
        if split not in self.splits():
            raise TaskError(f"calc has no split {split!r}; it has train and held-out")
        return [f"calc/{split}/{number}" for number in range(self.count)]

    def get(self, task_id: str) -> Task:
        return Task(
            id=task_id, prompt="Fix add.", base={"calc.py": BUGGY}, editable=("calc.py",), limits=replace(self.limits)
        )


@dataclass(slots=True, kw_only=True)
class RuleVerifier:
    """Pays 1 when calc.py is `FIXED`, to the byte. `crashes` gradings raise VerifierError first; -1: all of them."""

    crashes: int = 0
    delay_s: float = 0.0

    async def grade(self, task: Task, submission: Submission, backend: SandboxBackend, seed: int) -> Graded:
        await asyncio.sleep(self.delay_s)
        if self.crashes:
            self.crashes -= self.crashes > 0
            raise VerifierError("crashed on request of the test")
        right = submission.files.get("calc.py") == FIXED
        evidence = Evidence(
            required=1,
            executed=1,
            passed=int(right),
            canary_failed=True,
            processes_gone=True,
            channel="rule",
            isolation="none",
        )
        return Graded(reward=float(right), evidence=evidence)

    async def control(self, task: Task, backend: SandboxBackend, seed: int) -> Graded:
        return await self.grade(task, Submission(files={"calc.py": FIXED}), backend, seed)


def calc_commands(command: Command, files: dict[str, bytes]) -> ExecResult:
    """Answer the visible tests of calc."""
    right = files.get("calc.py") == FIXED
    return result("ok 1 of 1" if right else "ok 0 of 1\nadd(1, 2) = -1 want 3", exit_code=0 if right else 1)


def calc_environment(
    *, count: int = 4, limits: Limits | None = None, verifier: RuleVerifier | None = None
) -> Environment:
    """Return the calc environment; run it on `MemoryBackend(commands=calc_commands)`."""
    return Environment(
        name="calc",
        version="1",
        tasks=CalcTasks(count=count, limits=limits or Limits()),
        harness=LineEditHarness(file="calc.py", test_argv=("test",)),
        verifier=verifier or RuleVerifier(),
        tools={},
    )


def memory_backend() -> MemoryBackend:
    """Return the backend that `calc_environment` runs on; name it sanderling.testing.environments:memory_backend."""
    return MemoryBackend(commands=calc_commands)
