"""How many bugs of which kind: caps, so that no function and no family of bugs dominates the tasks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from fix_python.admission import Trial
from fix_python.catalogue import digest

PER_FUNCTION = 20
PER_FAMILY_IN_FUNCTION = 3
VISIBLE_PASSES_SHARE = 0.25  # of a function's tasks, at most: bugs that no example shows are found by reading only
FAMILY_SHARE = 0.15  # of all tasks, at most


def select(trials: Mapping[str, Sequence[Trial]]) -> dict[str, list[Trial]]:
    """Return the trials that become tasks, by function, each list in order of family and line.

    Args:
        trials: admitted trials by function.
    """
    chosen = {name: _of_function(name, found) for name, found in trials.items()}
    total = Counter(t.mutant.family for found in chosen.values() for t in found)
    most = int(FAMILY_SHARE * total.total())
    for family in [family for family, count in total.items() if count > most]:
        everywhere = [(name, t) for name, found in chosen.items() for t in found if t.mutant.family == family]
        for name, trial in sorted(everywhere, key=lambda pair: _order(*pair))[most:]:
            chosen[name].remove(trial)
    return {name: sorted(found, key=_place) for name, found in chosen.items()}


def _of_function(name: str, found: Sequence[Trial]) -> list[Trial]:
    """Take from each family in turn, in an order that nobody chose, until the function has its share."""
    by_family: defaultdict[str, list[Trial]] = defaultdict(list)
    for trial in sorted(found, key=lambda t: _order(name, t)):
        by_family[trial.mutant.family].append(trial)
    turns = [family[:PER_FAMILY_IN_FUNCTION] for family in by_family.values()]
    queue = [trials[turn] for turn in range(PER_FAMILY_IN_FUNCTION) for trials in turns if turn < len(trials)]
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
