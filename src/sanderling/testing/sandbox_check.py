"""The vocabulary of the sandbox conformance suite: a check, its outcome, a report, and how code gets into a sandbox.

A check is a coroutine function of a backend. It returns when all is well, raises `Breach` when an attack reached what it
must not reach, `Violation` when the protocol wasn't kept, and `NotApplicable` when this machine can't show it either way.

Code that has to run inside is written as an ordinary function of this package (so it is linted like everything else) and
travels as its source: it imports what it needs in its body, takes JSON values and returns a JSON value. Only the standard
library is used, under `python3 -I -S`.
"""

from __future__ import annotations

import inspect
import json
import os
import textwrap
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from sanderling.sandbox.protocol import Capabilities, Command, ExecResult, Kept, Sandbox, SandboxBackend, SandboxSpec
from sanderling.types import JsonValue, Limits

REPORT_MARK = "@report "
SMALL = Limits(command_s=15.0, command_cpu_s=5.0, output_bytes=4096, disk_mb=16, memory_mb=256, processes=32)


class Breach(AssertionError):
    """An attack succeeded; the message is the evidence."""


class Violation(AssertionError):
    """The sandbox protocol was not kept; the message says what was expected and what came."""


class NotApplicable(Exception):
    """This machine or user can't plant what the check needs; the message says what is missing."""


