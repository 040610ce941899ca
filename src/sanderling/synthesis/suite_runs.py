"""One run of a code base's suite in a sandbox, and what it said."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from sanderling.sandbox.protocol import Command, Sandbox, SandboxBackend, SandboxSpec
from sanderling.synthesis.layout import Layout
from sanderling.types import Limits
from sanderling.verify.suites.programs import agent_tools

SUITE_LIMITS = Limits(
    command_s=600.0, command_cpu_s=300.0, output_bytes=128 << 20, disk_mb=128, memory_mb=2048, processes=128
)
"""For runs of whole suites: a report of which lines each test reaches takes some megabytes."""
_PROGRAM = Path(__file__).with_name("suite_program.py")


class Outcome(StrEnum):
    """How one test ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    XFAILED = "xfailed"
    CUT_OFF = "cut_off"  # it took more processor time than a test may


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a test failed."""

    type: str  # of the exception
    message: str
    frames: tuple[tuple[str, int, str], ...]  # (file of the workspace, line, function), outermost first


@dataclass(frozen=True, slots=True, kw_only=True)
class TestEnd:
    """One test of a run."""

    __test__ = False  # for pytest, which takes classes of this name for tests

    id: str
    outcome: Outcome
    seconds: float  # wall
    cpu_s: float
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRun:
    """What a run said. `complete` is False where the program was cut off or died before it could say anything."""

    complete: bool
    tests: tuple[TestEnd, ...]
    broken: tuple[str, ...] = ()  # files that could not be collected
    stopped: str = ""
    reach: Mapping[str, Mapping[int, tuple[str, ...]]] | None = None  # ids by line by source file
    said: str = ""  # how the program ended where it isn't complete


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRequest:
    """Which tests to run, and how."""

    files: tuple[str, ...]
    seed: int  # of the order of tests and of hashes
    only: tuple[str, ...] | None = None  # ids; None: all
    trace: tuple[str, ...] | None = None  # source files whose lines are traced
    most_failures: int = 1_000_000
    test_cpu_s: float = 30.0
    timeout_s: float | None = None


class SuiteSandboxes:
    """Sandboxes that hold one code base and the runner: one is filled, the others are forks of it."""

    def __init__(self, backend: SandboxBackend, files: Mapping[str, bytes], layout: Layout) -> None:
        self._backend = backend
        self._files = files
        self._layout = layout
        self._base: Sandbox | None = None
        self._lock = asyncio.Lock()

    async def run(self, request: SuiteRequest, changed: Mapping[str, bytes] | None = None) -> SuiteRun:
        """Run tests in a fresh copy, with some files changed.

        Raises:
            SandboxLost, SandboxUnavailable: our side failed.
        """
        async with self.sandbox() as sandbox:
            for path, content in (changed or {}).items():
                await sandbox.write_file(path, content)
            return await self._run_in(sandbox, request)

    @asynccontextmanager
    async def sandbox(self) -> AsyncGenerator[Sandbox]:
        """Give a copy, which is destroyed at the end."""
        async with self._lock:
            if self._base is None:
                spec = SandboxSpec(files=self._files, readonly=suite_tools(), limits=SUITE_LIMITS)
                self._base = await self._backend.create(spec)
            sandbox = await self._base.fork()
        try:
            yield sandbox
        finally:
            await sandbox.destroy()

    async def close(self) -> None:
        """Destroy the filled sandbox. May be called twice."""
        if self._base is not None:
            await self._base.destroy()
            self._base = None

    async def _run_in(self, sandbox: Sandbox, request: SuiteRequest) -> SuiteRun:
        data = {
            "files": list(request.files),
            "only": None if request.only is None else list(request.only),
            "roots": list(self._layout.roots),
            "seed": request.seed,
            "sources": None if request.trace is None else list(request.trace),
            "most_failures": request.most_failures,
            "test_cpu_s": request.test_cpu_s,
        }
        command = Command(
            argv=("python3", "/tools/suite_program.py"),
            stdin=json.dumps(data).encode(),
            env={"PYTHONHASHSEED": str(request.seed % 4_294_967_296)},
            timeout_s=request.timeout_s,
        )
        result = await sandbox.exec(command)
        try:
            return _parsed(json.loads(result.stdout))
        except (ValueError, KeyError, TypeError):
            ended = "was cut off" if result.timed_out else f"ended with exit code {result.exit_code}"
            said = result.stderr[-500:].decode(errors="replace")
            return SuiteRun(complete=False, tests=(), said=f"the run {ended} {said}".strip())


@cache
def suite_tools() -> Mapping[str, bytes]:
    """Return the files at /tools with which a suite is run.

    Raises:
        ConfigError: pytest isn't installed here.
    """
    return {**agent_tools(), "suite_program.py": _PROGRAM.read_bytes()}


def _parsed(answer: Any) -> SuiteRun:
    tests = tuple(
        TestEnd(
            id=test["id"],
            outcome=Outcome(test["outcome"]),
            seconds=test["seconds"],
            cpu_s=test["cpu_s"],
            failure=_failure(test["error"]),
        )
        for test in answer["tests"]
    )
    reach = answer["reach"]
    if reach is not None:
        reach = {path: {int(n): _named(tests, found) for n, found in lines.items()} for path, lines in reach.items()}
    broken = tuple(name for name, _ in answer["broken"])
    return SuiteRun(complete=True, tests=tests, broken=broken, stopped=answer["stopped"], reach=reach)


def _named(tests: Sequence[TestEnd], numbers: Sequence[int]) -> tuple[str, ...]:
    return tuple(tests[number].id for number in numbers)


def _failure(error: Any) -> Failure | None:
    if error is None:
        return None
    frames = tuple((str(file), int(line), str(name)) for file, line, name in error["frames"])
    return Failure(type=error["type"], message=error["message"], frames=frames)
