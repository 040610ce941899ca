"""How many bugs of which kind: caps, so that no function and no family of bugs dominates the tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from fix_python.admission import Trial
from fix_python.catalogue import digest

PER_FUNCTION = 20
PER_FAMILY_IN_FUNCTION = 6
VISIBLE_PASSES_SHARE = 0.25  # of a function's tasks, at most: bugs that no example shows are found by reading only
FAMILY_SHARE = 0.15  # of all tasks, at most
RECALLED_SHARE = 0.03  # the same for each family of `RECALLED`
RECALLED = frozenset(
    {
        "constant",
        "dropped_call",
        "dropped_statement",
        "early_exit",
        "mutable_default",
        "swapped_arguments",
        "wrong_slice",
        "wrong_variable",
    }
)
"""Families whose repair has to be recalled or understood: nothing in the line hints at it. A policy of a million parameters
finds few of them, and a group of episodes that all fail teaches nothing, so that these tasks are kept rare."""


def select(trials: Mapping[str, Sequence[Trial]]) -> dict[str, list[Trial]]:
    """Return the trials that become tasks, by function, each list in order of family and line.

    Args:
        trials: admitted trials by function.
    """
    chosen = {name: _of_function(name, found) for name, found in trials.items()}
    while surplus := _surplus(chosen):  # what goes makes the rest a larger share
        for name, trial in surplus:
            chosen[name].remove(trial)
    return {name: sorted(found, key=_place) for name, found in chosen.items()}


def _surplus(chosen: Mapping[str, Sequence[Trial]]) -> list[tuple[str, Trial]]:
    """Return the trials, with their functions, by which families exceed their share of all."""
    by_family: defaultdict[str, list[tuple[str, Trial]]] = defaultdict(list)
    for name, trial in sorted(((n, t) for n, found in chosen.items() for t in found), key=lambda pair: _order(*pair)):
        by_family[trial.mutant.family].append((name, trial))
    total = sum(map(len, by_family.values()))
    shares = {family: RECALLED_SHARE if family in RECALLED else FAMILY_SHARE for family in by_family}
    return [pair for family, pairs in by_family.items() for pair in pairs[int(shares[family] * total) :]]


def _of_function(name: str, found: Sequence[Trial]) -> list[Trial]:
    """Take from each family in turn, recalled ones last, in an order that nobody chose, until the function has its share."""
    by_family: defaultdict[str, list[Trial]] = defaultdict(list)
    for trial in sorted(found, key=lambda t: _order(name, t)):
        by_family[trial.mutant.family].append(trial)
    queue = [
        trials[turn]
        for recalled in (False, True)
        for turn in range(PER_FAMILY_IN_FUNCTION)
        for family, trials in by_family.items()
        if (family in RECALLED) is recalled and turn < len(trials)
    ]
    chosen: list[Trial] = []
    hard = 0
    for trial in queue:
        passes = trial.visible_failed == 0
        if len(chosen) < PER_FUNCTION and not (passes and hard >= int(VISIBLE_PASSES_SHARE * PER_FUNCTION)):
            chosen.append(trial)
            hard += passes
    return chosen


def _order(name: str, trial: Trial) -> str:
    return digest(f"{name} {trial.mutant.source}")


def _place(trial: Trial) -> tuple[str, int, str]:
    return trial.mutant.family, trial.mutant.line, trial.mutant.source
