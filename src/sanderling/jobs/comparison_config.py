"""What `sanderling credit compare` reads: one training configuration, arms that differ from it, seeds and a budget.

[train]                      settings of all arms, as `sanderling train` has them
[budget] turns = 20000       environment turns of each run, whatever becomes of them
[tuning]                     the same effort for every arm, on seeds that are not reported
[arms.rloo.credit]           one table per arm: what it changes
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from sanderling.config import Config, load_config
from sanderling.errors import ConfigError

SHARED = (
    "policy",
    "environment",
    "environment_settings",
    "verifier",
    "harness",
    "split",
    "seed",
    "steps",
    "turn_budget",
    "limits",
    "evaluation",
    "sampling",
)
"""What all arms have in common: initial weights, tasks, budget and how they are measured. An arm can't change these."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Budget(_Section):
    """What each run may spend."""

    turns: int = Field(ge=1, description="environment turns per run; lost attempts and forks count")


class Tuning(_Section):
    """One setting that is chosen for each arm by the area under its curve, with the same effort for all."""

    setting: str = Field("optimizer.learning_rate", description="dotted name of the setting")
    values: tuple[float, ...] = Field(min_length=2, description="what is tried, in order")
    seeds: tuple[int, ...] = Field(min_length=1, description="none of them is a seed that is reported")
    turns: int = Field(ge=1, description="budget of one trial")


class ComparisonConfig(_Section):
    """A whole comparison."""

    name: str = "credit-compare"
    seeds: tuple[int, ...] = Field(min_length=1, description="of the reported runs; each arm runs with each")
    reference: str = Field(description="arm that the others are compared with")
    budget: Budget
    tuning: Tuning | None = None
    train: dict[str, Any] = Field(default_factory=dict)
    arms: dict[str, dict[str, Any]] = Field(min_length=2)

    @model_validator(mode="after")
    def _is_a_comparison(self) -> Self:
        if self.reference not in self.arms:
            raise ValueError(f"reference = {self.reference!r} is no arm; arms are {', '.join(self.arms)}")
        for name, changes in self.arms.items():
            if taken := sorted(set(changes) & set(SHARED)):
                raise ValueError(
                    f"arm {name!r} sets {', '.join(taken)}, which all arms share: it would be another comparison; set it in "
                    "[train]"
                )
        if self.tuning is not None and (both := set(self.tuning.seeds) & set(self.seeds)):
            raise ValueError(f"seeds {sorted(both)} are tuned on and reported; tune on others")
        if taken := sorted({"seed", "turn_budget"} & set(self.train)):
            raise ValueError(f"[train] sets {', '.join(taken)}, which the comparison sets: use seeds and [budget]")
        return self

    def plan(self) -> str:
        """Return in words how many runs this is and what they may spend."""
        reported = len(self.arms) * len(self.seeds)
        text = f"{reported} runs of {self.budget.turns} turns: {len(self.arms)} arms x {len(self.seeds)} seeds"
        if (tuning := self.tuning) is not None:
            trials = len(self.arms) * len(tuning.values) * len(tuning.seeds)
            text += f"; before them {trials} runs of {tuning.turns} turns to tune {tuning.setting}"
        return text

    def run(self, arm: str, *, seed: int, turns: int, tuned: float | None = None) -> Config:
        """Return the training configuration of one run.

        Raises:
            ConfigError: settings don't fit together.
        """
        changes: dict[str, Any] = {**self.train}
        for key, value in self.arms[arm].items():
            changes[key] = {**changes[key], **value} if isinstance(changes.get(key), Mapping) else value
        changes |= {"seed": seed, "turn_budget": turns, "name": f"{self.name}-{arm}"}
        if self.tuning is not None and tuned is not None:
            changes[self.tuning.setting] = tuned
        try:
            return load_config([], changes)
        except ConfigError as error:
            raise ConfigError(f"arm {arm!r}: {error}") from error


def load_comparison(file: Path) -> ComparisonConfig:
    """Read a comparison and check the configuration of every arm.

    Raises:
        ConfigError: the file is missing or no TOML, a key is unknown, or arms and settings don't fit together.
    """
    try:
        comparison = ComparisonConfig.model_validate(tomllib.loads(file.read_text("utf-8")))
    except FileNotFoundError:
        raise ConfigError(f"no comparison file {file}; give an existing TOML file") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{file} can't be read as TOML: {error}") from error
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, e['loc']))}: {e['msg'].removeprefix('Value error, ')}" for e in error.errors()]
        raise ConfigError(f"{file}: " + "\n".join(line.removeprefix(": ") for line in lines)) from None
    for arm in comparison.arms:
        comparison.run(arm, seed=comparison.seeds[0], turns=comparison.budget.turns)
    return comparison
