"""Which definitions of a code base are trained on and which are held out: none is in both, nor a near-duplicate of one.

The rule: a top-level function or class, with all its methods, is one unit. Units whose likeness is `NEAR` or more, by name or
blind to names, form a cluster that is never divided. Clusters in an order that nobody chose are held out as long as there is
room: at most `HELD_OUT_SHARE` of the units.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Mapping

from sanderling.synthesis.candidates import digest
from sanderling.tasks.similarity import View, likeness, shingles

TRAIN = "train"
HELD_OUT = "held-out"
HELD_OUT_SHARE = 0.3
NEAR = 0.5
_LEAST_SHINGLES = 8  # smaller units are alike by chance

Unit = tuple[str, str]
"""A source file and the name of a top-level function or class in it."""


def assign_splits(sources: Mapping[str, str]) -> dict[Unit, str]:
    """Return the split of each unit.

    Args:
        sources: text of each source file by path.
    """
    texts = {unit: text for path, source in sources.items() for unit, text in _units(path, source)}
    cluster_of: dict[Unit, set[Unit]] = {unit: {unit} for unit in texts}
    for view in View:
        found = {unit: shingles(text, view) for unit, text in texts.items()}
        large = [unit for unit, pieces in found.items() if len(pieces) >= _LEAST_SHINGLES]
        for first, second in itertools.combinations(large, 2):
            small, big = sorted((len(found[first]), len(found[second])))
            if small >= NEAR * big and likeness(found[first], found[second]) >= NEAR:
                joined = cluster_of[first] | cluster_of[second]
                for unit in joined:
                    cluster_of[unit] = joined
    clusters = {tuple(sorted(units)) for units in cluster_of.values()}
    room = round(HELD_OUT_SHARE * len(texts))
    split: dict[Unit, str] = {}
    for cluster in sorted(clusters, key=lambda units: digest(f"split {' '.join(units[0])}")):
        held_out = len(cluster) <= room
        room -= len(cluster) if held_out else 0
        split |= dict.fromkeys(cluster, HELD_OUT if held_out else TRAIN)
    return split


def _units(path: str, source: str) -> list[tuple[Unit, str]]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    found: dict[Unit, str] = {}
    for top in tree.body:
        for node in [top] if isinstance(top, _DEFINITIONS) else ast.walk(top):
            if isinstance(node, _DEFINITIONS):
                found.setdefault((path, node.name), ast.unparse(node))
    return list(found.items())


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
