"""Which functions are trained on and which are held out. No function is in both, nor a near-duplicate of one.

The rule, declared here and followed by `assign`:

1. Two functions are *near* where their likeness (`similarity`, by name or blind) is `NEAR` or more. Near functions, and
   functions near to those, form a cluster that is never divided.
2. Clusters are ordered by a digest of their first name, so that nobody chose the order.
3. A cluster is held out if every topic in it still has room: at most `HELD_OUT_SHARE` of a topic, rounded, is held out.
   All others are for training.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from fix_python.catalogue import digest
from fix_python.problem import Problem
from sanderling.tasks.similarity import View, likeness, shingles

TRAIN = "train"
HELD_OUT = "held-out"
SPLITS = (TRAIN, HELD_OUT)
HELD_OUT_SHARE = 0.3
NEAR = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two functions and how alike they are in one view."""

    first: str
    second: str
    view: View
    likeness: float


def pairs(problems: Collection[Problem]) -> list[Pair]:
    """Return every pair of functions in both views, most alike first."""
    found = []
    for view in View:
        tokens = {p.name: shingles(p.source, view) for p in problems}
        for first, second in itertools.combinations(sorted(tokens), 2):
            value = likeness(tokens[first], tokens[second])
            found.append(Pair(first=first, second=second, view=view, likeness=value))
    return sorted(found, key=lambda pair: (-pair.likeness, pair.first, pair.second))


def clusters(problems: Collection[Problem]) -> list[tuple[str, ...]]:
    """Return the names of all functions, those that must stay together as one tuple."""
    cluster_of = {p.name: {p.name} for p in problems}
    for pair in pairs(problems):
        if pair.likeness >= NEAR and cluster_of[pair.first] is not cluster_of[pair.second]:
            joined = cluster_of[pair.first] | cluster_of[pair.second]
            for name in joined:
                cluster_of[name] = joined
    return sorted({tuple(sorted(names)) for names in cluster_of.values()})


def assign(problems: Collection[Problem]) -> Mapping[str, str]:
    """Return the split of each function by the rule above."""
    topic = {p.name: p.topic for p in problems}
    room = {name: round(HELD_OUT_SHARE * count) for name, count in Counter(topic.values()).items()}
    split = {}
    for cluster in sorted(clusters(problems), key=lambda names: digest(f"split {names[0]}")):
        needed = Counter(topic[name] for name in cluster)
        held_out = all(room[name] >= count for name, count in needed.items())
        for name in cluster:
            split[name] = HELD_OUT if held_out else TRAIN
            room[topic[name]] -= held_out
    return {p.name: split[p.name] for p in problems}
