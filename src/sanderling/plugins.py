"""From a name in a configuration to the object that it means.

Three spellings: an entry point of the group `sanderling.<kind>`, `module:name`, or `path/to/file.py:name`.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from sanderling.errors import PluginError


def load_object(kind: str, name: str, built_in: Mapping[str, str] | None = None) -> Any:
    """Return the object that `name` means.

    Args:
        kind: the entry point group after "sanderling.": environments, policies, sandboxes, engines, credit, verifiers,
            harnesses, screens.
        name: "fix_python", "my_package.envs:make" or "my_env.py:make".
        built_in: short names that mean a module:name of our own; no entry point can replace them.

    Raises:
        PluginError: nothing there; the message lists what is known.
    """
    built_in = built_in or {}
    name = built_in.get(name, name)
    if ":" in name:
        return _from_path(kind, name)
    found = list(entry_points(group=f"sanderling.{kind}"))
    meanings = {entry.value for entry in found if entry.name == name}
    if len(meanings) > 1:
        raise PluginError(
            f"{kind}: several installed packages register {name!r}, as {' and '.join(sorted(meanings))}; "
            "name the one that you mean as module:name"
        )
    entries = {entry.name: entry for entry in found}
    known = {**entries, **dict.fromkeys(built_in)}
    if name in entries:
        try:
            return entries[name].load()
        except Exception as error:
            raise PluginError(
                f"{kind}: entry point {name!r} ({entries[name].value}) fails to load: {error!r}"
            ) from error
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise PluginError(
        f"{kind}: no entry point {name!r}{hint} Known: {', '.join(sorted(known)) or 'none'}. "
        "Your own is named as module:name or path/to/file.py:name."
    )


def is_entry_point(kind: str, name: str) -> bool:
    """Return whether `name` is an installed entry point of the kind."""
    return any(entry.name == name for entry in entry_points(group=f"sanderling.{kind}"))


def _from_path(kind: str, name: str) -> Any:
    where, _, attribute = name.rpartition(":")
    try:
        module = _load_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    except FileNotFoundError as error:
        raise PluginError(f"{kind}: no file {where!r} (from {name!r})") from error
    except Exception as error:
        raise PluginError(f"{kind}: importing {where!r} failed (from {name!r}): {error!r}") from error
    try:
        return getattr(module, attribute)
    except AttributeError as error:
        public = [key for key in vars(module) if not key.startswith("_")]
        close = difflib.get_close_matches(attribute, public, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise PluginError(f"{kind}: {where!r} has no {attribute!r}{hint}") from error


def _load_file(path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(path)
    path = path.resolve()
    # The same file must give the same module, or classes of two loads would not compare equal.
    name = f"sanderling_plugin_{path.stem}_{abs(hash(str(path))):x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
