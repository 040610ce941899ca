"""All problems of the package, loaded once."""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from fix_python import functions
from fix_python.problem import REGISTRY, Problem


@cache
def problems() -> Mapping[str, Problem]:
    """Return every problem by the name of its function, in order of topic and name."""
    for module in sorted(found.name for found in pkgutil.iter_modules(functions.__path__)):
        importlib.import_module(f"{functions.__name__}.{module}")
    own = [p for p in REGISTRY.values() if p.function.__module__.startswith(f"{functions.__name__}.")]
    return {p.name: p for p in sorted(own, key=lambda p: (p.topic, p.name))}


def digest(text: str) -> str:
    """Return 16 hex digits that identify a source text, and that order things without favour."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
