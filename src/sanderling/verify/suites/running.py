"""One run of a compiled suite on a workspace, in a fresh sandbox."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from sanderling.sandbox.protocol import PYTHON, Command, ExecResult, SandboxBackend, SandboxSpec
from sanderling.types import JsonValue
from sanderling.verify.suites.judging import Failure, judge
from sanderling.verify.suites.programs import grading_tools
from sanderling.verify.suites.recording import Channel, Editions, Recording, Suite
from sanderling.verify.suites.reports import SuiteReport, read_suite_report

_ARGV = (*PYTHON, "/tools/runner.py")
_OUTPUT_BYTES = 32 << 20
_SLOWER = 10.0  # times as long as the right solution may a submission take
_LEAST_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRun:
    """What one run showed."""

    report: SuiteReport
    result: ExecResult

    @property
    def clean(self) -> bool:
        """The run ended by itself, in time, and all that it said was read."""
        ended = self.result.exit_code == 0 and not self.result.timed_out and self.result.omitted_bytes == 0
        return ended and self.report.started and self.report.done and not self.report.notes


def seconds_for(recording: Recording) -> float:
    """Return the processor seconds that one run of a suite may take."""
    return max(_LEAST_S, _SLOWER * recording.gold_s)


async def run_files(
    backend: SandboxBackend,
    workspace: Mapping[str, bytes],
    request: Mapping[str, JsonValue],
    suite: Suite,
    cpu_s: float,
) -> SuiteRun:
    """Run test files of a workspace.

    Args:
        workspace: all files, tests included.
        request: "files", "roots" and "only", as the runner has them.
        suite: its environment and limits; the output may be larger than an agent's, the time is that of grading.
        cpu_s: processor seconds.

    Raises:
        SandboxLost, SandboxBroken: as the sandbox says.
    """
    nonce = secrets.token_hex(16)
    seconds = suite.limits.grading_s
    limits = replace(suite.limits, output_bytes=_OUTPUT_BYTES, command_s=seconds, command_cpu_s=cpu_s)
    spec = SandboxSpec(files=workspace, readonly=grading_tools(), limits=limits, env=suite.env)
    sandbox = await backend.create(spec)
    try:
        stdin = json.dumps({**request, "nonce": nonce}).encode()
        result = await sandbox.exec(Command(argv=_ARGV, stdin=stdin))
    finally:
        await sandbox.destroy()
    report = await asyncio.to_thread(read_suite_report, result.stdout, nonce, request["only"])
    return SuiteRun(report=report, result=result)


class Extent(StrEnum):
    """How much of a suite is run."""

    ALL = "all"
    UNTIL_FAILURE = "until_failure"  # a second edition can't pay what the first one denied


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteResult:
    """What a workspace showed of a whole suite."""

    failures: Mapping[str, Failure | None]  # by id, of tests that were run; None: passed
    runs: Mapping[Channel, SuiteRun]
    canary_failed: bool


async def grade_workspace(
    backend: SandboxBackend,
    workspace: Mapping[str, bytes],
    editions: Editions,
    recording: Recording,
    suite: Suite,
    extent: Extent = Extent.ALL,
) -> SuiteResult:
    """Run both editions of a suite on a workspace and judge every test.

    Each edition has a canary, a test of its own that has to fail: reported as passed, it shows a runner that was tampered
    with; not reported, that not everything ran.

    Args:
        workspace: the files under test; hidden tests are put over them.
        suite: its module roots, environment and limits.
        extent: whether the second edition runs when the first one has decided; tests of it then have no result.

    Raises:
        SandboxLost, SandboxBroken: as the sandbox says.
    """
    failures: dict[str, Failure | None] = {}
    runs: dict[Channel, SuiteRun] = {}
    canaries = True
    for channel in Channel:
        keys = editions.keys[channel]
        if not keys:
            continue
        files = sorted({key.partition("::")[0] for key in keys})
        canary, place, source = _canary(files[0])
        tree = {**workspace, **editions.files[channel], place: source}
        request = {"files": [*files, place], "roots": suite.modules, "only": [*keys, canary]}
        run = runs[channel] = await run_files(backend, tree, request, suite, seconds_for(recording))
        answer = run.report.tests.get(canary)
        canaries &= answer is not None and str(answer.get("end")) == "call failed"
        for test in recording.tests.values():
            checks = test.checks(channel)
            if checks is not None and failures.get(test.id) is None:
                answer = run.report.tests.get(test.key)
                failures[test.id] = await asyncio.to_thread(judge, answer, checks, editions.sites[test.file])
        if extent is Extent.UNTIL_FAILURE and (not canaries or any(failures.values())):
            break
    return SuiteResult(failures=failures, runs=runs, canary_failed=canaries and bool(runs))


def _canary(beside: str) -> tuple[str, str, bytes]:
    """Return key, place and source of a test that fails and looks like any other one."""
    name, value = f"test_{secrets.token_hex(4)}", secrets.token_hex(8)
    place = "/".join([*beside.split("/")[:-1], f"{name}.py"])
    source = f"def {name}():\n    value = {value[::-1]!r}\n    assert value == {value!r}\n"
    return f"{place}::{name}#0", place, source.encode()
