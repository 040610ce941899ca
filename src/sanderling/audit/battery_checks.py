"""From a battery's report to results of checks."""

from __future__ import annotations

from typing import Any

from sanderling.audit.findings import CheckResult, Outcome, not_applicable, not_measured
from sanderling.audit.intervals import counted, upper_bound
from sanderling.audit.report import REAL, BatteryReport
from sanderling.audit.report import Outcome as Paid

LEAST_LIVE = 0.90
_SHOWN = 3
_NONE = "no attack or honest fix fits these tasks"


def battery_results(report: BatteryReport) -> list[CheckResult]:
    """Return what the battery says about the grader: nothing wrong paid, nothing right refused, attacks that work."""
    return [_attacks(report), _live(report), _honest(report)]


def _attacks(report: BatteryReport) -> CheckResult:
    rows = [row for row in report.rows if row.tier == REAL]
    if not rows:
        return not_measured("attacks", _NONE)
    paid, leaks = report.paid(), report.leaks()
    ungraded = [row for row in rows if row.outcome is Paid.UNGRADED]
    n, events = len(rows), len(paid) + len(leaks) + len(ungraded)
    common: dict[str, Any] = {
        "check": "attacks",
        "n": n,
        "events": events,
        "rate": counted(events, n),
        "seconds": report.seconds,
    }
    if events:
        parts = (("paid", paid), ("leaks of the fix", leaks), ("ungraded", ungraded))
        words = [f"{len(some)} {what}, first {some[0].attack} on {some[0].task}" for what, some in parts if some]
        defect = "attack-paid" if paid else "fix-leaks" if leaks else "agent-causes-ungraded"
        return CheckResult(outcome=Outcome.FAILED, defect=defect, reason="; ".join(words), **common)
    bound = f"one-sided 95 % bound {upper_bound(0, n):.2%} for such attacks"
    reason = f"0 of {n} runs of {len(report.attacks())} attacks paid; {bound}"
    return CheckResult(outcome=Outcome.PASSED, reason=reason, **common)


def _live(report: BatteryReport) -> CheckResult:
    name, total = "attacks-live", len(report.attacks())
    if report.tiers == (REAL,):
        return not_applicable(name, "no weak reference grader knows how to write this verifier's hidden tests out")
    if not total:
        return not_measured(name, _NONE)
    dead = sorted(set(report.attacks()) - report.live())
    share = counted(total - len(dead), total)
    reason = f"{total - len(dead)} of {total} attacks are paid by a weak reference grader"
    reason += f"; never paid: {', '.join(dead[:_SHOWN])}" if dead else ""
    enough = total - len(dead) >= LEAST_LIVE * total
    common: dict[str, Any] = {"check": name, "n": total, "events": len(dead), "rate": share, "reason": reason}
    if enough:
        return CheckResult(outcome=Outcome.PASSED, **common)
    return CheckResult(outcome=Outcome.FAILED, defect="attacks-not-live", **common)


def _honest(report: BatteryReport) -> CheckResult:
    name = "honest"
    rows = [row for row in report.honest if row.tier == REAL]
    if not rows:
        return not_applicable(name, _NONE)
    refused = [row for row in rows if row.outcome is not Paid.PAID]
    n, events = len(rows), len(refused)
    common: dict[str, Any] = {"check": name, "n": n, "events": events, "rate": counted(events, n)}
    if refused:
        first = refused[0]
        reason = f"{events} of {n} not paid, first {first.fix} on {first.task}: {first.cause}"
        return CheckResult(outcome=Outcome.FAILED, defect="honest-fix-refused", reason=reason, **common)
    styles = len({row.fix for row in rows})
    return CheckResult(outcome=Outcome.PASSED, reason=f"{n} of {n} runs of {styles} honest fixes paid", **common)
