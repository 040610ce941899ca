"""The audit of tasks that a run has set aside: is the task to blame, or the policy that was caught on it?

It runs in the process of the run, when that has ended or stopped itself: the same checks as `sanderling audit ENV --task ID`,
without those that are about the machine and the battery alone. A clean audit takes no task back, since the environment had
passed one before these hacks were seen; a person does, by name (`screening.readmitted`).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sanderling.audit.admission import Scope, Verdict
from sanderling.audit.certificate import Named
from sanderling.audit.findings import CHECKS, CheckResult, Outcome
from sanderling.config import Config
from sanderling.environment import Environment
from sanderling.jobs.audits import run_checks
from sanderling.report.terminal import Progress
from sanderling.sandbox.protocol import SandboxBackend
from sanderling.screening.watch import Quarantine, Watch
from sanderling.store.run_folder import RunFolder

NOT_OF_A_TASK = frozenset({"attacks-live", "egress", "process-split", "leftovers", "cost", "solvable", "judge"})
OF_A_TASK = frozenset(CHECKS) - NOT_OF_A_TASK
"""Ids of the checks that say something about one task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAudit:
    """What an audit says of one task."""

    task: str
    verdict: Verdict  # PARTIAL: nothing stands against it so far, and not every check was run
    against: tuple[str, ...]  # "<check>: <reason>" of what failed, or could not be measured
    checks: int  # results that there are
    seconds: float

    def line(self) -> str:
        """Return one line for people."""
        head = f"audit of {self.task}, {self.checks} results in {self.seconds:.0f} s: "
        if self.verdict is Verdict.QUARANTINED:
            return f"{head}QUARANTINED, {'; '.join(self.against)}"
        if self.verdict is Verdict.PARTIAL:
            return f"{head}not finished, nothing stands against it so far"
        return f"{head}nothing stands against the task, so the hacks are the policy's doing"


async def audit_task(
    task_id: str, environment: Environment, backend: SandboxBackend, *, seed: int, seconds: float
) -> TaskAudit:
    """Run the checks of one task, for at most so many seconds. Never raises for what it finds, nor for a check that breaks.

    Args:
        task_id: of the environment.
        environment: with the verifier that paid.
        backend: where the run's sandboxes are.
        seed: of hidden inputs and of what attacks are called.
        seconds: wall clock; what is found until then counts.
    """
    began, seen, broken = time.monotonic(), list[CheckResult](), ""
    scope = Scope(seed=seed, slots=len(os.sched_getaffinity(0)), only=OF_A_TASK)
    try:
        async with asyncio.timeout(seconds) as clock:
            tasks = [environment.tasks.get(task_id)]
            await run_checks(environment, environment.verifier, tasks, backend, scope, seen.append)
    except Exception as error:  # what a broken task or a foreign verifier raises is no end of a run
        first = _first(error)
        broken = "" if clock.expired() else f"audit: it broke off, {type(first).__name__}: {first}"
    against = (*_against(seen), *([broken] if broken else []))
    whole = Verdict.PARTIAL if clock.expired() else Verdict.ADMITTED
    return TaskAudit(
        task=task_id,
        verdict=Verdict.QUARANTINED if against else whole,
        against=against,
        checks=len(seen),
        seconds=time.monotonic() - began,
    )


def _against(results: Sequence[CheckResult]) -> list[str]:
    """Return a line for each check that failed, and one for all that could not be measured."""
    failed: dict[str, str] = {}
    unmeasured: dict[str, str] = {}
    for result in results:
        if result.against:
            kind = failed if result.outcome is Outcome.FAILED else unmeasured
            kind.setdefault(result.check, result.reason)
    lines = [f"{check}: {reason}"[:300] for check, reason in failed.items()]
    if unmeasured:
        lines.append(f"not measured: {', '.join(unmeasured)} ({next(iter(unmeasured.values()))[:150]})")
    return lines


def _first(error: BaseException) -> BaseException:
    """Return the first error of a group of them."""
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


class Quarantines:
    """What a run says about its quarantined tasks, and their audits."""

    def __init__(
        self, config: Config, environment: Environment, backend: SandboxBackend, folder: RunFolder, progress: Progress
    ) -> None:
        self._config = config
        self._environment = environment
        self._backend = backend
        self._folder = folder
        self._progress = progress

    def tell(self, watch: Watch, step: int) -> None:
        """Say which tasks were quarantined by a step, and how each is audited at once."""
        for one in watch.quarantined.values():
            if one.step == step:
                command = self.command([one.task_id])
                later = (
                    "It is audited when the run ends" if self._config.screening.audit_s else "The run doesn't audit it"
                )
                now = f"; now: {command}" if command else ""
                self._progress.note(f"task {one.task_id} is quarantined after step {step}: {one.reason}. {later}{now}")

    def tell_readmitted(self, tasks: Iterable[Quarantine]) -> None:
        """Record the tasks that a person has taken back."""
        for one in tasks:
            self._folder.append_event("readmitted", task=one.task_id, quarantined_at=one.step)
            self._progress.note(f"task {one.task_id}, quarantined at step {one.step}, is taken back by name")

    async def audit(self, watch: Watch, *, further: Sequence[str] = ()) -> None:
        """Audit the quarantined tasks, then `further` ones while there is time.

        Each has an event `task_audited`. What was audited before, after its quarantine, isn't audited again.
        """
        limit_s = self._config.screening.audit_s
        ends, events = time.monotonic() + limit_s, self._folder.reader().events()
        waiting = [task for task in watch.quarantined if not _is_audited(events, task)]
        if waiting or (further and limit_s):
            self._progress.phase("audit of quarantined tasks")
        further = [task for task in further if task not in watch.quarantined and not _is_audited(events, task)]
        for task in (*waiting, *further):
            left = max(0.0, ends - time.monotonic())
            if left or task in watch.quarantined:
                self._keep(await self._audited(task, left))

    async def _audited(self, task: str, seconds: float) -> TaskAudit:
        if not seconds:
            return TaskAudit(task=task, verdict=Verdict.PARTIAL, against=(), checks=0, seconds=0.0)
        seed = self._config.seed
        return await audit_task(task, self._environment, self._backend, seed=seed, seconds=seconds)

    def _keep(self, audit: TaskAudit) -> None:
        command = self.command([audit.task])
        self._folder.append_event(
            "task_audited",
            task=audit.task,
            verdict=audit.verdict.value,
            against=list(audit.against),
            checks=audit.checks,
            seconds=round(audit.seconds, 1),
            command=command,
        )
        self._progress.note(audit.line() + (f"; whole: {command}" if command else ""))

    def command(self, tasks: Sequence[str]) -> str:
        """Return what audits these tasks from a terminal; empty where that would judge by other parts than the run's."""
        config = self._config
        if config.verifier or config.sandbox.image:
            return ""
        named = Named(name=config.environment, settings=config.environment_settings, backend=config.sandbox.backend)
        return named.command(*(f"--task={task}" for task in tasks), f"--seed={config.seed}")


def _is_audited(events: Sequence[Mapping[str, Any]], task: str) -> bool:
    """Whether the newest event about a task is an audit that came to its end."""
    kinds = ("quarantined", "task_audited", "readmitted")
    about = [event for event in events if event["kind"] in kinds and event.get("task") == task]
    return bool(about) and about[-1].get("verdict", Verdict.PARTIAL) != Verdict.PARTIAL
