"""The conformance suite as a command: `python -m sanderling.testing.sandbox_conformance [--backend NAME] [--check ID]`."""

from __future__ import annotations

import argparse
import asyncio
import sys
import warnings
from collections.abc import Sequence

from sanderling.errors import SanderlingError
from sanderling.sandbox.protocol import SandboxBackend
from sanderling.testing.sandbox_check import Outcome, Report
from sanderling.testing.sandbox_conformance import CHECKS, BackendFactory, run_conformance

_MARK = {Outcome.PASSED: "ok  ", Outcome.FAILED: "FAIL", Outcome.OPEN: "open", Outcome.SKIPPED: "skip"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite and write a table; return 0 if no check failed and at least one passed, else 1 (2: wrong arguments)."""
    parser = argparse.ArgumentParser(prog="python -m sanderling.testing.sandbox_conformance", description=__doc__)
    parser.add_argument("--backend", default="bubblewrap", help="bubblewrap, local, an entry point, or module:name")
    parser.add_argument("--check", action="append", metavar="ID", help="run only this check; may be repeated")
    parser.add_argument("--list", action="store_true", help="write the checks and end")
    chosen = parser.parse_args(arguments)
    if chosen.list:
        sys.stdout.writelines(f"{check.kind:8} {check.id:34} {check.description}\n" for check in CHECKS)
        return 0
    try:
        report = run_conformance(_factory(chosen.backend), ids=chosen.check)
    except (SanderlingError, ValueError, RuntimeError) as error:
        parser.error(str(error))
    sys.stdout.write(table(report))
    counts = report.counts()
    return 0 if counts[Outcome.PASSED] and not counts[Outcome.FAILED] else 1


def _factory(name: str) -> BackendFactory:
    from sanderling.assemble import load_backend

    def make() -> SandboxBackend:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what it doesn't contain stands in the table
            return load_backend(name)

    asyncio.run(make().close())  # a wrong name is said here, not by the helper process
    return make


def table(report: Report) -> str:
    """Return one line a check, then what the backend is and how many checks came out how."""
    lines = [
        f"{_MARK[result.outcome]} {result.id:34} {result.duration_s:6.2f} s  {' '.join(result.reason.split())[:160]}".rstrip()
        for result in report.results
    ]
    backend = report.capabilities
    lines.append("")
    lines.append(f"backend {backend.name}, mode {backend.mode}, isolation {backend.isolation}")
    lines.append(f"checks ran in: {report.contained_by}")
    lines.append(", ".join(f"{count} {outcome}" for outcome, count in report.counts().items()))
    return "\n".join(lines) + "\n"
