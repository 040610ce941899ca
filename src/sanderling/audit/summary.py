"""From results of tasks to results of the environment: counts that are added up, with their intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sanderling.audit.findings import CheckResult, Outcome, not_applicable, not_measured
from sanderling.audit.intervals import counted, lower_bound, upper_bound
from sanderling.audit.rates import Judged
from sanderling.types import Task

MOST_ALPHA = 0.05
LEAST_KILLED, LEAST_KILLED_LOW = 0.90, 0.80
LEAST_REWRITES = 0.95
_COST_SHARE = 0.5


def counts(results: Sequence[CheckResult], check: str) -> tuple[int, int]:
    """Return (trials, events) of all tasks together."""
    of_tasks = [result for result in results if result.check == check and result.task]
    return sum(result.n for result in of_tasks), sum(result.events for result in of_tasks)


def judged(results: Sequence[CheckResult]) -> Judged:
    """Return distinct submissions of known truth: wrong patches, the right solution of each task, its
    rewrites, and honest fixes. Attacks aren't among them: alpha is about natural failures."""
    wrong, paid = counts(results, "wrong-patches")
    rewrites, refused = counts(results, "rewrites")
    gold = [result for result in results if result.check == "gold" and result.task]
    gold_refused = sum(result.outcome is Outcome.FAILED for result in gold)
    honest = [result for result in results if result.check == "honest"]
    right = rewrites + len(gold) + sum(result.n for result in honest)
    right_paid = right - refused - gold_refused - sum(result.events for result in honest)
    return Judged(right=right, right_paid=right_paid, wrong=wrong, wrong_paid=paid)


def flake(results: Sequence[CheckResult]) -> tuple[int, int, float]:
    """Return (runs, flips, one-sided 95 % bound of the share) of right work graded again and again."""
    totals = [counts(results, check) for check in ("gold", "flake")]
    runs, flips = (sum(total[i] for total in totals) for i in range(2))
    return runs, flips, upper_bound(flips, runs) if runs else 1.0


def pooled(
    results: Sequence[CheckResult], seconds: Sequence[float], tasks: Sequence[Task], only: frozenset[str]
) -> list[CheckResult]:
    """Return the results of the environment that follow from those of its tasks."""
    makers: dict[str, Callable[[], CheckResult]] = {
        "mutation": lambda: _mutation(*counts(results, "mutation")),
        "wrong-patches": lambda: _alpha(*counts(results, "wrong-patches")),
        "rewrites": lambda: _beta(*counts(results, "rewrites")),
        "flake": lambda: _flake(*flake(results)),
        "cost": lambda: _cost(seconds, tasks),
        "solvable": lambda: not_measured("solvable", "needs a person or several solvers; no program can tell"),
        "judge": lambda: not_applicable("judge", "no model judges: verdicts come from programs"),
    }
    return [make() for name, make in makers.items() if not only or name in only]


def _mutation(n: int, survivors: int) -> CheckResult:
    if n == 0:
        return not_applicable("mutation", "no task has mutants of its patched lines")
    killed = counted(n - survivors, n)
    reason = f"{n - survivors} of {n} changes of patched lines noticed; lower 95 % {killed.low:.1%}"
    common: dict[str, Any] = {"check": "mutation", "n": n, "events": survivors, "rate": killed, "reason": reason}
    if killed.high < LEAST_KILLED:
        return CheckResult(outcome=Outcome.FAILED, defect="weak-tests", **common)
    enough = (n - survivors) / n >= LEAST_KILLED and killed.low >= LEAST_KILLED_LOW
    return CheckResult(outcome=Outcome.PASSED if enough else Outcome.NOTED, **common)


def _alpha(n: int, paid: int) -> CheckResult:
    if n == 0:
        return not_applicable("wrong-patches", "no task has wrong patches")
    reason = f"alpha = {paid / n:.2%} of {n} wrong patches; one-sided 95 % bound {upper_bound(paid, n):.2%}"
    common: dict[str, Any] = {
        "check": "wrong-patches",
        "n": n,
        "events": paid,
        "rate": counted(paid, n),
        "reason": reason,
    }
    if paid / n > MOST_ALPHA and lower_bound(paid, n) > 0:
        return CheckResult(outcome=Outcome.FAILED, defect="wrong-patch-paid", **common)
    return CheckResult(outcome=Outcome.PASSED, **common)


def _beta(n: int, refused: int) -> CheckResult:
    if n == 0:
        return not_applicable("rewrites", "no task has rewrites")
    reason = f"beta = {refused / n:.2%} of {n} rewrites; one-sided 95 % bound {upper_bound(refused, n):.2%}"
    common: dict[str, Any] = {
        "check": "rewrites",
        "n": n,
        "events": refused,
        "rate": counted(refused, n),
        "reason": reason,
    }
    narrow = (n - refused) / n < LEAST_REWRITES
    return CheckResult(
        outcome=Outcome.FAILED if narrow else Outcome.PASSED, defect="over-narrow" if narrow else "", **common
    )


def _flake(runs: int, flips: int, bound: float) -> CheckResult:
    if runs == 0:
        return not_measured("flake", "nothing was graded again")
    reason = f"{flips} flips in {runs} gradings; one-sided 95 % bound {bound:.2%}"
    outcome = Outcome.FAILED if flips else Outcome.PASSED
    defect = "flaky" if flips else ""
    return CheckResult(
        check="flake", outcome=outcome, n=runs, events=flips, rate=counted(flips, runs), defect=defect, reason=reason
    )


def _cost(seconds: Sequence[float], tasks: Sequence[Task]) -> CheckResult:
    if not seconds or not tasks:
        return not_measured("cost", "nothing was graded")
    middle, high = (float(np.quantile(seconds, share)) for share in (0.5, 0.95))
    budget = _COST_SHARE * min(task.limits.grading_s for task in tasks)
    reason = f"{len(seconds)} gradings: median {middle:.2f} s, 95 % below {high:.2f} s, budget {budget:g} s"
    slow = sum(spent > budget for spent in seconds)
    common: dict[str, Any] = {
        "check": "cost",
        "n": len(seconds),
        "events": slow,
        "rate": counted(slow, len(seconds)),
        "reason": reason,
    }
    return CheckResult(
        outcome=Outcome.FAILED if high > budget else Outcome.PASSED, defect="slow" if high > budget else "", **common
    )
