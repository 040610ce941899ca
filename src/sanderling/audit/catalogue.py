"""The attacks and honest fixes that come with Sanderling, and those that a user adds."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence

from sanderling.audit import attacks as families
from sanderling.audit.attack import Attack
from sanderling.audit.honest import HonestFix
from sanderling.audit.report import Battery
from sanderling.audit.rewrites import HONEST
from sanderling.errors import PluginError
from sanderling.plugins import load_object


def attacks() -> tuple[Attack, ...]:
    """Return the attacks that come with Sanderling, by id."""
    found: list[Attack] = []
    for module in pkgutil.iter_modules(families.__path__):
        found += importlib.import_module(f"{families.__name__}.{module.name}").ATTACKS
    return tuple(sorted(found, key=lambda attack: attack.id))


def standard_battery(own: Sequence[str] = ()) -> Battery:
    """Return all attacks and honest fixes, with the user's own.

    Args:
        own: names of an `Attack` or a `HonestFix`, or of a list of them: an entry point of the group sanderling.attacks,
            "module:name" or "path/to/file.py:name".

    Raises:
        PluginError: nothing there, or something else. ConfigError: an id stands twice.
    """
    parts: list[Attack | HonestFix] = [*attacks(), *HONEST]
    for name in own:
        found = load_object("attacks", name)
        parts += found if isinstance(found, list | tuple) else [found]
    for part in parts:
        if not isinstance(part, Attack | HonestFix):
            raise PluginError(f"a part of the battery is a {type(part).__name__}; expected an Attack or a HonestFix")
    return Battery(
        attacks=tuple(part for part in parts if isinstance(part, Attack)),
        honest=tuple(part for part in parts if isinstance(part, HonestFix)),
    )
