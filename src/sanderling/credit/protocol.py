"""Who gets it: an estimator turns the rewards of a group into one advantage per turn, or per action token.

The contract is one call, `estimator(group)`. Two further members are read where an estimator has them:

    needs           what it can't do without (`Signal`); a run that lacks one of them is refused before it starts
    across_groups   a second pass over the whole step, for statistics that no group has alone
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sanderling.errors import ConfigError
from sanderling.types import Group, Signal

Credit = Mapping[str, NDArray[np.float64]]
"""Advantages by trajectory id: one array for each member of `group.graded()`, and no entry for any other. Its length is the
number of turns, or the number of action tokens of all turns; where both are the same, they mean the same."""

Needs = frozenset[Signal]


class CreditEstimator(Protocol):
    """A pure function of a group. It sees groups and turns; token arrays are written later, by `sanderling.batch`."""

    def __call__(self, group: Group) -> Credit:
        """Return the advantage of every turn, or of every action token, of every graded member.

        Advantages have the unit of the reward (or none, where the estimator divides by a deviation) and are finite. A
        group that says nothing (no member, one member, all rewards equal) gets zeros, unless the estimator compares with
        something else than siblings.
        """
        ...


@runtime_checkable
class AcrossGroups(Protocol):
    """An estimator with a second pass over all groups of a step."""

    def across_groups(self, groups: Sequence[Group], credit: Credit) -> Credit:
        """Return the final credit of all groups, given what the estimator returned for each of them."""
        ...


@runtime_checkable
class LearnsValues(Protocol):
    """An estimator with a critic: it says what the values should have been."""

    def targets(self, group: Group, lam: float) -> Credit:
        """Return lambda-returns in units of the reward, shaped as the values that it reads: per turn, or per action token.

        Args:
            group: members with values.
            lam: weight of later returns; 1.0 is the return that was seen, with the value at the end where a budget cut
                the episode and the estimator bootstraps there.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What `sanderling credit list` and docs/formulas.md say of an estimator."""

    equation: str
    source: str  # arXiv id with equation, or where the form comes from
    gradient: str  # whether the expected gradient is the policy gradient of the expected reward, and what is off if not
    level: Literal["turn", "token"] = "turn"


def needs_of(estimator: CreditEstimator) -> Needs:
    """Return what the estimator can't do without; nothing where it doesn't say."""
    return frozenset(getattr(estimator, "needs", frozenset()))


_REMEDY: Mapping[Signal, str] = {
    Signal.SIBLINGS: "set rollout.group_size to at least 2",
    Signal.STATE_KEYS: "use a sandbox backend that digests the workspace, or recorded turns with a state_key",
    Signal.TURN_REWARDS: "use an environment that provides turn rewards (Environment.provides, Reply.reward)",
    Signal.TURN_SCORES: "use an environment that provides turn scores (Environment.provides, Reply.score)",
    Signal.TURN_VALUES: 'train a value model: set critic.model to "head" or "separate"; or measure values by forking: set '
    'rollout.forks.use to "value" and rollout.forks.continuations to at least 1',
    Signal.TOKEN_VALUES: 'train a value model: set critic.model to "head" or "separate"',
    Signal.FORKS: "fork episodes: set rollout.forks.continuations to at least 1",
}


def check_needs(name: str, estimator: CreditEstimator, provided: Needs) -> None:
    """Refuse an estimator that couldn't act.

    Raises:
        ConfigError: names the first signal that is missing, and how to get it.
    """
    for signal in sorted(needs_of(estimator) - provided):
        known = ", ".join(sorted(provided)) or "none"
        raise ConfigError(
            f"credit estimator {name!r} needs {signal.value}, which this run doesn't have (it has: {known}); "
            f"{_REMEDY[signal]}, or choose another estimator"
        )


def signals_in(groups: Sequence[Group]) -> Needs:
    """Return the signals that recorded groups hold: those that at least one graded member has."""
    found: set[Signal] = set()
    for group in groups:
        graded = group.graded()
        if sum(m.trajectory.begins_episode for m in graded) > 1:
            found.add(Signal.SIBLINGS)
        turns = [turn for m in graded for turn in m.trajectory.turns]
        found |= {Signal.STATE_KEYS} if any(turn.state_key is not None for turn in turns) else set()
        found |= {Signal.TURN_REWARDS} if any(turn.reward != 0.0 for turn in turns) else set()
        found |= {Signal.TURN_SCORES} if any(turn.score is not None for turn in turns) else set()
        values = [m.values for m in graded if m.values is not None]
        found |= {Signal.TURN_VALUES} if values else set()
        found |= {Signal.TOKEN_VALUES} if any(v.at_tokens is not None for v in values) else set()
        if any(m.trajectory.parent_id is not None and m.trajectory.begins_episode for m in graded):
            found.add(Signal.FORKS)
    return frozenset(found)
