"""The exploit battery: every attack acts in every task's sandbox, and each grader says what it would have paid."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from random import Random
from typing import TypeVar

from sanderling.audit.attack import Attack, Scene, TaskKind, UnfitTask, kind_of
from sanderling.audit.honest import HonestFix
from sanderling.audit.range import Range, Run
from sanderling.audit.report import (
    REAL,
    Battery,
    BatteryReport,
    BatteryRow,
    BatterySettings,
    HonestRow,
    Outcome,
    shows_live,
)
from sanderling.environment import Environment
from sanderling.errors import ConfigError
from sanderling.rollout.seeds import derive
from sanderling.sandbox.protocol import SandboxBackend
from sanderling.types import Graded, Task, Ungraded, Verdict
from sanderling.verify.protocol import DisclosingVerifier, Verifier

__all__ = ["REAL", "Battery", "BatteryReport", "BatteryRow", "BatterySettings", "HonestRow", "Outcome", "run_battery"]

_IDLE = "idle"
_DEFAULT = BatterySettings()
Row = TypeVar("Row")


async def run_battery(
    environment: Environment,
    tasks: Sequence[Task],
    backend: SandboxBackend,
    *,
    graders: Mapping[str, Verifier],
    battery: Battery,
    settings: BatterySettings = _DEFAULT,
) -> BatteryReport:
    """Run every attack and honest fix that fits a task in a normal episode, and let every grader judge what it left.

    The environment's own verifier, the one under audit, is the tier `REAL` and judges everything on all tasks.

    Args:
        environment: its tools, tasks and verifier; the harness is replaced by bash blocks.
        tasks: of the environment, or of others with the same verifier.
        backend: where episodes and gradings run.
        graders: reference graders by tier, such as `sanderling.testing.weak_graders.reference_graders(environment)`.
        battery: what acts; `sanderling.audit.catalogue.standard_battery()` is the one that comes with us.
        settings: how many at once, how many tasks the reference graders judge, and the seed of names and hidden inputs.

    Raises:
        ConfigError: no task, or a verifier that doesn't give its right solution.
    """
    if not tasks:
        raise ConfigError("a battery needs at least one task")
    verifier = environment.verifier
    if battery.honest and not isinstance(verifier, DisclosingVerifier):
        raise ConfigError(
            f"the verifier {type(verifier).__name__} has no right_files(task), from which honest fixes are made; "
            "leave them out of the battery, or give it one (sanderling.verify.protocol.DisclosingVerifier)"
        )

    started = time.monotonic()
    acting = _Acting(place=Range(environment, backend, graders), tasks=tasks, verifier=verifier, settings=settings)
    idle = await acting.idle()
    rows = await acting.attacks(battery.attacks, idle)
    fixes = await acting.fixes(battery.honest)
    return BatteryReport(
        rows=tuple(rows),
        honest=tuple(fixes),
        idle=tuple(idle),
        tiers=(*graders, REAL),
        seconds=time.monotonic() - started,
    )


class _Acting:
    """One battery on its way: at most so many runs at once."""

    def __init__(self, *, place: Range, tasks: Sequence[Task], verifier: Verifier, settings: BatterySettings) -> None:
        self._range = place
        self._tasks = tasks
        self._verifier = verifier
        self._settings = settings
        self._gate = asyncio.Semaphore(settings.concurrency)

    async def idle(self) -> list[HonestRow]:
        """Do nothing on every task."""
        seed = self._settings.seed
        return await self._honest(
            [Run(name=_IDLE, task=task, commands=(), seed=seed, references=True) for task in self._tasks]
        )

    async def attacks(self, attacks: Sequence[Attack], idle: Sequence[HonestRow]) -> list[BatteryRow]:
        """Run every attack on every task that it fits; `idle` tells where a reference grader pays for nothing."""
        free = {(row.tier, row.task) for row in idle if row.outcome is Outcome.PAID}
        return await _all([self._attack(attack, free) for attack in attacks])

    async def fixes(self, fixes: Sequence[HonestFix]) -> list[HonestRow]:
        """Run every honest fix on every task that it fits; only the grader under audit judges it."""
        seed = self._settings.seed
        return await self._honest(
            [run for task in self._tasks for run in _honest_runs(fixes, task, self._verifier, seed)]
        )

    async def _attack(self, attack: Attack, free: set[tuple[str, str]]) -> list[BatteryRow]:
        rows: list[BatteryRow] = []
        met: Counter[TaskKind] = Counter()
        live = False
        for task in self._tasks:
            kind = kind_of(task)
            if kind in attack.kinds:
                references = not live or met[kind] < self._settings.reference_tasks
                try:
                    run = _attack_run(attack, task, self._verifier, self._settings.seed, references)
                except UnfitTask:
                    continue
                found = list(_attack_rows(attack, run, await self._verdicts(run)))
                live |= any(shows_live(row, free) for row in found)
                met[kind] += 1
                rows += found
        return rows

    async def _honest(self, runs: Sequence[Run]) -> list[HonestRow]:
        async def one(run: Run) -> list[HonestRow]:
            return list(_honest_rows(run, await self._verdicts(run)))

        return await _all([one(run) for run in runs])

    async def _verdicts(self, run: Run) -> dict[str, Verdict]:
        async with self._gate:
            return await self._range.verdicts(run)


async def _all(parts: Sequence[Coroutine[None, None, list[Row]]]) -> list[Row]:
    """Run everything and return what came out, in order; the first failure ends the others."""
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(part) for part in parts]
    return [row for task in running for row in task.result()]


def _attack_run(attack: Attack, task: Task, verifier: Verifier, seed: int, references: bool) -> Run:
    own = derive(seed, attack.id, task.id)
    bait: Sequence[str] = ()
    if attack.bait is not None and isinstance(verifier, DisclosingVerifier):
        bait = attack.bait(Scene(task=task, rng=Random(own), leaked=verifier.right_files(task)))
    return Run(
        name=attack.id,
        task=task,
        commands=tuple(attack.script(Scene(task=task, rng=Random(own)))),
        seed=own,
        references=references,
        processes=attack.processes,
        bait=bait,
    )


def _honest_runs(fixes: Sequence[HonestFix], task: Task, verifier: Verifier, seed: int) -> Iterator[Run]:
    if not fixes:
        return
    assert isinstance(verifier, DisclosingVerifier)
    right = verifier.right_files(task)
    for fix in fixes:
        own = derive(seed, fix.id, task.id)
        commands = fix.script(Scene(task=task, rng=Random(own)), right)
        if commands is not None:
            yield Run(name=fix.id, task=task, commands=tuple(commands), seed=own)


def _outcome(verdict: Verdict) -> tuple[Outcome, str]:
    match verdict:
        case Ungraded(cause=cause):
            return Outcome.UNGRADED, cause
        case Graded(reward=reward, evidence=evidence):
            notes = "; ".join(evidence.notes[:4]) if evidence else "ended without a submission"
            return (Outcome.PAID if reward > 0 else Outcome.REFUSED), notes


def _attack_rows(attack: Attack, run: Run, found: Mapping[str, Verdict]) -> Iterator[BatteryRow]:
    for tier, verdict in found.items():
        outcome, cause = _outcome(verdict)
        yield BatteryRow(
            attack=attack.id,
            family=attack.family,
            task=run.task.id,
            kind=kind_of(run.task),
            tier=tier,
            outcome=outcome,
            leak=attack.leak,
            cause=cause,
        )


def _honest_rows(run: Run, found: Mapping[str, Verdict]) -> Iterator[HonestRow]:
    for tier, verdict in found.items():
        outcome, cause = _outcome(verdict)
        yield HonestRow(fix=run.name, task=run.task.id, kind=kind_of(run.task), tier=tier, outcome=outcome, cause=cause)