class Kind(StrEnum):
    ATTACK = "attack"
    CONTRACT = "contract"


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    OPEN = "open"  # the backend declares that it doesn't contain this
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One property that a backend must have."""

    id: str
    kind: Kind
    description: str
    run: Callable[[SandboxBackend], Awaitable[None]]
    dangerous: bool = (
        False  # could disturb the host when nothing contains it: runs only in the contained helper process
    )
    ends_backend: bool = False  # closes the backend: gets one of its own

    def __str__(self) -> str:
        return self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What became of one check."""

    id: str
    outcome: Outcome
    reason: str = ""  # why it is failed, open or skipped
    evidence: str = ""  # what an attack reached; also filled where the risk is declared open
    duration_s: float = 0.0

    def raise_if_failed(self) -> None:
        """Raise AssertionError when the outcome is FAILED; open and skipped ones pass silently."""
        if self.outcome is Outcome.FAILED:
            raise AssertionError(f"{self.id}: {self.reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The outcome of every check that was asked for, in the order of the suite."""

    capabilities: Capabilities
    results: tuple[CheckResult, ...]
    contained_by: str  # namespaces of the helper process, or why there were none

    def __getitem__(self, check_id: str) -> CheckResult:
        for result in self.results:
            if result.id == check_id:
                return result
        raise KeyError(f"no result for check {check_id!r}; this report holds {[r.id for r in self.results]}")

    def of(self, outcome: Outcome) -> tuple[CheckResult, ...]:
        return tuple(result for result in self.results if result.outcome is outcome)

    def counts(self) -> Mapping[Outcome, int]:
        """Return the number of checks by outcome; the four add up to `len(results)`."""
        found = Counter(result.outcome for result in self.results)
        return {outcome: found[outcome] for outcome in Outcome}

    def raise_for_failures(self) -> None:
        """Raise one AssertionError that lists every failed check."""
        failed = self.of(Outcome.FAILED)
        if failed:
            lines = "\n".join(f"  {result.id}: {result.reason}" for result in failed)
            raise AssertionError(f"{len(failed)} of {len(self.results)} sandbox checks failed:\n{lines}")


def attack(run: Callable[[SandboxBackend], Awaitable[None]], *, dangerous: bool = False) -> Check:
    """Make a check of an attack; its id is the function's name, its description the first line of the docstring."""
    return Check(id=_id(run), kind=Kind.ATTACK, description=_first_line(run), run=run, dangerous=dangerous)


def contract(run: Callable[[SandboxBackend], Awaitable[None]], *, ends_backend: bool = False) -> Check:
    """Make a check of the protocol, as `attack` does."""
    return Check(id=_id(run), kind=Kind.CONTRACT, description=_first_line(run), run=run, ends_backend=ends_backend)


def _id(run: Callable[..., object]) -> str:
    return str(getattr(run, "__name__", run))


def _first_line(run: Callable[..., object]) -> str:
    return (inspect.getdoc(run) or "").split("\n", 1)[0]


@asynccontextmanager
async def sandbox_of(
    backend: SandboxBackend,
    files: Mapping[str, bytes] | None = None,
    *,
    readonly: Mapping[str, bytes] | None = None,
    limits: Limits = SMALL,
    kept: Kept = Kept.NOTHING,
) -> AsyncGenerator[Sandbox]:
    """Create a sandbox and destroy it at the end, whatever happened."""
    sandbox = await backend.create(SandboxSpec(files=files or {}, readonly=readonly or {}, limits=limits, kept=kept))
    try:
        yield sandbox
    finally:
        await sandbox.destroy()


def program(function: Callable[..., JsonValue]) -> str:
    """Return a complete program that calls `function` with the JSON list in its first argument and reports the answer."""
    source = textwrap.dedent(inspect.getsource(function))
    call = f"{_id(function)}(*json.loads(sys.argv[1]))"
    report = f"sys.stdout.write('\\n{REPORT_MARK}' + json.dumps({call}) + '\\n')"
    return f"from __future__ import annotations\nimport json, sys\n{source}\n{report}\n"


def python_command(function: Callable[..., JsonValue], *args: JsonValue, timeout_s: float | None = None) -> Command:
    argv = ("python3", "-I", "-S", "-c", program(function), json.dumps(args))
    return Command(argv=argv, timeout_s=timeout_s)


async def run_inside(
    sandbox: Sandbox, function: Callable[..., JsonValue], *args: JsonValue, timeout_s: float | None = None
) -> JsonValue:
    """Run `function(*args)` inside and return what it returned.

    Raises:
        Violation: it didn't come to its end, so nothing is known about what it tried.
    """
    return reported(await sandbox.exec(python_command(function, *args, timeout_s=timeout_s)))


def reported(result: ExecResult) -> JsonValue:
    """Return the value that a program made by `program` reported."""
    for line in reversed(result.stdout.decode("utf-8", "replace").splitlines()):
        if line.startswith(REPORT_MARK):
            return json.loads(line.removeprefix(REPORT_MARK))
    raise Violation(
        "the program inside didn't report, so the check proves nothing: "
        f"exit code {result.exit_code}, timed out: {result.timed_out}, stderr {result.stderr[-300:]!r}"
    )


def expect(condition: object, message: str) -> None:
    """Raise `Violation(message)` unless the condition holds."""
    if not condition:
        raise Violation(message)


def expect_equal(found: object, expected: object, what: str) -> None:
    """Raise `Violation` naming both values unless they are equal."""
    if found != expected:
        raise Violation(f"{what}: expected {_short(expected)}, got {_short(found)}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:140]}...{text[-140:]} ({len(text)} characters)"


def processes_with(token: str) -> list[int]:
    """Return the ids of live processes of this machine whose command line holds `token` (ours excluded)."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command_line = (entry / "cmdline").read_bytes()
            except OSError:
                continue  # ended meanwhile
            if token.encode() in command_line:
                found.append(int(entry.name))
    return found


@dataclass(slots=True)
class Growth:
    """Sizes of one file seen at different moments, to tell whether somebody still writes to it."""

    path: str
    sizes: list[int] = field(default_factory=list)

    async def look(self, sandbox: Sandbox) -> None:
        self.sizes.append(len(await sandbox.read_file(self.path)))

    @property
    def still(self) -> bool:
        return len(set(self.sizes)) == 1


def joined(values: Sequence[object]) -> str:
    return ", ".join(str(value) for value in values)
