"""From a configuration to the parts that it names. Nothing is started before everything was found and checked."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import json
import secrets
import traceback
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sanderling.config import Config
from sanderling.engine.model_folder import inspect_folder, resolve_policy
from sanderling.engine.protocol import Engine, SamplingParams, Startable
from sanderling.environment import Environment
from sanderling.errors import PluginError, SandboxUnavailable, SanderlingError
from sanderling.harness.folding import with_folding
from sanderling.harness.protocol import Harness
from sanderling.harness.tokenizer import FastTokenizer
from sanderling.plugins import load_object
from sanderling.rollout.config import LimitOverrides, RolloutConfig
from sanderling.rollout.episode import Stage
from sanderling.rollout.lockstep import LockstepEngine
from sanderling.rollout.task_stream import with_limits
from sanderling.sandbox.protocol import Capabilities, SandboxBackend
from sanderling.screening.assembly import make_panel, with_canary
from sanderling.screening.panel import EpisodeScreen
from sanderling.tasks.protocol import TaskSet
from sanderling.verify.protocol import Verifier


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """What a name of one kind must lead to."""

    noun: str
    contract: type  # a class of ours, or the protocol whose public members the object must have
    arguments: str = "nothing"  # what a factory is called with
    built_in: Mapping[str, str] = field(default_factory=dict)
    settings: str = ""  # setting of the configuration with arguments of the user's for a factory; empty: there is none


_KINDS: Mapping[str, _Kind] = {
    "environments": _Kind(noun="environment", contract=Environment, settings="environment_settings"),
    "verifiers": _Kind(noun="verifier", contract=Verifier, arguments="the environment, or nothing"),
    "harnesses": _Kind(
        noun="harness",
        contract=Harness,
        arguments="the environment, or nothing",
        built_in={
            "tool-calls": "sanderling.assemble:make_tool_call_harness",
            "bash-block": "sanderling.assemble:make_bash_block_harness",
        },
    ),
    "engines": _Kind(
        noun="engine",
        contract=Engine,
        arguments="the configuration and the policy's folder, or nothing",
        built_in={
            "torch": "sanderling.compute:make_torch_engine",
            "vllm": "sanderling.compute:make_vllm_engine",
        },
    ),
    "screens": _Kind(noun="screen", contract=EpisodeScreen),
    # "local" contains nothing; it is used only when it is asked for by this name.
    "sandboxes": _Kind(
        noun="sandbox backend",
        contract=SandboxBackend,
        built_in={
            "bubblewrap": "sanderling.sandbox.bubblewrap:BubblewrapBackend",
            "docker": "sanderling.sandbox.container:docker_backend",
            "podman": "sanderling.sandbox.container:podman_backend",
            "local": "sanderling.sandbox.local:LocalBackend",
        },
    ),
}


def make(kind: str, name: str, *arguments: Any, settings: Mapping[str, Any] | None = None) -> Any:
    """Return the part that `name` means: the named object itself, or what the named class or function makes.

    Args:
        kind: environments, verifiers, harnesses, engines or sandboxes.
        name: built in, an entry point of the group sanderling.<kind>, module:name or path.py:name.
        arguments: what a class or function of this kind is called with; one that takes none is called without.
        settings: the user's own arguments for it, by name.

    Raises:
        PluginError: nothing there, it takes no such setting, making it failed, or it lacks what the kind needs; names what
            is missing.
        SanderlingError: as the class or function raises it.
    """
    wanted = _KINDS[kind]
    found = load_object(kind, name, wanted.built_in)
    if callable(found) and (inspect.isclass(found) or _lacking(found, wanted.contract)):
        found = _call(wanted, name, _with_settings(wanted, name, found, settings or {}), arguments)
    elif settings:
        raise PluginError(
            f"{wanted.noun} {name!r} is an object, no function that takes settings ({', '.join(settings)})"
        )
    if lacking := _lacking(found, wanted.contract):
        contract = f"{wanted.contract.__module__}.{wanted.contract.__name__}"
        raise PluginError(
            f"{wanted.noun} {name!r} is a {type(found).__name__} without {', '.join(lacking)}; expected an object as "
            f"{contract} describes it, or a class or function that takes {wanted.arguments} and makes one"
        )
    return found


def _with_settings(
    wanted: _Kind, name: str, factory: Callable[..., Any], settings: Mapping[str, Any]
) -> Callable[..., Any]:
    """Return the factory with the user's settings filled in, checked against its parameters."""
    if not wanted.settings:
        return factory
    parameters = inspect.signature(factory).parameters.values()
    named = [p for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    known = {p.name for p in named}
    where = f"the settings of {wanted.noun} {name!r}"
    for key in settings:
        if key not in known and not any(p.kind is p.VAR_KEYWORD for p in parameters):
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known)) or 'none'}"
            raise PluginError(f"{where} have no {key!r}; {hint}")
    missing = [p.name for p in named if p.default is p.empty and p.name not in settings]
    if missing:
        raise PluginError(f"{where} lack {missing[0]!r}; give it as --{wanted.settings}.{missing[0]}=VALUE")
    return functools.partial(factory, **settings)


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


