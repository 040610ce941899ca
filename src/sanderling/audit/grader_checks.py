"""Checks of the grader itself, on a sample of tasks: the same verdict under load, faults, other limits and the same seed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sanderling.audit.bench import Attempt, Bench
from sanderling.audit.findings import CheckResult, Outcome
from sanderling.audit.instruments import FAULTS, FILE_FAULTS, TappedBackend, Watched
from sanderling.audit.intervals import counted, flake_bound
from sanderling.audit.subject import Subject
from sanderling.types import Task

_LOAD = 3  # times as many gradings at once as slots
_WRONG_SEEDS = 5
_LARGER = 3
_TOKENS = re.compile(rb"[0-9a-f]{16,}")
_READS_OUTPUT = (
    "creation lost",
    "lost after the command",
)  # faults that matter also where verdicts are read from files


async def under_load(subject: Subject) -> CheckResult:
    """Right work is paid and untouched work isn't, with several times as many gradings at once as there are slots."""
    name, task = "flake", subject.task.id
    bench, k = subject.bench, subject.depth.flake_runs
    crowded = Bench(bench.verifier, bench.backend, slots=bench.slots * _LOAD, seed=bench.seed)
    loaded = replace(subject, bench=crowded)
    right = [loaded.right(name, i) for i in range(k)]
    idle = [loaded.grade({}, name, k + i) for i in range(max(1, k // 4))]
    attempts = await asyncio.gather(*right, *idle)
    flips = [a for a in attempts[:k] if not a.full] + [a for a in attempts[k:] if a.paid]
    common: dict[str, Any] = {
        "check": name,
        "task": task,
        "n": len(attempts),
        "events": len(flips),
        "rate": counted(len(flips), len(attempts)),
    }
    if flips:
        return CheckResult(
            outcome=Outcome.FAILED, defect="flaky", reason=f"{len(flips)} flips: {flips[0].why()}", **common
        )
    what = f"{k} right and {len(idle)} untouched gradings, {crowded.slots} at once"
    reason = f"0 flips in {what}: excludes {flake_bound(k):.1%} (95 %)"
    return CheckResult(outcome=Outcome.PASSED, reason=reason, **common)


async def faults(subject: Subject) -> CheckResult:
    """No fault of what runs the grader pays anything, for right work or for none."""
    name, task = "fail-closed", subject.task.id
    known = await subject.right(name)
    from_files = known.evidence is not None and known.evidence.channel == "reward-file"
    chosen = {k: tap for k, tap in FAULTS.items() if not from_files or k in _READS_OUTPUT}
    chosen |= FILE_FAULTS if from_files else {}
    paid = []
    for fault, tap in chosen.items():
        backend = TappedBackend(subject.bench.backend, tap)
        right = await subject.right(fault, backend=backend)
        idle = await subject.bench.grade(subject.task, {}, seed=subject.seed(fault, 1), backend=backend)
        paid += [f"{fault} ({what})" for what, attempt in (("right work", right), ("no work", idle)) if attempt.paid]
    n = 2 * len(chosen)
    common: dict[str, Any] = {"check": name, "task": task, "n": n, "events": len(paid), "rate": counted(len(paid), n)}
    if paid:
        return CheckResult(
            outcome=Outcome.FAILED, defect="fails-open", reason=f"paid in spite of: {', '.join(paid)}", **common
        )
    return CheckResult(
        outcome=Outcome.PASSED, reason=f"{len(chosen)} faults, nothing paid: {', '.join(chosen)}", **common
    )


async def larger_limits(subject: Subject) -> CheckResult:
    """Three times the time, memory, disk and processes change no verdict."""
    name, task = "resources", subject.task.id
    changed = []
    wide = _with_larger_limits(subject.task)
    for what, files in (("right work", subject.solution), ("no work", {})):
        if files is None:
            pair = [await subject.right(name, 0), await subject.right(name, 0, task=wide)]
        else:
            seed = subject.seed(name)
            pair = [await subject.bench.grade(each, files, seed=seed) for each in (subject.task, wide)]
        if pair[0].reward != pair[1].reward:
            changed.append(f"{what}: {pair[0].why()} against {pair[1].why()}")
    common: dict[str, Any] = {"check": name, "task": task, "n": 4, "events": len(changed)}
    if changed:
        return CheckResult(outcome=Outcome.FAILED, defect="depends-on-limits", reason="; ".join(changed), **common)
    return CheckResult(outcome=Outcome.PASSED, reason=f"the same verdicts at {_LARGER} times the limits", **common)


def _with_larger_limits(task: Task) -> Task:
    limits = task.limits
    return replace(
        task,
        limits=replace(
            limits,
            command_s=limits.command_s * _LARGER,
            command_cpu_s=limits.command_cpu_s * _LARGER,
            grading_s=limits.grading_s * _LARGER,
            memory_mb=limits.memory_mb * _LARGER,
            disk_mb=limits.disk_mb * _LARGER,
            processes=limits.processes * _LARGER,
        ),
    )


async def same_seed(subject: Subject) -> CheckResult:
    """The same seed gives the same verdict and the same counts, for right work and for none."""
    name, task = "determinism", subject.task.id
    pairs = []
    for number in range(2):
        right = [await subject.right(name, number) for _ in range(2)]
        idle = [await subject.grade({}, name, number) for _ in range(2)]
        pairs += [right, idle]
    differing = [pair for pair in pairs if _seen(pair[0]) != _seen(pair[1])]
    common: dict[str, Any] = {"check": name, "task": task, "n": len(pairs), "events": len(differing)}
    if differing:
        first, second = differing[0]
        reason = f"{_seen(first)} and {_seen(second)} for the same seed"
        return CheckResult(outcome=Outcome.FAILED, defect="not-deterministic", reason=reason, **common)
    return CheckResult(outcome=Outcome.PASSED, reason=f"{len(pairs)} gradings repeated with equal evidence", **common)


def _seen(attempt: Attempt) -> Sequence[object]:
    found = attempt.evidence
    counts = (found.required, found.executed, found.passed, found.canary_failed) if found else ()
    return (attempt.reward, *counts)


async def hidden_inputs(subject: Subject) -> CheckResult:
    """What a grading asks differs from seed to seed, and untouched work isn't paid with any of them."""
    name, task = "fresh-inputs", subject.task.id
    idle = await asyncio.gather(*(subject.grade({}, name, i) for i in range(_WRONG_SEEDS)))
    paid = sum(attempt.paid for attempt in idle)
    asked = [await _requests(subject, number) for number in (0, 0, 1)]
    common: dict[str, Any] = {
        "check": name,
        "task": task,
        "n": len(idle),
        "events": paid,
        "rate": counted(paid, len(idle)),
    }
    if paid:
        reason = f"untouched work is paid with {paid} of {len(idle)} seeds"
        return CheckResult(outcome=Outcome.FAILED, defect="no-op-paid", reason=reason, **common)
    if asked[0] != asked[1]:
        reason = "what is asked differs even for the same seed, so that it can't be told what the seed draws"
        return CheckResult(outcome=Outcome.NOTED, reason=reason, **common)
    if asked[0] == asked[2]:
        reason = "every grading asks the same: a solution that knows the inputs can be made for them"
        return CheckResult(outcome=Outcome.NOTED, defect="fixed-inputs", reason=reason, **common)
    return CheckResult(
        outcome=Outcome.PASSED, reason=f"inputs drawn per grading; unpaid with {len(idle)} seeds", **common
    )


async def _requests(subject: Subject, number: int) -> tuple[bytes, ...]:
    watched = Watched()
    await subject.right("fresh-inputs", number, backend=TappedBackend(subject.bench.backend, watched.tap()))
    return tuple(_TOKENS.sub(b"#", request) for request in watched.requests())
