"""What a plan is made for: the work, the machines, and how episodes are scheduled. Units are in the names."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sanderling.errors import ConfigError
from sanderling.rollout.config import RolloutConfig
from sanderling.simulation.distributions import Distribution, Drawn


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _mean(value: float, cv: float = 0.0) -> Distribution:
    return Distribution(mean=value, cv=cv)


class Placement(StrEnum):
    """Whose cores the tools run on."""

    APART = "apart"  # machines of their own: engine and learner have devices
    TOGETHER = "together"  # one machine's cores, which engine and learner use as well


class WorkloadConfig(_Section):
    """What an episode is made of. Every figure is drawn anew, per call where it is of a call."""

    turns: Drawn = Field(_mean(30.0, 0.8), description="turns until the episode ends by itself")
    prompt_tokens: Drawn = Field(_mean(2000.0), description="tokens before the first action")
    action_tokens: Drawn = Field(_mean(150.0, 1.0), description="sampled tokens of a turn")
    observation_tokens: Drawn = Field(_mean(400.0, 1.5), description="tokens of what a turn is answered")
    sandbox_s: Drawn = Field(_mean(1.0, 0.5), description="seconds to get a sandbox")
    tool_s: Drawn = Field(_mean(1.0, 2.0), description="seconds of the tools of a turn, alone on a core")
    grade_s: Drawn = Field(_mean(30.0, 0.5), description="seconds of a grading, alone on a core")
    slow_tasks_cv: float = Field(
        0.3,
        ge=0.0,
        description="how much turns and tool times differ between tasks: siblings share a log-normal factor",
    )
    success: float = Field(0.4, ge=0.0, le=1.0, description="share of submitted episodes that are right")
    success_spread: float = Field(
        0.6,
        ge=0.0,
        lt=1.0,
        description="0: every task is as hard as any other; near 1: siblings succeed or fail together",
    )
    sandbox_lost: float = Field(0.0, ge=0.0, lt=1.0, description="probability per turn that the sandbox is lost")
    engine_error: float = Field(0.0, ge=0.0, lt=1.0, description="probability per turn that the model call fails")
    verifier_error: float = Field(0.0, ge=0.0, lt=1.0, description="probability per episode that grading fails")
    tool_hangs: float = Field(
        0.0, ge=0.0, lt=1.0, description="probability per turn of a tool that runs into command_s"
    )
    max_turns: int = Field(200, ge=1, description="turns after which an episode is cut")
    max_context_tokens: int = Field(131_072, ge=16, description="tokens at which an episode is cut")
    command_s: float = Field(300.0, gt=0, description="seconds after which the tools of a turn are cut")
    episode_s: float = Field(7200.0, gt=0, description="seconds of tools after which an episode is cut")


class EngineShape(_Section):
    """Who samples. A decoding step of n sequences takes step_s + token_s * n / replicas seconds."""

    replicas: int = Field(1, ge=1, description="engines among which sequences are dealt evenly")
    slots: int = Field(256, ge=1, description="sequences that one replica decodes at once; further ones wait")
    step_s: float = Field(0.02, ge=0, description="seconds of a decoding step, whatever is in it")
    token_s: float = Field(1e-4, ge=0, description="seconds that each further sequence adds to a step")
    read_share: float = Field(
        0.05, ge=0, description="what reading a token of prompt or observation costs, as a share of sampling one"
    )
    call_s: float = Field(
        0.0, ge=0, description="seconds of a model call beside this: the way there and back, a pass over what is new"
    )
    push_s: float = Field(5.0, ge=0, description="seconds of a weight push")


class LearnerShape(_Section):
    """Who learns."""

    fixed_s: float = Field(0.0, ge=0, description="seconds of a step, whatever is in it")
    tokens_per_s: float = Field(50_000.0, gt=0, description="tokens of live rows, context included, per second")
    store_s: float = Field(
        0.0, ge=0, description="seconds per episode of storing it, while everything else stands still"
    )
    commit_s: float = Field(0.0, ge=0, description="seconds of what follows a step, such as its checkpoint")


class MachineShape(_Section):
    """Where tools and gradings run."""

    placement: Placement = Field(Placement.APART, description="apart, or together with engine and learner")
    cores: float = Field(0.0, ge=0, description="cores that they share; 0: as many as they need")


class Price(_Section):
    """What the machines cost per hour, in any currency."""

    engine: float = Field(0.0, ge=0, description="of all replicas")
    learner: float = Field(0.0, ge=0)
    sandboxes: float = Field(0.0, ge=0)

    @property
    def per_hour(self) -> float:
        return self.engine + self.learner + self.sandboxes


class PlanConfig(_Section):
    """Everything that a plan needs to know."""

    workload: WorkloadConfig = WorkloadConfig()
    engine: EngineShape = EngineShape()
    learner: LearnerShape = LearnerShape()
    machine: MachineShape = MachineShape()
    price: Price = Price()
    rollout: RolloutConfig = Field(RolloutConfig(), description="as in a run; max_staleness is set by `staleness`")
    staleness: tuple[int, ...] = Field((0, 1, 4), min_length=1, description="values of max_staleness to compare")
    steps: int = Field(3, ge=1, description="steps that are measured")
    warmup: int = Field(2, ge=0, description="steps before these, in which the queues fill")
    rounds: int = Field(
        8,
        ge=1,
        description="an episode of more turns is played in so many rounds, each of which stands for several turns",
    )
    seed: int = Field(0, ge=0, description="of everything that is drawn")


def load_plan(file: Path, overrides: Mapping[str, Any]) -> PlanConfig:
    """Read a plan from TOML; dotted overrides such as {"engine.replicas": 8} come last.

    Raises:
        ConfigError: the file is missing or not TOML, a key is unknown, or a value is out of range.
    """
    try:
        settings = tomllib.loads(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the plan {file} can't be read: {error}; give a TOML file or a run folder") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not TOML: {error}") from error
    return revised(settings, overrides, str(file))


def revised(settings: Mapping[str, Any], overrides: Mapping[str, Any], source: str) -> PlanConfig:
    """Return the plan that settings are, with dotted overrides put in; `source` names them in messages.

    Raises:
        ConfigError: a key is unknown or a value is out of range.
    """
    merged = _copied(settings)
    for dotted, value in overrides.items():
        *path, last = dotted.split(".")
        place = merged
        for key in path:
            place = place.setdefault(key, {})
            if not isinstance(place, dict):
                raise ConfigError(f"--{dotted}: {key} is no section")
        place[last] = value
    try:
        return PlanConfig.model_validate(merged)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(detail, source) for detail in error.errors())) from None


def _copied(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copied(value) if isinstance(value, Mapping) else value for key, value in settings.items()}


def _explain(detail: Any, source: str) -> str:
    path = ".".join(str(part) for part in detail["loc"])
    if detail["type"] != "extra_forbidden":
        return f"{source}: {path} = {detail['input']!r}: {detail['msg'].removeprefix('Value error, ')}"
    model: Any = PlanConfig
    for part in detail["loc"][:-1]:
        model = model.model_fields[part].annotation
    known = list(model.model_fields)
    close = difflib.get_close_matches(str(detail["loc"][-1]), known, n=1)
    return f"{source}: unknown key {path!r}; " + (
        f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
    )
