"""Admission: every check on an environment, a verdict per task, and one for the whole."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import zip_longest
from random import Random

from sanderling.audit import grader_checks, hostile, right_checks, sandbox_checks, summary, visible, wrong_checks
from sanderling.audit.bench import Bench
from sanderling.audit.findings import CATALOGUE, CheckResult, not_measured
from sanderling.audit.instruments import Tap, TappedBackend
from sanderling.audit.rates import Judged
from sanderling.audit.subject import Depth, Subject, subject_of
from sanderling.environment import Environment
from sanderling.sandbox.protocol import SandboxBackend
from sanderling.types import Task
from sanderling.verify.protocol import Verifier

TaskCheck = Callable[[Subject], Awaitable[CheckResult]]


async def _secrecy(subject: Subject) -> CheckResult:
    return sandbox_checks.in_the_task(subject)


async def _statement(subject: Subject) -> CheckResult:
    return sandbox_checks.in_the_prompt(subject)


ALWAYS: Mapping[str, TaskCheck] = {
    "no-op": wrong_checks.untouched,
    "secrecy": _secrecy,
    "statement": _statement,
    "git": sandbox_checks.history,
}
"""Checks of every task, whatever its right solution does."""
WITH_GOLD: Mapping[str, TaskCheck] = {
    "evidence": right_checks.evidence,
    "rewrites": right_checks.otherwise_written,
    "hunks": wrong_checks.parts,
    "clock": right_checks.later,
    "visible-tests": visible.visible_tests,
}
"""Checks of every task that mean something only where its right solution is paid. The bank of wrong patches is one more."""
SAMPLED: Mapping[str, TaskCheck] = {
    "flake": grader_checks.under_load,
    "hostile-diffs": hostile.hostile_diffs,
    "fresh-inputs": grader_checks.hidden_inputs,
    "fail-closed": grader_checks.faults,
    "resources": grader_checks.larger_limits,
    "determinism": grader_checks.same_seed,
}
"""Checks of the grader more than of a task: on a sample of tasks."""
_BANK = ("mutation", "wrong-patches")


class Verdict(StrEnum):
    """What an audit says."""

    ADMITTED = "ADMITTED"
    QUARANTINED = "QUARANTINED"
    PARTIAL = "PARTIAL"  # only some checks were asked for: nothing is admitted by them


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskVerdict:
    """What stands against one task."""

    task: str
    defects: tuple[str, ...]  # names, in the order of the catalogue; empty: admitted

    @property
    def defect(self) -> str:
        """The first of them."""
        return self.defects[0] if self.defects else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The result of an examination."""

    verdict: Verdict
    results: tuple[CheckResult, ...]  # of tasks and, with an empty task, of the environment
    tasks: tuple[TaskVerdict, ...]
    judged: Judged  # distinct right and wrong submissions, for alpha and beta
    seconds: float

    def quarantined(self) -> dict[str, int]:
        """Return the number of quarantined tasks by their first defect."""
        return dict(Counter(verdict.defect for verdict in self.tasks if verdict.defects))

    def reasons(self) -> list[str]:
        """Return what stands against the environment as a whole, in lines for people."""
        return [f"{r.check}: {r.reason}" for r in self.results if r.against and not r.task]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What to examine."""

    depth: Depth = field(default_factory=Depth)
    seed: int = 0
    slots: int = 2  # gradings at once
    only: frozenset[str] = frozenset()  # ids of checks; empty: all
    reference: Verifier | None = None  # knows the right solutions where the examined verifier doesn't

    def wants(self, *checks: str) -> bool:
        return not self.only or not self.only.isdisjoint(checks)


def choose(environment: Environment, count: int, seed: int) -> list[Task]:
    """Return up to `count` tasks, drawn by the seed, as evenly from the splits as these allow.

    Raises:
        TaskError: a task can't be read.
    """
    splits = [list(environment.tasks.ids(split)) for split in environment.tasks.splits()]
    for index, ids in enumerate(splits):
        Random(f"audit {seed} {index}").shuffle(ids)
    mixed = [task_id for row in zip_longest(*splits) for task_id in row if task_id is not None]
    return [environment.tasks.get(task_id) for task_id in mixed[:count]]


async def examine(
    environment: Environment,
    tasks: Sequence[Task],
    backend: SandboxBackend,
    scope: Scope,
    *,
    further: Sequence[CheckResult] = (),
    show: Callable[[CheckResult], None] = lambda result: None,
) -> Admission:
    """Run the checks and judge.

    Args:
        environment: with the verifier that is examined.
        tasks: to examine, such as those of `choose`.
        backend: for agents' sandboxes and for grading.
        scope: which checks, how much of each.
        further: results of checks that are run elsewhere, such as the exploit battery's.
        show: called with each result as it is known.

    Raises:
        SandboxUnavailable: the backend doesn't run here.
    """
    began = time.monotonic()
    backend = TappedBackend(backend, Tap())  # probed once, not by every verifier again
    bench = Bench(environment.verifier, backend, slots=scope.slots, seed=scope.seed)
    results: list[CheckResult] = []

    def keep(found: Sequence[CheckResult]) -> None:
        results.extend(found)
        for result in found:
            show(result)

    keep(further)
    subjects = []
    for number, task in enumerate(tasks):
        subject = await subject_of(environment, task, bench, scope.depth, reference=scope.reference)
        subjects.append(subject)
        keep(await _of_task(subject, scope, sampled=number < scope.depth.sample))
    keep(await _of_environment(subjects, backend, scope))
    keep(summary.pooled(results, bench.seconds, tasks, scope.only))
    return _judge(tasks, results, scope, time.monotonic() - began)


async def _of_task(subject: Subject, scope: Scope, *, sampled: bool) -> list[CheckResult]:
    found: list[CheckResult] = []
    unpaid = ""
    if scope.wants("gold"):
        found.append(await _timed(right_checks.gold, subject))
        unpaid = found[0].reason if found[0].events == found[0].n else ""
    checks = dict(ALWAYS) if unpaid else {**ALWAYS, **WITH_GOLD, **(SAMPLED if sampled else {})}
    for name, check in checks.items():
        if scope.wants(name):
            found.append(await _timed(check, subject))
    if unpaid:
        why = "the right solution is never paid, so that this says nothing"
        return found + [not_measured(name, why, subject.task.id) for name in (*WITH_GOLD, *_BANK) if scope.wants(name)]
    if scope.wants(*_BANK):
        began = time.monotonic()
        pair = await wrong_checks.bank(subject)
        found += [replace(result, seconds=time.monotonic() - began) for result in pair if scope.wants(result.check)]
    return found


async def _timed(check: TaskCheck, subject: Subject) -> CheckResult:
    began = time.monotonic()
    result = await check(subject)
    return replace(result, seconds=time.monotonic() - began)


async def _of_environment(subjects: Sequence[Subject], backend: SandboxBackend, scope: Scope) -> list[CheckResult]:
    found = []
    for name in sandbox_checks.ATTACKS:
        if scope.wants(name):
            began = time.monotonic()
            found.append(replace(await sandbox_checks.contained(name, backend), seconds=time.monotonic() - began))
    if scope.wants("secrecy") and subjects:
        began = time.monotonic()
        found.append(replace(await sandbox_checks.in_the_sandbox(subjects), seconds=time.monotonic() - began))
    return found


def _judge(tasks: Sequence[Task], results: Sequence[CheckResult], scope: Scope, seconds: float) -> Admission:
    order = {check.id: number for number, check in enumerate(CATALOGUE)}
    against = sorted((result for result in results if result.against), key=lambda result: order[result.check])
    verdicts = tuple(
        TaskVerdict(
            task=task.id,
            defects=tuple(dict.fromkeys(result.defect for result in against if result.task == task.id)),
        )
        for task in tasks
    )
    missing = {check.id for check in CATALOGUE if check.required} - {result.check for result in results}
    whole = Verdict.QUARANTINED if against or missing or not tasks else Verdict.ADMITTED
    unseen = () if scope.only else tuple(not_measured(name, "no task was examined by it") for name in sorted(missing))
    return Admission(
        verdict=Verdict.PARTIAL if scope.only else whole,
        results=(*results, *unseen),
        tasks=verdicts,
        judged=summary.judged(results),
        seconds=seconds,
    )
