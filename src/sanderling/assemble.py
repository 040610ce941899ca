"""From a configuration to the parts that it names. Nothing is started before everything was found and checked."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import traceback
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sanderling.config import Config
from sanderling.engine.model_folder import inspect_folder, resolve_policy
from sanderling.engine.protocol import Engine, SamplingParams
from sanderling.environment import Environment
from sanderling.errors import PluginError, SandboxUnavailable, SanderlingError
from sanderling.harness.protocol import Harness
from sanderling.harness.tokenizer import FastTokenizer
from sanderling.plugins import load_object
from sanderling.rollout.config import LimitOverrides, RolloutConfig
from sanderling.rollout.episode import Stage
from sanderling.rollout.lockstep import LockstepEngine
from sanderling.rollout.scheduler import with_limits
from sanderling.sandbox.protocol import Capabilities, SandboxBackend
from sanderling.tasks.protocol import TaskSet
from sanderling.verify.protocol import Verifier


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """What a name of one kind must lead to."""

    noun: str
    contract: type  # a class of ours, or the protocol whose public members the object must have
    arguments: str = "nothing"  # what a factory is called with
    built_in: Mapping[str, str] = field(default_factory=dict)


_KINDS: Mapping[str, _Kind] = {
    "environments": _Kind(noun="environment", contract=Environment),
    "verifiers": _Kind(noun="verifier", contract=Verifier, arguments="the environment, or nothing"),
    "engines": _Kind(
        noun="engine",
        contract=Engine,
        arguments="the configuration and the policy's folder, or nothing",
        built_in={"torch": "sanderling.assemble:make_torch_engine"},
    ),
    # "local" contains nothing; it is used only when it is asked for by this name.
    "sandboxes": _Kind(
        noun="sandbox backend",
        contract=SandboxBackend,
        built_in={
            "bubblewrap": "sanderling.sandbox.bubblewrap:BubblewrapBackend",
            "local": "sanderling.sandbox.local:LocalBackend",
        },
    ),
}


def make(kind: str, name: str, *arguments: Any) -> Any:
    """Return the part that `name` means: the named object itself, or what the named class or function makes.

    Args:
        kind: environments, verifiers, engines or sandboxes.
        name: built in, an entry point of the group sanderling.<kind>, module:name or path.py:name.
        arguments: what a class or function of this kind is called with; one that takes none is called without.

    Raises:
        PluginError: nothing there, making it failed, or it lacks what the kind needs; names what is missing.
        SanderlingError: as the class or function raises it.
    """
    wanted = _KINDS[kind]
    found = load_object(kind, name, wanted.built_in)
    if callable(found) and (inspect.isclass(found) or _lacking(found, wanted.contract)):
        found = _call(wanted, name, found, arguments)
    if lacking := _lacking(found, wanted.contract):
        contract = f"{wanted.contract.__module__}.{wanted.contract.__name__}"
        raise PluginError(
            f"{wanted.noun} {name!r} is a {type(found).__name__} without {', '.join(lacking)}; expected an object as "
            f"{contract} describes it, or a class or function that takes {wanted.arguments} and makes one"
        )
    return found


def _lacking(found: object, contract: type) -> list[str]:
    """Return the members of a contract that an object lacks; a dataclass of ours has to be met by its own instances."""
    if dataclasses.is_dataclass(contract):
        if isinstance(found, contract):
            return []
        return [f.name for f in dataclasses.fields(contract) if not hasattr(found, f.name)] or ["being one"]
    members = {name: member for name, member in vars(contract).items() if not name.startswith("_")}
    return [
        name
        for name, member in members.items()
        if not hasattr(found, name) or (callable(member) and not callable(getattr(found, name)))
    ]


def _call(wanted: _Kind, name: str, factory: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    for given in (arguments, ()):
        if _takes(factory, given):
            break
    else:
        raise PluginError(
            f"{wanted.noun} {name!r} can't be called: {factory!r} has the signature {inspect.signature(factory)}; expected "
            f"one that takes {wanted.arguments}"
        )
    try:
        return factory(*given)
    except SanderlingError:
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise PluginError(
            f"{wanted.noun} {name!r} can't be made: {error!r} at {frame.filename}, line {frame.lineno}"
        ) from error


def _takes(factory: Callable[..., Any], arguments: Sequence[Any]) -> bool:
    try:
        inspect.signature(factory).bind(*arguments)
    except TypeError:
        return False
    except ValueError:  # written in C without a signature: calling it is the only way to know
        pass
    return True


def load_environment(name: str, verifier: str = "") -> Environment:
    """Return the environment that `name` means, with the verifier that `verifier` means; empty: with its own.

    Raises:
        PluginError: nothing there, or something else; its parts are checked as well.
    """
    environment: Environment = make("environments", name)
    for part, contract in (("tasks", TaskSet), ("harness", Harness), ("verifier", Verifier)):
        if lacking := _lacking(getattr(environment, part), contract):
            raise PluginError(
                f"environment {name!r}: its {part} is a {type(getattr(environment, part)).__name__} without "
                f"{', '.join(lacking)}; expected an object as {contract.__module__}.{contract.__name__} describes it"
            )
    if not verifier:
        return environment
    return replace(environment, verifier=make("verifiers", verifier, environment))


def load_backend(name: str) -> SandboxBackend:
    """Return the sandbox backend that `name` means.

    Raises:
        PluginError: no such backend. SandboxUnavailable: this machine can't run it.
    """
    return make("sandboxes", name)


def check_backend(backend: SandboxBackend) -> Capabilities:
    """Run a sandbox and return what it guarantees.

    Raises:
        SandboxUnavailable: it doesn't run here; says what is missing.
    """
    found = backend.probe()
    if not isinstance(found, Capabilities):
        raise PluginError(
            f"probe() of the sandbox backend {type(backend).__name__} returned {found!r}; expected Capabilities "
            "(sanderling.sandbox.protocol): what it guarantees is stored with every episode"
        )
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
    window: int | None  # tokens that the model can read at most, where its config says so


def load_policy_folder(name: str) -> Policy:
    """Find a policy by name, folder or hub id, and load its tokenizer.

    Raises:
        ModelError: the folder is missing, incomplete or damaged.
    """
    folder = resolve_policy(name)
    inspect_folder(folder)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    window = config.get("max_position_embeddings", (config.get("text_config") or {}).get("max_position_embeddings"))
    return Policy(name=name, folder=folder, tokenizer=FastTokenizer(folder), window=window)


def limits_within(window: int | None, limits: LimitOverrides, environment: Environment, split: str) -> LimitOverrides:
    """Return the overrides with contexts cut to what the model can read, where tasks of the split would go beyond it."""
    first = next(iter(environment.tasks.ids(split)), None)
    if window is None or first is None:
        return limits
    wanted = with_limits(environment.tasks.get(first), limits).limits.max_context_tokens
    return limits.model_copy(update={"max_context_tokens": window}) if wanted > window else limits


def make_model(config: Config, folder: Path, *, dtype: str) -> Any:
    """Load one copy of the policy's model, for the sampler or for the trainer.

    Raises:
        ModelError: the policy can't be loaded.
        ConfigError: the device is not there, or has no bfloat16 arithmetic and it is asked for.
    """
    from sanderling.engine.torch_model import Attention, ModelDtype, check_device, load_model

    check_device(config.engine.device, bfloat16="bfloat16" in (dtype, config.trainer.compute_dtype))
    return load_model(
        folder,
        dtype=ModelDtype(dtype),
        attention=Attention(config.engine.attention),
        device=config.engine.device,
    )


def make_engine(config: Config, folder: Path) -> Engine:
    """Return a running engine with the policy's weights.

    Raises:
        PluginError: no such engine. ModelError: the policy can't be loaded.
    """
    return make("engines", config.engine.name, config, folder)


def make_torch_engine(config: Config, folder: Path) -> Engine:
    """Return the built-in engine."""
    from sanderling.engine.torch_decoder import Prompts
    from sanderling.engine.torch_engine import TorchEngine

    model = make_model(config, folder, dtype=config.engine.dtype)
    return TorchEngine(
        model,
        max_batch=config.engine.max_batch,
        threads=threads(config),
        prompts=Prompts(config.engine.prompts),
    )


def threads(config: Config) -> int:
    """Return the number of CPU threads that torch may use."""
    return config.engine.threads or len(os.sched_getaffinity(0))


def set_threads(config: Config) -> None:
    """Bound torch's threads and seed its generator; the sampler draws from streams of its own."""
    import torch

    torch.set_num_threads(threads(config))
    torch.manual_seed(config.seed)


@asynccontextmanager
async def open_stage(
    config: Config, environment: Environment, policy: Policy, rollout: RolloutConfig
) -> AsyncGenerator[Stage]:
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
                capabilities=capabilities,
            )
        finally:
            await engine.close()
    finally:
        await backend.close()
