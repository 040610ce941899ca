"""Checks of one task with work that is right: it has to be paid, whoever wrote it and whenever it is graded."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

from sanderling.audit.bench import Attempt
from sanderling.audit.findings import CheckResult, Outcome, not_applicable, not_measured
from sanderling.audit.instruments import TappedBackend, Watched, shifted_clock
from sanderling.audit.intervals import counted, flake_bound
from sanderling.audit.patches import rewrites
from sanderling.audit.subject import Subject
from sanderling.types import Evidence

NETWORK = re.compile(
    r"gaierror|name or service not known|name resolution|network is unreachable|could not resolve host|URLError"
    r"|connection refused|ConnectionError|getaddrinfo|no route to host|Errno 101\b|Errno 111\b",
    re.IGNORECASE,
)
_YEARS_BACK = (1, 3, 10)
_YEARS_ON = (1, 10)
_YEAR_DAYS = 365.25
_LEAST_REWRITES_PAID = 0.95


async def gold(subject: Subject) -> CheckResult:
    """The right solution is paid in every run, each with a seed of its own. Names the defect where it isn't."""
    k = subject.depth.gold_runs
    attempts = await asyncio.gather(*(subject.right("gold", i) for i in range(k)))
    refused = [attempt for attempt in attempts if not attempt.full]
    share = counted(len(refused), k)
    common: dict[str, Any] = {"check": "gold", "task": subject.task.id, "n": k, "events": len(refused), "rate": share}
    if not refused:
        bound = flake_bound(k)
        reason = f"paid in {k} of {k} runs: excludes refusals of right work above {bound:.1%} (95 %)"
        return CheckResult(outcome=Outcome.PASSED, reason=reason, **common)
    if len(refused) < k:
        reason = f"paid in {k - len(refused)} of {k} runs: {refused[0].why()}"
        return CheckResult(outcome=Outcome.FAILED, defect="flaky", reason=reason, **common)
    defect, reason = await _cause(subject, attempts)
    return CheckResult(outcome=Outcome.FAILED, defect=defect, reason=reason, **common)


async def _cause(subject: Subject, attempts: Sequence[Attempt]) -> tuple[str, str]:
    """Return why the right solution is never paid: a name and a line."""
    watched = Watched()
    seen = await subject.right("cause", backend=TappedBackend(subject.bench.backend, watched.tap()))
    notes = seen.evidence.notes if seen.evidence else ()
    said = "\n".join((seen.problem, *notes, watched.said()))
    if seen.untouched_paid:
        return "no-op-paid", seen.why()
    if found := NETWORK.search(said):
        return "needs-network", f"its tests ask for a network that no sandbox has ({found[0]}): {seen.why()}"
    for years in _YEARS_BACK:
        past = await _at(subject, -years * _YEAR_DAYS)
        if past.full:
            return "expires", f"never paid today, paid with the clock {years} years back: {seen.why()}"
    if seen.evidence and _lacks_checks(seen.evidence):
        return "missing-id", f"{seen.evidence.executed} of {seen.evidence.required} required checks ran: {seen.why()}"
    return "gold-fails", f"paid in 0 of {len(attempts)} runs: {seen.why()}"


def _lacks_checks(evidence: Evidence) -> bool:
    """Whether everything that ran passed, and something that is required didn't run."""
    return 0 < evidence.executed < evidence.required and evidence.passed == evidence.executed


async def _at(subject: Subject, days: float) -> Attempt:
    backend = TappedBackend(subject.bench.backend, shifted_clock(days))
    return await subject.right("clock", backend=backend)


async def evidence(subject: Subject) -> CheckResult:
    """The verdict on the right solution says that each required check ran once and passed, and that a canary failed."""
    name, task = "evidence", subject.task.id
    attempt = await subject.right(name)
    if attempt.reward is None:
        return not_measured(name, f"the right solution is ungraded: {attempt.why()}", task)
    found = attempt.evidence
    if found is None:
        return not_measured(name, "its verdicts carry no evidence", task)
    wrong = [
        text
        for text, bad in (
            (f"{found.executed} of {found.required} required checks ran", found.executed != found.required),
            (f"{found.passed} of {found.required} required checks passed", found.passed != found.required),
            ("nothing is required", found.required < 1),
            ("no canary failed: tests that never fail would look the same", not found.canary_failed),
            ("processes were alive", not found.processes_gone),
        )
        if bad
    ]
    if wrong:
        defect = "missing-id" if found.executed < found.required else "weak-evidence"
        return CheckResult(
            check=name, task=task, outcome=Outcome.FAILED, n=1, events=1, defect=defect, reason="; ".join(wrong)
        )
    reason = f"{found.required} checks required, run and passed over the channel {found.channel!r}; a canary failed"
    return CheckResult(check=name, task=task, outcome=Outcome.PASSED, n=found.required, reason=reason)


async def otherwise_written(subject: Subject) -> CheckResult:
    """Rewrites that change nothing about behaviour are paid: the share refused is beta."""
    name, task = "rewrites", subject.task.id
    if subject.solution is None:
        return not_measured(name, subject.undisclosed, task)
    found = rewrites(subject.solution)
    if not found:
        return not_applicable(name, "the right solution changes no Python file", task)
    attempts = await asyncio.gather(*(subject.grade(patch.files, name, i) for i, patch in enumerate(found)))
    refused = [(patch, attempt) for patch, attempt in zip(found, attempts, strict=True) if not attempt.full]
    share = counted(len(refused), len(found))
    common: dict[str, Any] = {"check": name, "task": task, "n": len(found), "events": len(refused), "rate": share}
    if not refused:
        return CheckResult(
            outcome=Outcome.PASSED, reason=f"{len(found)} of {len(found)} ways of writing paid", **common
        )
    first, attempt = refused[0]
    reason = f"{len(refused)} of {len(found)} refused, first {first.description!r}: {attempt.why()}"
    narrow = len(found) - len(refused) < _LEAST_REWRITES_PAID * len(found)
    return CheckResult(
        outcome=Outcome.FAILED if narrow else Outcome.NOTED, defect="over-narrow", reason=reason, **common
    )


async def later(subject: Subject) -> CheckResult:
    """The right solution is paid with the clock one and ten years on, where a moved clock can be tried at all."""
    name, task = "clock", subject.task.id
    if not (await _at(subject, 0.0)).full:
        return not_measured(
            name, "the right solution isn't paid under a clock that can be moved, not even at today", task
        )
    attempts = await asyncio.gather(*(_at(subject, years * _YEAR_DAYS) for years in _YEARS_ON))
    failing = [(years, attempt) for years, attempt in zip(_YEARS_ON, attempts, strict=True) if not attempt.full]
    common: dict[str, Any] = {"check": name, "task": task, "n": len(attempts), "events": len(failing)}
    if failing:
        years, attempt = failing[0]
        reason = f"refused with the clock {years} years on: {attempt.why()}"
        return CheckResult(outcome=Outcome.FAILED, defect="expires", reason=reason, **common)
    years = " and ".join(map(str, _YEARS_ON))
    return CheckResult(outcome=Outcome.PASSED, reason=f"paid with the clock {years} years on", **common)
