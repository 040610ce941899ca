"""Checks of one task with work that is wrong: nothing of it may be paid."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sanderling.audit.bench import Attempt
from sanderling.audit.findings import CheckResult, Outcome, not_applicable, not_measured
from sanderling.audit.intervals import counted, lower_bound
from sanderling.audit.patches import Patch, breakage, cosmetic, partial_fixes, wrong_patches
from sanderling.audit.subject import Subject
from sanderling.audit.visible import visible_exit_code

MOST_PAID = 0.05
LEAST_KILLED = 0.90
_SHOWN = 3


async def untouched(subject: Subject) -> CheckResult:
    """Doing nothing, a remark, and breaking what the solution changes all earn 0."""
    name, task = "no-op", subject.task.id
    idle, broken = [Patch(files={}, description="nothing")], []
    if subject.solution is not None:
        idle += cosmetic(subject.task, subject.solution)
        broken = breakage(subject.task, subject.solution)
    patches = [*idle, *broken]
    attempts = await asyncio.gather(*(subject.grade(patch.files, name, i) for i, patch in enumerate(patches)))
    paid = [i for i, attempt in enumerate(attempts) if attempt.paid or attempt.untouched_paid]
    ungraded = [a for a in attempts if a.reward is None and not a.untouched_paid]
    common: dict[str, Any] = {
        "check": name,
        "task": task,
        "n": len(patches),
        "rate": counted(len(paid), len(patches)),
    }
    if paid:
        defect = "ignores-submission" if paid[-1] >= len(idle) else "no-op-paid"
        reason = f"paid: {', '.join(patches[i].description for i in paid)}"
        return CheckResult(outcome=Outcome.FAILED, events=len(paid), defect=defect, reason=reason, **common)
    if ungraded and (await subject.right(name)).full:
        reason = f"{len(ungraded)} of {len(patches)} are ungraded though the grader works: {ungraded[0].why()}"
        defect = "agent-causes-ungraded"
        return CheckResult(outcome=Outcome.FAILED, events=len(ungraded), defect=defect, reason=reason, **common)
    return CheckResult(outcome=Outcome.PASSED, reason=f"reward 0 for all {len(patches)}", **common)


async def parts(subject: Subject) -> CheckResult:
    """Each hunk of the right solution is needed."""
    name, task = "hunks", subject.task.id
    if subject.solution is None:
        return not_measured(name, subject.undisclosed, task)
    patches = partial_fixes(subject.task, subject.solution)
    if not patches:
        return not_applicable(name, "the right solution is one hunk", task)
    attempts = await asyncio.gather(*(subject.grade(patch.files, name, i) for i, patch in enumerate(patches)))
    paid = [patch for patch, attempt in zip(patches, attempts, strict=True) if attempt.paid]
    common: dict[str, Any] = {
        "check": name,
        "task": task,
        "n": len(patches),
        "events": len(paid),
        "rate": counted(len(paid), len(patches)),
    }
    if len(paid) == len(patches):
        reason = "paid with any one hunk left out"
        return CheckResult(outcome=Outcome.FAILED, defect="partial-fix-paid", reason=reason, **common)
    if paid:
        reason = f"not guarded: {'; '.join(patch.description for patch in paid[:_SHOWN])}"
        return CheckResult(outcome=Outcome.NOTED, defect="partial-fix-paid", reason=reason, **common)
    return CheckResult(outcome=Outcome.PASSED, reason=f"each of {len(patches)} hunks is needed", **common)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """A mutant, what the first grading said, and what is known of it."""

    patch: Patch
    paid: bool  # by the first grading
    wrong: bool | None  # None: no grading and no visible test tells it from the right solution


async def bank(subject: Subject) -> tuple[CheckResult, CheckResult]:
    """Mutants of the right solution: the share of the patched region that is noticed, and the share of wrong ones paid.

    A mutant is known to be wrong when a grading refuses it or visible tests fail that pass with the right solution. One that is
    paid gets graded with further hidden inputs; what is paid each time is equivalent as far as can be told, is listed, and
    stands against the share that is noticed.
    """
    task = subject.task.id
    if subject.solution is None:
        return not_measured("mutation", subject.undisclosed, task), not_measured(
            "wrong-patches", subject.undisclosed, task
        )
    patches = await asyncio.to_thread(
        wrong_patches, subject.task, subject.solution, subject.depth.wrong_patches, subject.bench.seed
    )
    if not patches:
        why = "no Python function is changed, so that there is nothing to make mutants of"
        return not_applicable("mutation", why, task), not_applicable("wrong-patches", why, task)
    attempts = await asyncio.gather(*(subject.grade(patch.files, "bank", i) for i, patch in enumerate(patches)))
    usable = None
    if any(attempt.paid for attempt in attempts):
        usable = await _visible_tests_work(subject)
    judged = await asyncio.gather(
        *(
            _truth(subject, i, patch, attempt, usable)
            for i, (patch, attempt) in enumerate(zip(patches, attempts, strict=True))
        )
    )
    return _mutation(task, judged), _alpha(task, judged)


async def _truth(subject: Subject, number: int, patch: Patch, first: Attempt, visible: bool | None) -> _Judged:
    if not first.paid:
        return _Judged(patch=patch, paid=False, wrong=True)
    if visible and await visible_exit_code(subject, patch.files) != 0:
        return _Judged(patch=patch, paid=True, wrong=True)
    for again in range(subject.depth.extra_seeds):
        if not (await subject.grade(patch.files, f"bank {number}", again)).paid:
            return _Judged(patch=patch, paid=True, wrong=True)
    return _Judged(patch=patch, paid=True, wrong=None)


async def _visible_tests_work(subject: Subject) -> bool:
    return subject.solution is not None and await visible_exit_code(subject, subject.solution) == 0


def _mutation(task: str, judged: Sequence[_Judged]) -> CheckResult:
    name = "mutation"
    region = [mutant for mutant in judged if mutant.patch.in_region]
    if not region:
        return not_applicable(name, "no mutant changes the patched lines", task)
    survivors = [mutant for mutant in region if mutant.paid]
    killed = counted(len(region) - len(survivors), len(region))
    listed = "; ".join(mutant.patch.description for mutant in survivors[:_SHOWN])
    reason = f"{len(region) - len(survivors)} of {len(region)} noticed" + (
        f"; survivors: {listed}" if survivors else ""
    )
    common: dict[str, Any] = {
        "check": name,
        "task": task,
        "n": len(region),
        "events": len(survivors),
        "rate": killed,
        "reason": reason,
    }
    known = sum(mutant.wrong is True for mutant in survivors)
    if killed.high < LEAST_KILLED or known > MOST_PAID * len(region):
        return CheckResult(outcome=Outcome.FAILED, defect="weak-tests", **common)
    return CheckResult(outcome=Outcome.NOTED if survivors else Outcome.PASSED, **common)


def _alpha(task: str, judged: Sequence[_Judged]) -> CheckResult:
    name = "wrong-patches"
    wrong = [mutant for mutant in judged if mutant.wrong]
    paid = [mutant for mutant in wrong if mutant.paid]
    unknown = [mutant for mutant in judged if mutant.wrong is None]
    reason = f"{len(paid)} of {len(wrong)} wrong patches paid"
    if paid:
        reason += f": {'; '.join(mutant.patch.description for mutant in paid[:_SHOWN])}"
    if unknown:
        listed = "; ".join(mutant.patch.description for mutant in unknown[:_SHOWN])
        reason += f"; {len(unknown)} more are paid each time, equivalent as far as is known: {listed}"
    common: dict[str, Any] = {
        "check": name,
        "task": task,
        "n": len(wrong),
        "events": len(paid),
        "rate": counted(len(paid), len(wrong)),
    }
    weak = wrong and lower_bound(len(paid), len(wrong)) > MOST_PAID
    if weak:
        return CheckResult(outcome=Outcome.FAILED, defect="wrong-patch-paid", reason=reason, **common)
    return CheckResult(outcome=Outcome.NOTED if paid else Outcome.PASSED, reason=reason, **common)
