"""Estimators by name, as a configuration writes them."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from sanderling.credit.bilevel_gae import BilevelGae
from sanderling.credit.controls import OtherTasks, Reinforce, TurnIndex
from sanderling.credit.decayed import Decayed
from sanderling.credit.gigpo import Gigpo
from sanderling.credit.group_value import GroupValueGae
from sanderling.credit.grpo import Grpo
from sanderling.credit.hgpo import Hgpo
from sanderling.credit.opo import Opo
from sanderling.credit.protocol import About, CreditEstimator, needs_of
from sanderling.credit.reinforce_pp import ReinforcePlusPlus
from sanderling.credit.rloo import Rloo
from sanderling.credit.token_gae import TokenGae
from sanderling.credit.tree import TreeGrpo, TreeValue
from sanderling.credit.turn_gae import TurnGae
from sanderling.credit.turn_rewards import AccumulatedTurns, MergedRewards, MtGrpo, TurnReturn
from sanderling.credit.turn_scores import BoundedScores, TurnCredit
from sanderling.errors import ConfigError, PluginError
from sanderling.plugins import is_entry_point, load_object


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a name stands for."""

    build: Callable[..., CreditEstimator]
    preset: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""  # how this name differs from others of the same class


ESTIMATORS: Mapping[str, Entry] = {
    "grpo": Entry(build=Grpo),
    "mean": Entry(build=Grpo, preset={"normalise": "none"}, note="Dr. GRPO, mean only"),
    "rloo": Entry(build=Rloo),
    "grpo-verl": Entry(build=Grpo, preset={"eps": 1e-6}, note="as verl computes it"),
    "grpo-trl": Entry(build=Grpo, preset={"eps": 1e-4}, note="as TRL computes it"),
    "opo": Entry(build=Opo),
    "reinforce++": Entry(build=ReinforcePlusPlus),
    "reinforce++-baseline": Entry(build=ReinforcePlusPlus, preset={"baseline": "group"}),
    "gigpo": Entry(build=Gigpo),
    "gigpo-mean": Entry(build=Gigpo, preset={"normalise": "none", "gamma": 1.0}, note="mean only, undiscounted"),
    "gigpo-step": Entry(
        build=Gigpo, preset={"normalise": "none", "gamma": 1.0, "episode_weight": 0.0}, note="the step part alone"
    ),
    "gigpo-verl-agent": Entry(
        build=Gigpo, preset={"eps": 1e-6, "statistics": "turns"}, note="as verl-agent computes it by default"
    ),
    "hgpo": Entry(build=Hgpo),
    "hgpo-released": Entry(
        build=Hgpo, preset={"eps": 1e-6, "zeros": "dropped"}, note="as its released code computes it"
    ),
    "group-value-gae": Entry(build=GroupValueGae),
    "turn-gae": Entry(build=TurnGae),
    "token-gae": Entry(build=TokenGae),
    "sao": Entry(
        build=TokenGae, preset={"decay": "adaptive"}, note="lambda grows with the episode; for single rollouts"
    ),
    "compaction-gae": Entry(build=TokenGae, preset={"rows": "compaction"}, note="CompactionRL's form for several rows"),
    "bilevel-gae": Entry(build=BilevelGae),
    "mt-grpo": Entry(build=MtGrpo),
    "mt-grpo-released": Entry(build=MtGrpo, preset={"eps": 1e-4}, note="with the epsilon of its released code"),
    "turn-return": Entry(build=TurnReturn),
    "turn-accumulated": Entry(build=AccumulatedTurns, note="biased; for comparison"),
    "igpo": Entry(build=AccumulatedTurns, preset={"pool": "group"}, note="the paper's form for turn rewards"),
    "merged-rewards": Entry(build=MergedRewards),
    "turn-credit": Entry(build=TurnCredit),
    "bounded-scores": Entry(build=BoundedScores),
    "decayed": Entry(build=Decayed),
    "tree-grpo": Entry(build=TreeGrpo),
    "tree-value": Entry(build=TreeValue),
    "reinforce": Entry(build=Reinforce, note="control"),
    "other-tasks": Entry(build=OtherTasks, note="control"),
    "turn-index": Entry(build=TurnIndex, note="control"),
}
"""By name. The paper's form is the plain name; forms of other libraries carry theirs."""


def load_estimator(name: str, settings: Mapping[str, Any] | None = None) -> CreditEstimator:
    """Return the estimator called `name`, with `settings` on top of what the name stands for.

    `name` is a key of `ESTIMATORS`, an entry point of the group "sanderling.credit", "module:object" or
    "path/file.py:object": a class, which is called with the settings as keywords, or a function of a group, which
    takes none.

    Raises:
        PluginError: no such estimator, or the object can't be called.
        ConfigError: a setting is unknown, out of range, or the estimator takes none.
    """
    settings = dict(settings or {})
    if name in ESTIMATORS:
        entry = ESTIMATORS[name]
        build, settings = entry.build, {**entry.preset, **settings}
    else:
        build = _load(name)
    if not inspect.isclass(build):
        if settings:
            raise ConfigError(f"estimator {name!r} is a function and takes no settings, got {sorted(settings)}")
        return _checked(name, build)
    try:
        return _checked(name, build(**settings))
    except (ValidationError, TypeError) as error:
        raise ConfigError(f"settings {settings} don't fit estimator {name!r}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One line of `sanderling credit list`."""

    name: str
    note: str
    about: About
    needs: tuple[str, ...]
    settings: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "note": self.note,
            "level": self.about.level,
            "needs": list(self.needs),
            "equation": self.about.equation,
            "source": self.about.source,
            "gradient": self.about.gradient,
            "settings": dict(self.settings),
        }


def listed() -> list[Listed]:
    """Return what is built in, with settings as the names stand for them."""
    lines = []
    for name, entry in ESTIMATORS.items():
        estimator: Any = load_estimator(name)
        lines.append(
            Listed(
                name=name,
                note=entry.note,
                about=estimator.about,
                needs=tuple(sorted(needs_of(estimator))),
                settings=estimator.model_dump(mode="json"),
            )
        )
    return lines


def _checked(name: str, estimator: Any) -> CreditEstimator:
    """Return the estimator if it can be called with one group."""
    try:
        inspect.signature(estimator).bind(object())
    except TypeError as error:
        raise PluginError(
            f"credit estimator {name!r} can't be called with a group ({error}); expected credit(group) -> advantages by "
            "trajectory id, as sanderling.credit.protocol.CreditEstimator describes it"
        ) from error
    return estimator


def _load(name: str) -> Callable[..., CreditEstimator]:
    if (
        ":" not in name
        and not is_entry_point("credit", name)
        and (near := difflib.get_close_matches(name, ESTIMATORS, n=3))
    ):
        first = next((other for other in near if other[0] == name[0]), near[0])  # few mistype the first letter
        raise PluginError(f"no credit estimator {name!r}; did you mean {first!r}? Built in: {', '.join(ESTIMATORS)}")
    found = load_object("credit", name)
    if not callable(found):
        raise PluginError(
            f"credit estimator {name!r} is a {type(found).__name__}; expected a class or a function of a group"
        )
    return found
