"""The exploit battery: every attack acts in every task's sandbox, and each grader says what it would have paid."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from random import Random

from sanderling.audit.attack import Attack, Scene, TaskKind, kind_of
from sanderling.audit.honest import HonestFix
from sanderling.audit.range import Range, Run
from sanderling.audit.report import REAL, Battery, BatteryReport, BatteryRow, BatterySettings, HonestRow, Outcome
from sanderling.environment import Environment
from sanderling.errors import ConfigError
from sanderling.rollout.seeds import derive
from sanderling.sandbox.protocol import SandboxBackend
from sanderling.types import Graded, Task, Ungraded, Verdict
from sanderling.verify.protocol import DisclosingVerifier, Verifier

__all__ = ["REAL", "Battery", "BatteryReport", "BatteryRow", "BatterySettings", "HonestRow", "Outcome", "run_battery"]

_IDLE = "idle"
_DEFAULT = BatterySettings()


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

    references = _reference_tasks(tasks, settings.reference_tasks)
    started = time.monotonic()
    place = Range(environment, backend, graders)
    gate = asyncio.Semaphore(settings.concurrency)

    async def one(run: Run) -> dict[str, Verdict]:
        async with gate:
            return await place.verdicts(run)

    attacks = [
        (attack, _attack_run(attack, task, verifier, settings.seed, task.id in references))
        for task in tasks
        for attack in battery.attacks
        if kind_of(task) in attack.kinds
    ]
    fixes = [run for task in tasks for run in _honest_runs(battery.honest, task, verifier, settings.seed)]
    idle = [Run(name=_IDLE, task=task, commands=(), seed=settings.seed, references=True) for task in tasks]
    runs = [*(run for _, run in attacks), *fixes, *idle]
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(one(run)) for run in runs]
    verdicts = [task.result() for task in running]
    rows = [
        row for (attack, run), found in zip(attacks, verdicts, strict=False) for row in _attack_rows(attack, run, found)
    ]
    others = [
        row
        for run, found in zip(runs[len(attacks) :], verdicts[len(attacks) :], strict=True)
        for row in _honest_rows(run, found)
    ]
    return BatteryReport(
        rows=tuple(rows),
        honest=tuple(row for row in others if row.fix != _IDLE),
        idle=tuple(row for row in others if row.fix == _IDLE),
        tiers=(*graders, REAL),
        seconds=time.monotonic() - started,
    )


def _reference_tasks(tasks: Sequence[Task], count: int | None) -> set[str]:
    """Return the ids of the first tasks of each kind."""
    kinds: dict[TaskKind, list[str]] = defaultdict(list)
    for task in tasks:
        kinds[kind_of(task)].append(task.id)
    return {name for names in kinds.values() for name in names[:count]}


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
