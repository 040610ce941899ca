"""The visible tests, as an agent runs them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sanderling.audit.findings import CheckResult, Outcome, not_applicable, not_measured
from sanderling.audit.subject import Subject
from sanderling.errors import SandboxError
from sanderling.sandbox.protocol import Command


async def visible_exit_code(subject: Subject, files: Mapping[str, bytes]) -> int | None:
    """Return how the visible tests end in an agent's sandbox with these files; None where there are none.

    Raises:
        SandboxError: the sandbox failed.
    """
    argv = subject.environment.test_argv
    if not argv:
        return None
    sandbox = await subject.bench.backend.create(subject.environment.sandbox_spec(subject.task))
    try:
        for setup in subject.task.setup:
            await sandbox.exec(Command(argv=setup, timeout_s=subject.task.limits.setup_s))
        for path, content in files.items():
            await sandbox.write_file(path, content)
        return (await sandbox.exec(Command(argv=argv))).exit_code
    finally:
        await sandbox.destroy()


async def visible_tests(subject: Subject) -> CheckResult:
    """The visible tests fail before the fix and pass with it. Where they don't see the bug, an agent can't learn by them."""
    name, task = "visible-tests", subject.task.id
    if not subject.environment.test_argv:
        return not_applicable(name, "the environment names no visible tests (Environment.test_argv)", task)
    try:
        before = await visible_exit_code(subject, {})
        after = None if subject.solution is None else await visible_exit_code(subject, subject.solution)
    except SandboxError as error:
        return not_measured(name, str(error), task)
    common: dict[str, Any] = {"check": name, "task": task, "n": 1 if after is None else 2}
    if after not in (None, 0):
        reason = f"they end with {after} on the right solution"
        return CheckResult(
            outcome=Outcome.NOTED, events=1, defect="visible-tests-refuse-right-work", reason=reason, **common
        )
    if before == 0:
        reason = "they pass before anything is done"
        return CheckResult(outcome=Outcome.NOTED, events=1, defect="weak-visible-tests", reason=reason, **common)
    return CheckResult(outcome=Outcome.PASSED, reason=f"they end with {before} before the fix", **common)
