"""The audit of an environment: battery, admission, certificate."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sanderling.assemble import check_backend, load_backend, load_environment
from sanderling.audit.admission import Admission, Scope, Verdict, choose, examine
from sanderling.audit.battery import Battery, BatteryReport, BatterySettings, run_battery
from sanderling.audit.battery_checks import battery_results
from sanderling.audit.catalogue import standard_battery
from sanderling.audit.certificate import Named, Standing, certificate, check_certificate, write_certificate
from sanderling.audit.findings import CHECKS, CheckResult
from sanderling.audit.subject import Depth
from sanderling.audit.summary import flake
from sanderling.environment import Environment
from sanderling.errors import ConfigError
from sanderling.formats import harbor_tools
from sanderling.harness.bash_block import BashBlockHarness
from sanderling.harness.tool_call_harness import ToolCallHarness
from sanderling.jobs.certificates import certificate_place
from sanderling.repository import repository_environment
from sanderling.sandbox.protocol import SandboxBackend
from sanderling.tasks.formats.harbor_tasks import HarborTasks
from sanderling.types import JsonValue, Task
from sanderling.verify.harbor import HarborVerifier
from sanderling.verify.protocol import DisclosingVerifier, Verifier

REPOSITORY_TESTS = ("python3", "/tools/run_tests.py")
_BATTERY = ("attacks", "attacks-live", "honest")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRequest:
    """What `sanderling audit` was asked."""

    name: str  # entry point, module:name, path.py:name, a folder of tasks, or a file of rows
    settings: Mapping[str, Any] = field(default_factory=dict)
    tasks: int = 20
    only_tasks: tuple[str, ...] = ()  # ids; (): as many as `tasks` says
    only: frozenset[str] = frozenset()
    tier: str = ""  # a reference grader in place of the environment's own verifier; empty or T4: the own one
    seed: int = 0
    runs: int = 20
    backend: str = "bubblewrap"
    out: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """What an audit leaves."""

    admission: Admission
    battery: BatteryReport | None  # None: it was not asked for
    standing: Standing  # of the certificate that was written; of a part or of another grader there is none

    def as_json(self) -> dict[str, JsonValue]:
        """Return the object that --json prints."""
        admission = self.admission
        runs, _, bound = flake(admission.results)
        quarantined = admission.quarantined()
        battery = self.battery.as_json() if self.battery else {}
        return {
            "verdict": admission.verdict.value,
            "reasons": admission.reasons(),
            "certificate": self.standing.as_json(),
            "attacks": battery.get("attacks", {"total": 0, "live": 0, "paid": 0, "by_tier": {}}),
            "honest": battery.get("honest", {"total": 0, "refused": 0}),
            "tasks": {
                "examined": len(admission.tasks),
                "admitted": sum(not verdict.defects for verdict in admission.tasks),
                "quarantined": quarantined,
            },
            "rates": admission.judged.as_json(),
            "flake": {"runs": runs, "bound": round(bound, 6)},
            "matrix": battery.get("matrix", {}),
            "checks": [result.as_json() for result in admission.results],
            "seconds": round(admission.seconds + (self.battery.seconds if self.battery else 0.0), 1),
        }


def open_environment(name: str, settings: Mapping[str, Any]) -> Environment:
    """Return the environment that a name means, also where it is a folder of tasks or a file of HumanEvalPack rows.

    Raises:
        PluginError, TaskError: nothing there, or something else.
    """
    place = Path(name)
    if ":" in name or not place.exists():
        return load_environment(name, settings=settings)
    if place.is_file():
        return load_environment("sanderling.formats:humanevalpack", settings={"path": str(place), **settings})
    if next(place.glob("**/hidden/expected.json"), None) is not None:
        environment = repository_environment(place, ToolCallHarness(test_argv=REPOSITORY_TESTS))
        return replace(environment, test_argv=REPOSITORY_TESTS)
    return _harbor(place, settings)


def _harbor(place: Path, settings: Mapping[str, Any]) -> Environment:
    """Return the environment of Harbor folders; without settings of its editor, one for shell commands, as attacks use."""
    if {"file", "test"} & settings.keys():
        return load_environment("sanderling.formats:harbor", settings={"path": str(place), **settings})
    tasks = HarborTasks(place, **settings)
    return Environment(
        name="harbor",
        version="1",
        tasks=tasks,
        harness=BashBlockHarness(),
        verifier=HarborVerifier(tasks),
        tools=harbor_tools(tasks),
    )


async def audit(request: AuditRequest, show: Callable[[CheckResult], None]) -> AuditReport:
    """Examine an environment, and write the certificate of a whole audit of its own verifier.

    Raises:
        ConfigError: a check or tier that doesn't exist, or an environment that can't be made.
        SandboxUnavailable: the backend doesn't run here.
    """
    if unknown := request.only - CHECKS.keys():
        raise ConfigError(f"no check {sorted(unknown)[0]!r}; there are {', '.join(CHECKS)}")
    environment = open_environment(request.name, request.settings)
    examined = (
        environment if request.tier in ("", "T4") else replace(environment, verifier=_tier(environment, request.tier))
    )
    named = [environment.tasks.get(task_id) for task_id in dict.fromkeys(request.only_tasks)]
    tasks = named or choose(environment, request.tasks, request.seed)
    scope = Scope(
        depth=Depth(gold_runs=request.runs),
        seed=request.seed,
        slots=len(os.sched_getaffinity(0)),
        only=request.only,
        reference=None if examined is environment else environment.verifier,
    )
    backend = load_backend(request.backend)
    try:
        capabilities = await asyncio.to_thread(check_backend, backend)
        admission, battery = await run_checks(environment, examined.verifier, tasks, backend, scope, show)
        whole = admission.verdict is not Verdict.PARTIAL and examined is environment and not request.only_tasks
        if not whole:
            nothing = Standing(path=None, digest="", problems=("no certificate is written of a part",), record={})
            return AuditReport(admission=admission, battery=battery, standing=nothing)
        replay = Named(name=request.name, settings=dict(request.settings), backend=request.backend)
        record = certificate(environment, admission, scope, replay, capabilities)
        path = request.out or certificate_place(environment)
        write_certificate(path, record)
        return AuditReport(admission=admission, battery=battery, standing=check_certificate(path, environment))
    finally:
        await backend.close()


async def run_checks(
    environment: Environment,
    verifier: Verifier,
    tasks: Sequence[Task],
    backend: SandboxBackend,
    scope: Scope,
    show: Callable[[CheckResult], None],
) -> tuple[Admission, BatteryReport | None]:
    """Run the checks that the scope wants, the exploit battery (None: it isn't wanted) among them.

    Args:
        environment: whose own verifier knows the right solutions.
        verifier: is examined.
        tasks: to examine.
        backend: for agents' sandboxes and for grading.
        scope: which checks, how much of each.
        show: called with each result as it is known.

    Raises:
        SandboxUnavailable: the backend doesn't run here.
    """
    examined = environment if verifier is environment.verifier else replace(environment, verifier=verifier)
    battery = None
    if scope.wants(*_BATTERY):
        battery = await _battery(environment, verifier, tasks, backend, scope)
    further = [result for result in battery_results(battery) if scope.wants(result.check)] if battery else []
    return await examine(examined, tasks, backend, scope, further=further, show=show), battery


async def _battery(
    environment: Environment, verifier: Verifier, tasks: Sequence[Task], backend: SandboxBackend, scope: Scope
) -> BatteryReport:
    """Run the exploit battery; where the verifier gives no right files, without honest fixes.

    Reference graders, which cost the most, only say which attacks are live.
    """
    parts = standard_battery()
    known = environment.verifier if isinstance(environment.verifier, DisclosingVerifier) else None
    if known is None:
        parts = Battery(attacks=parts.attacks)
    return await run_battery(
        replace(environment, verifier=verifier),
        tasks,
        backend,
        graders=_references(environment) if scope.wants("attacks-live") else {},
        battery=parts,
        settings=BatterySettings(concurrency=scope.slots, seed=scope.seed, reference_tasks=1),
    )


def _references(environment: Environment) -> Mapping[str, Verifier]:
    from sanderling.testing.weak_graders import reference_graders

    try:
        return reference_graders(environment)
    except ConfigError:
        return {}


def _tier(environment: Environment, tier: str) -> Verifier:
    graders = _references(environment)
    if tier not in graders:
        known = ", ".join(graders) or "none: its hidden tests can't be written out"
        raise ConfigError(
            f"no reference grader {tier!r} for {environment.name}; there are {known}, and T4, its own verifier"
        )
    return graders[tier]
