"""The verb that asks whether an environment's reward is earned: `audit`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from sanderling.cli_exports import Settings, parsed_settings
from sanderling.cli_integrity import report_policies
from sanderling.cli_running import run_job
from sanderling.errors import ConfigError

if TYPE_CHECKING:
    from sanderling.audit.findings import CheckResult
    from sanderling.jobs.audits import AuditReport

_RATES = {
    "alpha": "P(paid | wrong)",
    "beta": "P(not paid | right)",
    "fdr": "P(wrong | paid), of the audited ones",
    "joint": "P(wrong and paid), of the audited ones",
    "j": "1 - alpha - beta",
}


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What of the environment is taken, and where it runs.

    Parameters
    ----------
    tasks:
        Number of tasks, drawn by the seed from all splits.
    seed:
        Of the choice of tasks, of hidden inputs and of what attacks are called.
    backend:
        Sandbox backend: bubblewrap, docker, podman, local, an entry point or module:name.
    environment_settings:
        Arguments of the environment, such as --environment_settings.path=FILE.
    """

    tasks: int = 20
    seed: int = 0
    backend: str = "bubblewrap"
    environment_settings: Settings | None = None


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What of an environment is examined.

    Parameters
    ----------
    task:
        Only the task with this id, or several; no certificate is written.
    only:
        Only these checks, ids with commas between them; no certificate is written.
    tier:
        Examine a reference grader (T0 to T3, J0) in place of the environment's own verifier (T4).
    runs:
        Gradings of each task's right solution.
    out:
        File of the certificate; default: certificates/<environment>.json, where `train` looks for it.
    """

    task: Annotated[tuple[str, ...], Parameter(negative=())] = ()
    only: str = ""
    tier: str = ""
    runs: int = 20
    out: Path | None = None

    def changed(self) -> list[str]:
        """Return the flags that were given another value than their default."""
        return [f"--{one.name}" for one in fields(self) if getattr(self, one.name) != one.default]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Generations:
    """Policies that are run on the environment's integrity set, in place of the examination.

    Parameters
    ----------
    policy:
        Run this policy on the environment's integrity set, in place of the examination; several, given in the order of their
        generations, are compared in pairs. Exit code 0 when they were run.
    integrity_set:
        With --policy: file of the frozen set, made where there is none; default: beside the certificate.
    """

    policy: Annotated[tuple[str, ...], Parameter(negative=())] = ()
    integrity_set: Path | None = None


def add_audit_command(app: App) -> None:
    """Add the verb of this module."""
    app.command(audit_environment, name="audit")


def audit_environment(
    env: str,
    *,
    subject: Subject = Subject(),
    examination: Examination = Examination(),
    generations: Generations = Generations(),
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Examine an environment: attacks, right and wrong work, what the agent can reach. Writes a certificate.

    Exit code 0 only when it is ADMITTED; 1 when it is QUARANTINED or when only a part was examined.

    Parameters
    ----------
    env:
        Environment: an entry point, module:name, path.py:name, a folder of tasks (native or Harbor), or a .jsonl file of
        HumanEvalPack rows.
    json_:
        Progress goes to standard error; the last line of standard output is one JSON object.
    """
    if generations == Generations():
        _examine(env, subject, examination, as_json=json_)
    else:
        _require_use(generations, examination)
        _compare(env, subject, generations, as_json=json_)


def _compare(env: str, subject: Subject, generations: Generations, *, as_json: bool) -> None:
    from sanderling.jobs.integrity import IntegrityRequest

    request = IntegrityRequest(
        name=env,
        policies=generations.policy,
        settings=parsed_settings(subject.environment_settings),
        tasks=subject.tasks,
        seed=subject.seed,
        backend=subject.backend,
        file=generations.integrity_set,
    )
    report_policies(request, as_json=as_json)


def _examine(env: str, subject: Subject, flags: Examination, *, as_json: bool) -> None:
    from sanderling.audit.admission import Verdict
    from sanderling.jobs.audits import AuditRequest, audit

    stream = sys.stderr if as_json else sys.stdout

    def show(result: CheckResult) -> None:
        where = result.task or "environment"
        print(f"{result.outcome.value:14} {result.check:14} {where}: {result.reason}", file=stream, flush=True)

    request = AuditRequest(
        name=env,
        settings=parsed_settings(subject.environment_settings),
        tasks=subject.tasks,
        only_tasks=flags.task,
        only=frozenset(filter(None, flags.only.split(","))),
        tier=flags.tier,
        seed=subject.seed,
        runs=flags.runs,
        backend=subject.backend,
        out=flags.out,
    )
    report = run_job(audit(request, show))
    print(json.dumps(report.as_json()) if as_json else "\n".join(_lines(report)))
    if report.admission.verdict is not Verdict.ADMITTED:
        sys.exit(1)


def _require_use(generations: Generations, examination: Examination) -> None:
    """Raise where a flag would do nothing beside --policy, or without it."""
    if not generations.policy:
        raise ConfigError(
            "--integrity_set is the file of a set that policies are run on; name one with --policy FOLDER"
        )
    if unused := examination.changed():
        raise ConfigError(
            f"{', '.join(unused)} with --policy: they belong to the examination of an environment; leave them out"
        )


def _lines(report: AuditReport) -> list[str]:
    """Return the summary for people."""
    found, record = report.admission, report.as_json()
    lines = []
    if report.battery is not None:
        lines += ["", "attacks, paid on so many of the tasks by each grader:"]
        tiers = report.battery.tiers
        lines.append(" " * 34 + "  ".join(f"{tier:>5}" for tier in tiers))
        for name, row in report.battery.matrix().items():
            cells = [f"{row[tier].paid}/{row[tier].graded}" if tier in row else "-" for tier in tiers]
            lines.append(f"{name:34}" + "  ".join(f"{cell:>5}" for cell in cells))
    lines.append("")
    for name, rate in found.judged.as_json().items():
        if name in _RATES:
            value = "not measured" if rate["value"] is None else f"{rate['value']:.4f}"
            lines.append(f"{name:5} {value} [{rate['low']:.4f}, {rate['high']:.4f}] n = {rate['n']}  {_RATES[name]}")
    lines.append(f"flake bound {record['flake']['bound']:.4f} (one-sided 95 %) from {record['flake']['runs']} gradings")
    tasks = record["tasks"]
    lines.append(
        f"{tasks['examined']} tasks examined, {tasks['admitted']} admitted, quarantined: {tasks['quarantined'] or 'none'}"
    )
    lines += [f"against the environment: {reason}" for reason in found.reasons()]
    where = report.standing.path
    lines.append(f"{found.verdict.value}" + (f", certificate {where}" if where else f": {report.standing.problems[0]}"))
    return lines
