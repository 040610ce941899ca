"""One configuration: TOML files from left to right, then dotted overrides. Each section stands beside the code that it sets.

Class defaults are the recommended settings, so an empty file is a good configuration. An unknown key is an error that names
the file and the nearest key; nothing is started before everything was checked.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from sanderling.batch.config import BatchConfig
from sanderling.credit.catalogue import ESTIMATORS, load_estimator
from sanderling.credit.protocol import needs_of
from sanderling.engine.vllm_config import VllmConfig
from sanderling.errors import ConfigError
from sanderling.harness.summaries import Summaries
from sanderling.learn.config import OptimizerConfig, TrainerConfig
from sanderling.learn.critic_config import CriticConfig
from sanderling.loss.config import LossConfig
from sanderling.rollout.config import LimitOverrides, RolloutConfig, SamplingConfig
from sanderling.screening.config import ScreeningConfig
from sanderling.types import Signal


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class EngineConfig(_Section):
    """Who samples."""

    name: str = Field("torch", description="torch, vllm, or an engine factory as module:name or path.py:name")
    max_batch: int = Field(64, ge=1, description="episodes that are decoded together")
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="of the sampler; what the trainer holds is in the section trainer"
    )
    attention: Literal["sdpa", "eager"] = Field("sdpa", description="attention code of the model inside transformers")
    prompts: Literal["each", "shared"] = Field(
        "shared",
        description="shared: what contexts of siblings have in common is read once and its keys and values are copied; equal "
        "up to float error, and much cheaper for long prompts; each: every context by itself",
    )
    device: str = Field("cpu", description="torch device of sampler and trainer")
    threads: int = Field(0, ge=0, description="CPU threads of the sampler; 0: all cores but one, for the tools")
    vllm: VllmConfig = Field(VllmConfig(), description="of the engine vllm")


class SandboxConfig(_Section):
    """Where actions happen."""

    backend: str = Field(
        "bubblewrap", description="bubblewrap, docker, podman, local (no isolation), or module:name, path.py:name"
    )
    image: str = Field("", description="container image for docker and podman where a task names none; never pulled")


class CreditConfig(_Section):
    """Who gets the reward."""

    estimator: str = Field("grpo", description="a name of sanderling.credit, or module:name, path.py:name")
    settings: dict[str, Any] = Field(default_factory=dict, description="settings of that estimator")


class EvaluationConfig(_Section):
    """How the policy is measured before, while and after it learns."""

    split: str = Field("held-out", description="split of the environment; its tasks are never trained on")
    tasks: int = Field(300, ge=1, description="tasks, drawn once per run from the split")
    samples: int = Field(1, ge=1, description="episodes per task at temperature 1")
    greedy: bool = Field(False, description="also measure greedy decoding, one episode per task")
    every: int = Field(0, ge=0, description="steps between evaluations while training; 0: only before and after")
    concurrency: int = Field(128, ge=1, description="episodes at once")
    seed: int = Field(0, description="of the choice of tasks and of the sampled actions")


class TrustConfig(_Section):
    """What a run asks of the environment before it pays any reward."""

    certificate: Literal["required", "none"] = Field(
        "required",
        description="of `sanderling audit`, valid for the environment as it is; none: train without, which the run's files and "
        "its report then say",
    )
    file: str = Field(
        "",
        description="the certificate; empty: certificates/<environment>.json here, else the one that the environment ships",
    )


class CheckpointConfig(_Section):
    """What a killed run goes on from."""

    every: int = Field(10, ge=1, description="optimiser steps between checkpoints; the last step always makes one")
    keep: int = Field(2, ge=1, description="checkpoints kept, the newest ones")


class Config(_Section):
    """Everything that a run needs to know."""

    name: str = Field("train", description="part of the run folder's name")
    environment: str = Field("fix_python", description="entry point, module:name or path.py:name")
    environment_settings: dict[str, Any] = Field(
        default_factory=dict, description="arguments of the function that makes the environment, such as path"
    )
    verifier: str = Field(
        "", description="judges in place of the environment's own verifier: entry point, module:name or path.py:name"
    )
    harness: str = Field(
        "",
        description="in place of the environment's own: tool-calls, bash-block, an entry point, module:name or path.py:name",
    )
    folding: Summaries = Field(
        Summaries.OFF,
        description="trained, untrained: the policy may fold its context into a summary, whose tokens are trained or not; off: "
        "it can't",
    )
    split: str = Field("train", description="split of the environment that is trained on")
    policy: str = Field("fix-python-tiny", description="a shipped policy, a Hugging Face model folder, or a hub id")
    steps: int = Field(40, ge=1, description="optimiser steps")
    turn_budget: int | None = Field(
        None,
        ge=1,
        description="environment turns after which training ends, those of lost attempts and forks included; the step that "
        "spends the last of them is finished. None: only steps end it",
    )
    seed: int = Field(0, ge=0, description="of task order, actions and gradings")
    control: Literal["none", "shuffled_rewards"] = Field(
        "none",
        description="shuffled_rewards: the rewards of each group are dealt out at random among its members before credit; "
        "nothing should be learnt. A negative control for a claim, not a way to train",
    )
    engine: EngineConfig = EngineConfig()
    sandbox: SandboxConfig = SandboxConfig()
    sampling: SamplingConfig = SamplingConfig()
    rollout: RolloutConfig = RolloutConfig()
    limits: LimitOverrides = LimitOverrides()
    screening: ScreeningConfig = ScreeningConfig()
    credit: CreditConfig = CreditConfig()
    critic: CriticConfig = CriticConfig()
    trainer: TrainerConfig = TrainerConfig()
    batch: BatchConfig = BatchConfig()
    loss: LossConfig = LossConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    trust: TrustConfig = TrustConfig()

    @model_validator(mode="after")
    def _a_group_needs_siblings(self) -> Config:
        if self.credit.estimator not in ESTIMATORS:
            return self
        siblings = Signal.SIBLINGS in needs_of(load_estimator(self.credit.estimator, self.credit.settings))
        if siblings and self.rollout.group_size < 2:
            raise ValueError(
                f"credit.estimator = {self.credit.estimator!r} compares siblings, so rollout.group_size must be at least 2, "
                f"got {self.rollout.group_size}: nothing would be learnt"
            )
        if siblings and self.sampling.temperature == 0:
            raise ValueError(
                "sampling.temperature = 0 makes all siblings the same, so nothing would be learnt; set it to 1.0"
            )
        return self

    @model_validator(mode="after")
    def _a_critic_trains_in_float32(self) -> Config:
        critic, half = self.critic, self.trainer.weight_dtype == "bfloat16"
        if half and critic.model == "separate" and critic.train != "head":
            raise ValueError(
                "critic.model = 'separate' trains a copy of the weights, too coarse in trainer.weight_dtype = 'bfloat16'; "
                "set critic.train = 'head' or trainer.weight_dtype = 'float32'"
            )
        return self

    def to_toml(self) -> str:
        """Return the whole resolved configuration; reading it back gives an equal one."""
        return tomli_w.dumps(_without_none(self.model_dump(mode="json")))


def load_config(files: Sequence[Path] = (), overrides: Mapping[str, Any] | None = None) -> Config:
    """Read files from left to right, then apply overrides such as {"rollout.group_size": 4}.

    Raises:
        ConfigError: a file is missing or not TOML, a key is unknown, a value is out of range, or settings contradict.
    """
    merged: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for file in files:
        _merge(merged, _read(file), str(file), origin)
    for dotted, value in (overrides or {}).items():
        nested: Any = value
        for key in reversed(dotted.split(".")):
            nested = {key: nested}
        _merge(merged, nested, f"--{dotted}", origin)
    try:
        return Config.model_validate(merged)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(detail, origin) for detail in error.errors())) from None


def parse_overrides(tokens: Sequence[str]) -> dict[str, Any]:
    """Return the overrides in command-line tokens: `--a.b=value` or `--a.b value`; values are TOML, else plain text.

    Raises:
        ConfigError: a token is no override, or its value is missing.
    """
    overrides: dict[str, Any] = {}
    rest = list(tokens)
    while rest:
        token = rest.pop(0)
        if not token.startswith("--") or len(token) == 2:
            raise ConfigError(f"{token!r} is neither a TOML file nor an override such as --rollout.group_size=4")
        key, equals, value = token[2:].partition("=")
        if not equals:
            if not rest:
                raise ConfigError(f"--{key} needs a value, such as --{key}=4")
            value = rest.pop(0)
        overrides[key.replace("-", "_")] = parse_value(value)
    return overrides


def parse_value(text: str) -> Any:
    """Return the TOML value that a text is, or the text itself where it is none."""
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"no configuration file {file}; give an existing TOML file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} can't be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not TOML: {error}") from error


def _merge(into: dict[str, Any], new: Mapping[str, Any], source: str, origin: dict[str, str], prefix: str = "") -> None:
    for key, value in new.items():
        path = f"{prefix}{key}"
        origin[path] = source
        # Settings belong to the part that they are for, so a later file replaces them as a whole.
        whole = path in ("credit.settings", "environment_settings", "screening.severities") and not source.startswith(
            "--"
        )
        if isinstance(value, Mapping) and isinstance(into.get(key), dict) and not whole:
            _merge(into[key], value, source, origin, f"{path}.")
        elif isinstance(value, Mapping):
            into[key] = {}
            _merge(into[key], value, source, origin, f"{path}.")
        else:
            into[key] = value


def _explain(detail: Any, origin: Mapping[str, str]) -> str:
    """Say in one line what is wrong with one setting, where it was set, and what would be right."""
    path = ".".join(str(part) for part in detail["loc"])
    where = origin.get(path, "the defaults")
    if detail["type"] == "extra_forbidden":
        known = _keys_at(detail["loc"][:-1])
        close = difflib.get_close_matches(str(detail["loc"][-1]), known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
        return f"{where}: unknown key {path!r}; {hint}"
    message = detail["msg"].removeprefix("Value error, ")
    return f"{where}: {path} = {detail['input']!r}: {message}" if path else message


def _keys_at(location: Sequence[Any]) -> list[str]:
    model: type[BaseModel] = Config
    for part in location:
        field = model.model_fields.get(str(part))
        annotation = field.annotation if field else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return list(model.model_fields)


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return value
