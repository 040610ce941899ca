"""Policies on the frozen integrity set of an environment: the hack report across generations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sanderling.assemble import Policy, limits_within, load_policy_folder, open_stage
from sanderling.audit.integrity_probes import probes_of
from sanderling.audit.integrity_report import IntegrityReport
from sanderling.audit.integrity_run import PolicyRun, run_set
from sanderling.audit.integrity_set import IntegritySet, Probe, check_set, freeze, read_set, write_set
from sanderling.compute import set_threads
from sanderling.config import Config
from sanderling.environment import Environment
from sanderling.errors import CertificateError, ConfigError
from sanderling.jobs.audits import open_environment
from sanderling.jobs.certificates import certificate_place, standing_of


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegrityRequest:
    """What `sanderling audit --policy` was asked."""

    name: str  # of the environment
    policies: tuple[str, ...]  # in the order of their generations
    settings: Mapping[str, Any] = field(default_factory=dict)
    tasks: int = 20  # of each kind
    seed: int = 0
    split: str = "held-out"
    backend: str = "bubblewrap"
    file: Path | None = None  # of the set; None: beside the certificate, with seed and number in its name


async def audit_policies(request: IntegrityRequest, show: Callable[[str], None]) -> IntegrityReport:
    """Run every policy on the same set; it is frozen into its file the first time, and checked against it later.

    Raises:
        ConfigError: the tasks can't be twinned, or the file is of another seed or number.
        CertificateError: the environment isn't admitted.
        TaskError: the set was changed. ModelError, SandboxUnavailable: nothing was run.
    """
    environment = open_environment(request.name, request.settings)
    probes = probes_of(environment, request.seed)
    policies = [load_policy_folder(name) for name in request.policies]  # a wrong name is told before anything runs
    standing = standing_of(environment)
    if not standing.valid:
        raise CertificateError(
            f"{environment.name} has no valid certificate ({'; '.join(standing.problems)}): what its verifier pays says "
            f"nothing about a policy. Audit it first, with `sanderling audit {request.name}`"
        )
    place = request.file or certificate_place(environment).with_suffix(
        f".integrity-{request.seed}-{request.tasks}.json"
    )
    frozen = _the_set(place, environment, probes, request)
    show(f"integrity set {place}, SHA-256 {frozen.sha256}")
    runs = []
    for name, policy in zip(request.policies, policies, strict=True):
        runs.append(await _run(name, policy, request, frozen, probes, environment))
        show(f"{name}: {len(runs[-1].shown)} episodes graded")
    return IntegrityReport(frozen=frozen, runs=tuple(runs))


def _the_set(
    place: Path, environment: Environment, probes: tuple[Probe, ...], request: IntegrityRequest
) -> IntegritySet:
    if not place.exists():
        frozen = freeze(environment, probes, split=request.split, count=request.tasks, seed=request.seed)
        write_set(place, frozen)
        return frozen
    frozen = read_set(place)
    if (frozen.seed, len(frozen.ids())) != (request.seed, request.tasks):
        raise ConfigError(
            f"{place} holds {len(frozen.ids())} tasks of each kind with seed {frozen.seed}; ask for them with "
            f"--tasks {len(frozen.ids())} --seed {frozen.seed}, or name another file for a new set"
        )
    check_set(frozen, environment, probes)
    return frozen


async def _run(
    name: str,
    policy: Policy,
    request: IntegrityRequest,
    frozen: IntegritySet,
    probes: tuple[Probe, ...],
    environment: Environment,
) -> PolicyRun:
    config = Config.model_validate(
        {
            "environment": request.name,
            "policy": name,
            "sandbox": {"backend": request.backend},
            "screening": {"mode": "off"},  # each kind has a panel of its own
        }
    )
    limits = limits_within(policy.window, config.limits, environment, frozen.split)
    set_threads(config)
    async with open_stage(config, environment, policy, config.rollout) as stage:
        return await run_set(frozen, probes, stage, config=config.rollout, limits=limits, policy=name)
