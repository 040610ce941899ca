"""From a configuration to the parts that it names. Nothing is started before everything was found and checked."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sanderling.config import Config
from sanderling.engine.model_folder import inspect_folder, resolve_policy
from sanderling.engine.protocol import Engine, SamplingParams
from sanderling.environment import Environment
from sanderling.errors import PluginError, SandboxUnavailable
from sanderling.harness.tokenizer import FastTokenizer
from sanderling.plugins import is_entry_point, load_object
from sanderling.rollout.config import RolloutConfig
from sanderling.rollout.episode import Stage
from sanderling.rollout.lockstep import LockstepEngine
from sanderling.sandbox.protocol import Capabilities, SandboxBackend


def load_environment(name: str) -> Environment:
    """Return the environment that `name` means: an `Environment`, or a function without arguments that makes one.

    Raises:
        PluginError: nothing there, or something else.
    """
    found = load_object("environments", name)
    environment = found() if callable(found) else found
    if not isinstance(environment, Environment):
        raise PluginError(f"environment {name!r} is a {type(environment).__name__}; an Environment was expected")
    return environment


def load_backend(name: str) -> SandboxBackend:
    """Return a new sandbox backend; "local" contains nothing and is used only when it is asked for by this name.

    Raises:
        PluginError: no such backend. SandboxUnavailable: this machine can't run it.
    """
    if name == "bubblewrap":
        from sanderling.sandbox.bubblewrap import BubblewrapBackend

        return BubblewrapBackend()
    if name == "local":
        from sanderling.sandbox.local import LocalBackend

        return LocalBackend()
    return load_object("sandboxes", name)()


def check_backend(backend: SandboxBackend) -> Capabilities:
    """Run a sandbox and return what it guarantees.

    Raises:
        SandboxUnavailable: it doesn't run here; says what is missing.
    """
    found = backend.probe()
    if not found.usable:
        missing = "\n  ".join(found.missing) or "no reason given"
        raise SandboxUnavailable(
            f"the sandbox backend {found.name!r} can't run on this machine:\n  {missing}\n"
            "`sanderling doctor` shows every check. Nothing is run without a sandbox unless you ask for it with "
            "--sandbox.backend=local, which contains nothing."
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy on disk and its tokenizer."""

    name: str
    folder: Path
    tokenizer: FastTokenizer


def load_policy_folder(name: str) -> Policy:
    """Find a policy by name, folder or hub id, and load its tokenizer.

    Raises:
        ModelError: the folder is missing, incomplete or damaged.
    """
    folder = resolve_policy(name)
    inspect_folder(folder)
    return Policy(name=name, folder=folder, tokenizer=FastTokenizer(folder))


def make_model(config: Config, folder: Path) -> Any:
    """Load one copy of the policy's model, for the sampler or for the trainer."""
    from sanderling.engine.torch_model import Attention, ModelDtype, load_model

    return load_model(
        folder,
        dtype=ModelDtype(config.engine.dtype),
        attention=Attention(config.engine.attention),
        device=config.engine.device,
    )


def make_engine(config: Config, folder: Path) -> Engine:
    """Return a running engine with the policy's weights.

    Raises:
        PluginError: no such engine. ModelError: the policy can't be loaded.
    """
    if config.engine.name != "torch" or is_entry_point("engines", config.engine.name):
        return load_object("engines", config.engine.name)(config, folder)
    from sanderling.engine.torch_engine import TorchEngine

    return TorchEngine(make_model(config, folder), max_batch=config.engine.max_batch, threads=threads(config))


def threads(config: Config) -> int:
    """Return the number of CPU threads that torch may use."""
    return config.engine.threads or len(os.sched_getaffinity(0))


@asynccontextmanager
async def open_stage(
    config: Config, environment: Environment, policy: Policy, rollout: RolloutConfig
) -> AsyncIterator[Stage]:
    """Start sandbox backend and engine, and stop both whatever happens inside."""
    backend = load_backend(config.sandbox.backend)
    try:
        capabilities = check_backend(backend)
        engine = make_engine(config, policy.folder)
        try:
            yield Stage(
                environment=environment,
                backend=backend,
                engine=LockstepEngine(engine) if rollout.lockstep else engine,
                codec=environment.harness.codec(policy.tokenizer),
                sampling=SamplingParams(temperature=config.sampling.temperature, top_p=config.sampling.top_p),
                isolation=capabilities.isolation,
            )
        finally:
            await engine.close()
    finally:
        await backend.close()
