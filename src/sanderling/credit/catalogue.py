"""Estimators by name, as a configuration writes them."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from sanderling.credit.grpo import Grpo
from sanderling.credit.protocol import CreditEstimator
from sanderling.credit.rloo import Rloo
from sanderling.errors import ConfigError, PluginError
from sanderling.plugins import is_entry_point, load_object

ESTIMATORS: Mapping[str, tuple[Callable[..., CreditEstimator], Mapping[str, Any]]] = {
    "grpo": (Grpo, {}),
    "mean": (Grpo, {"normalise": "none"}),
    "rloo": (Rloo, {}),
    "grpo-verl": (Grpo, {"eps": 1e-6}),
    "grpo-trl": (Grpo, {"eps": 1e-4}),
}
"""Name -> class and the settings that the name stands for. "mean" is Dr. GRPO's advantage."""


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
        build, preset = ESTIMATORS[name]
        settings = {**preset, **settings}
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
        and (near := difflib.get_close_matches(name, ESTIMATORS, n=1))
    ):
        raise PluginError(f"no credit estimator {name!r}; did you mean {near[0]!r}? Built in: {', '.join(ESTIMATORS)}")
    found = load_object("credit", name)
    if not callable(found):
        raise PluginError(
            f"credit estimator {name!r} is a {type(found).__name__}; expected a class or a function of a group"
        )
    return found
