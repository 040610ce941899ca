"""Which settings hold: those of a new run, or those that a resumed run was started with."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sanderling import __version__
from sanderling.compute import threads, trainer_threads
from sanderling.config import Config, load_config
from sanderling.credit.catalogue import load_estimator
from sanderling.credit.protocol import CreditEstimator, LearnsValues, check_needs
from sanderling.environment import Environment
from sanderling.errors import ConfigError, RunFolderError
from sanderling.store.run_folder import RunFolder
from sanderling.types import Signal


def check_settings(config: Config, run: Path | None, *, resume: bool) -> Config:
    """Return the configuration, if the run folder admits it. Writes nothing.

    Raises:
        RunFolderError: the folder holds a run already, or there is none to resume.
        ConfigError: the run that is to be continued was started with other settings.
    """
    if config.evaluation.split == config.split:
        raise ConfigError(
            f"split and evaluation.split are both {config.split!r}: the policy would be measured on tasks that it is trained "
            "on; name another split for one of them"
        )
    exists = run is not None and (run / "config.toml").is_file()
    if resume and not exists:
        raise RunFolderError(
            f"nothing to resume: no run at {run}; --resume needs --run with the folder of an existing run"
        )
    if exists and not resume:
        raise RunFolderError(f"{run} holds a run already; add --resume to continue it, or give another folder")
    if resume and run is not None and (changed := changed_settings(load_config([run / "config.toml"]), config)):
        raise ConfigError(
            f"{run} was started with other settings: {', '.join(changed)}. A resumed run may change steps, turn_budget, "
            "checkpoint.*, evaluation.every, evaluation.concurrency, screening.accepted_through, screening.readmitted and "
            "screening.audit_s; anything else makes it another run: start a new one"
        )
    if not resume and config.screening.readmitted:
        raise ConfigError(
            f"screening.readmitted names {next(iter(config.screening.readmitted))!r}, but a new run has no quarantined task; "
            "leave it out, or add --resume"
        )
    return config


def check_credit(config: Config, environment: Environment) -> CreditEstimator:
    """Return the configured estimator, if this run has what it needs and every setting about credit acts.

    Raises:
        PluginError: no such estimator. ConfigError: it lacks something, or a value model would not be read.
    """
    estimator = load_estimator(config.credit.estimator, config.credit.settings)
    check_needs(config.credit.estimator, estimator, provided_signals(config, environment))
    if config.critic.model != "none" and not isinstance(estimator, LearnsValues):
        raise ConfigError(
            f"critic.model = {config.critic.model!r} has no effect with credit.estimator = {config.credit.estimator!r}, which "
            'reads no values; set critic.model = "none", or an estimator such as turn-gae'
        )
    if config.critic.model != "none" and config.critic.warmup_steps >= config.steps:
        raise ConfigError(
            f"critic.warmup_steps = {config.critic.warmup_steps} leaves none of {config.steps} steps to the policy; lower it"
        )
    return estimator


def provided_signals(config: Config, environment: Environment) -> frozenset[Signal]:
    """Return what an estimator may read in this run besides the reward at the end."""
    found = set(environment.provides) | {Signal.STATE_KEYS}  # every sandbox backend digests its workspace
    found |= config.rollout.signals
    if config.critic.model != "none":
        found |= {Signal.TURN_VALUES, Signal.TOKEN_VALUES}
    return frozenset(found)


def changed_settings(stored: Config, given: Config) -> list[str]:
    """Return the dotted names of settings that differ and that a resumed run may not change."""
    old, new = _flat(_lasting(stored)), _flat(_lasting(given))
    return sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))


def open_run(config: Config, run: Path | None, *, resume: bool, certificate: Mapping[str, Any]) -> RunFolder:
    """Open the run folder, new or to be continued. `certificate` goes into environment.json.

    Raises:
        RunFolderError: the folder can't be used.
    """
    facts = {
        "environment": config.environment,
        "verifier": config.verifier or "of the environment",
        "harness": config.harness or "of the environment",
        "sanderling": __version__,
        "python": platform.python_version(),
        "machine": platform.platform(),
        "threads": threads(config),
        "trainer_threads": trainer_threads(config),
        **certificate,
        "cores": len(os.sched_getaffinity(0)),
    }
    if run is None:
        return RunFolder.create(Path("runs"), config.name, config.to_toml(), facts)
    return RunFolder.at(run, config.to_toml(), None if resume else facts)


def config_hash(config: Config) -> str:
    """Return a digest of the settings that a resumed run may not change."""
    return hashlib.sha256(json.dumps(_lasting(config), sort_keys=True).encode()).hexdigest()[:16]


def _lasting(config: Config) -> dict[str, Any]:
    """Return the settings that decide what is learnt and what is measured."""
    changeable = {
        "name": True,
        "steps": True,
        "turn_budget": True,
        "checkpoint": True,
        "evaluation": {"every", "concurrency"},
        "screening": {"accepted_through", "readmitted", "audit_s"},
    }
    return config.model_dump(mode="json", exclude=changeable)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in settings.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found
