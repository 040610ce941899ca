"""The verb that asks whether an environment's reward is earned: `audit`."""

from __future__ import annotations

import json
import sys
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


_RUNS = 20


def add_audit_command(app: App) -> None:
    """Add the verb of this module."""
    app.command(audit_environment, name="audit")


def audit_environment(  # noqa: PLR0913 - the flags are a contract
    env: str,
    *,
    tasks: int = 20,
    task: str = "",
    only: str = "",
    tier: str = "",
    seed: int = 0,
    runs: int = _RUNS,
    backend: str = "bubblewrap",
    out: Path | None = None,
    policy: Annotated[list[str] | None, Parameter(negative=())] = None,
    integrity_set: Path | None = None,
    environment_settings: Settings | None = None,
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Examine an environment: attacks, right and wrong work, what the agent can reach. Writes a certificate.

    Exit code 0 only when it is ADMITTED; 1 when it is QUARANTINED or when only a part was examined.

    Parameters
    ----------
    env:
        Environment: an entry point, module:name, path.py:name, a folder of tasks (native or Harbor), or a .jsonl file of
        HumanEvalPack rows.
    tasks:
        Number of tasks, drawn by the seed from all splits.
    task:
        Only the task with this id; no certificate is written.
    only:
        Only these checks, ids with commas between them; no certificate is written.
    tier:
        Examine a reference grader (T0 to T3, J0) in place of the environment's own verifier (T4).
    seed:
        Of the choice of tasks, of hidden inputs and of what attacks are called.
    runs:
        Gradings of each task's right solution.
    backend:
        Sandbox backend: bubblewrap, docker, podman, local, an entry point or module:name.
    out:
        File of the certificate; default: certificates/<environment>.json, where `train` looks for it.
    policy:
        Run this policy on the environment's integrity set, in place of the examination; several, given in the order of their
        generations, are compared in pairs. Exit code 0 when they were run.
    integrity_set:
        With --policy: file of the frozen set, made where there is none; default: beside the certificate.
    environment_settings:
        Arguments of the environment, such as --environment_settings.path=FILE.
    json_:
        Progress goes to standard error; the last line of standard output is one JSON object.
    """
    if policy or integrity_set:
        given = {"--task": task, "--only": only, "--tier": tier, "--out": out, "--runs": runs != _RUNS}
        _refuse(policy, [name for name, value in given.items() if value])
        from sanderling.jobs.integrity import IntegrityRequest

        settings, named = parsed_settings(environment_settings), tuple(policy or ())
        wanted = IntegrityRequest(
            name=env, policies=named, settings=settings, tasks=tasks, seed=seed, backend=backend, file=integrity_set
        )
        report_policies(wanted, as_json=json_)
        return
    from sanderling.audit.admission import Verdict
    from sanderling.jobs.audits import AuditRequest, audit

    stream = sys.stderr if json_ else sys.stdout

    def show(result: CheckResult) -> None:
        where = result.task or "environment"
        print(f"{result.outcome.value:14} {result.check:14} {where}: {result.reason}", file=stream, flush=True)

    request = AuditRequest(
        name=env,
        settings=parsed_settings(environment_settings),
        tasks=tasks,
        task=task,
        only=frozenset(filter(None, only.split(","))),
        tier=tier,
        seed=seed,
        runs=runs,
        backend=backend,
        out=out,
    )
    report = run_job(audit(request, show))
    if json_:
        print(json.dumps(report.as_json()))
    else:
        print("\n".join(_lines(report)))
    if report.admission.verdict is not Verdict.ADMITTED:
        sys.exit(1)


def _refuse(policy: list[str] | None, unused: list[str]) -> None:
    """Raise where a flag would do nothing beside --policy, or without it."""
    if not policy:
        raise ConfigError(
            "--integrity_set is the file of a set that policies are run on; name one with --policy FOLDER"
        )
    if unused:
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