def load_environment(
    name: str, verifier: str = "", harness: str = "", settings: Mapping[str, Any] | None = None
) -> Environment:
    """Return the environment that `name` means, with the verifier and the harness that are named; empty: with its own.

    `settings` are arguments of the function that makes it.

    Raises:
        PluginError: nothing there, or something else; its parts are checked as well.
    """
    environment: Environment = make("environments", name, settings=settings)
    for part, contract in (("tasks", TaskSet), ("harness", Harness), ("verifier", Verifier)):
        if lacking := _lacking(getattr(environment, part), contract):
            raise PluginError(
                f"environment {name!r}: its {part} is a {type(getattr(environment, part)).__name__} without "
                f"{', '.join(lacking)}; expected an object as {contract.__module__}.{contract.__name__} describes it"
            )
    if harness:
        environment = replace(environment, harness=make("harnesses", harness, environment))
    if verifier:
        environment = replace(environment, verifier=make("verifiers", verifier, environment))
    return environment


def make_tool_call_harness(environment: Environment) -> Harness:
    """Return the harness "tool-calls": JSON calls of tools for a repository, with the environment's visible tests."""
    from sanderling.harness.tool_call_harness import ToolCallHarness

    return ToolCallHarness(test_argv=environment.test_argv)


def make_bash_block_harness(environment: Environment) -> Harness:
    """Return the harness "bash-block": one block of shell commands per turn."""
    from sanderling.harness.bash_block import BashBlockHarness

    return BashBlockHarness(test_argv=environment.test_argv)


def load_backend(name: str, image: str = "") -> SandboxBackend:
    """Return the sandbox backend that `name` means.

    Args:
        name: as `make` takes it.
        image: for sandboxes of "docker" and "podman" whose task names none; "": the backend's own choice.

    Raises:
        PluginError: no such backend, or one without images. SandboxUnavailable: this machine can't run it.
    """
    if not image:
        return make("sandboxes", name)
    if name not in ("docker", "podman"):
        raise PluginError(
            f"sandbox.image = {image!r} acts with the backends docker and podman alone; sandbox.backend is {name!r}"
        )
    from sanderling.sandbox.container import ContainerBackend

    return ContainerBackend(name, image=image)


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


def make_engine(config: Config, folder: Path) -> Engine:
    """Return an engine with the policy's weights; one that is `Startable` has to be started.

    Raises:
        PluginError: no such engine. ModelError: the policy can't be loaded.
    """
    return make("engines", config.engine.name, config, folder)


@asynccontextmanager
async def open_stage(
    config: Config, environment: Environment, policy: Policy, rollout: RolloutConfig
) -> AsyncGenerator[Stage]:
    """Start sandbox backend and engine, and stop both whatever happens inside."""
    environment = replace(environment, harness=with_folding(environment.harness, config.folding))
    own = [make("screens", name) for name in config.screening.own]
    backend = load_backend(config.sandbox.backend, config.sandbox.image)
    canary = secrets.token_hex(16) if config.screening.canary == "planted" else ""
    environment = with_canary(environment, canary) if canary else environment
    try:
        capabilities = check_backend(backend)
        engine = make_engine(config, policy.folder)
        try:
            if isinstance(engine, Startable):
                await engine.start()
            yield Stage(
                environment=environment,
                backend=backend,
                engine=LockstepEngine(engine) if rollout.lockstep else engine,
                codec=environment.harness.codec(policy.tokenizer),
                sampling=SamplingParams(temperature=config.sampling.temperature, top_p=config.sampling.top_p),
                capabilities=capabilities,
                screen=make_panel(config.screening, environment, own=own, canary=canary),
            )
        finally:
            await engine.close()
    finally:
        await backend.close()
