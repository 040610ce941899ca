"""Values for estimators that need them: a table that learns beside the policy, the exact ones, or continuations.

A table over the views knows the whole history as the policy does; a table over the state keys knows what an observation
shows. Both move half-way to the mean target of each batch, as a critic does that has seen little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from sanderling.creditbench.exact import solve
from sanderling.creditbench.mdp import FiniteMdp, FloatArray, IntArray
from sanderling.creditbench.sampling import Walks, sample
from sanderling.types import Group, Values


class ValueSource(StrEnum):
    """Where an arm's values come from."""

    NONE = "none"
    HISTORY = "history"  # a learnt table over what the policy distinguishes
    OBSERVATION = "observation"  # a learnt table over the state key
    CONTINUATIONS = "continuations"  # mean outcome of fresh episodes from each state (VinePPO)


@dataclass(slots=True, kw_only=True)
class ValueTable:
    """One value per policy and feature, and how it learns."""

    features: IntArray  # (S, T + 1)
    policies: int = 1
    step: float = 0.5
    table: FloatArray = field(init=False)  # (policies, features)

    def __post_init__(self) -> None:
        self.table = np.zeros((self.policies, int(self.features.max()) + 1))

    def read(self, walks: Walks) -> tuple[FloatArray, FloatArray]:
        """Return values before each turn (N, T) and behind the last observation (N,)."""
        turns = walks.states.shape[1]
        before = self.features[walks.states, np.arange(turns)]
        return self.table[walks.policies[:, None], before], self.table[walks.policies, self.features[walks.ends, turns]]

    def learn(self, walks: Walks, targets: FloatArray) -> None:
        """Move half-way to the mean of `targets` (N, T) over the turns that were taken, feature by feature."""
        before = self.features[walks.states, np.arange(walks.states.shape[1])]
        seen = (walks.policies[:, None] * self.table.shape[1] + before)[walks.taken]
        counts = np.bincount(seen, minlength=self.table.size)
        sums = np.bincount(seen, targets[walks.taken], minlength=self.table.size)
        flat, hit = self.table.ravel(), counts > 0
        flat[hit] += self.step * (sums[hit] / counts[hit] - flat[hit])


def continuation_values(
    mdp: FiniteMdp, policy: FloatArray, walks: Walks, rng: np.random.Generator, *, group_size: int, count: int = 2
) -> tuple[FloatArray, FloatArray]:
    """Return values before each turn (N, T) from `count` fresh continuations, and the turns that they took (N,).

    The value before the first turn is the mean of the group's own outcomes, which costs nothing.
    Source: VinePPO, arXiv 2410.01679, eq. 4.
    """
    values = np.zeros(walks.states.shape)
    cost = np.zeros(len(walks))
    values[:, 0] = np.repeat(walks.rewards.reshape(-1, group_size).mean(1), group_size)
    for t in range(1, walks.states.shape[1]):
        here = np.flatnonzero(walks.taken[:, t])
        starts = np.repeat(walks.states[here, t], count)
        again = sample(mdp, policy[None], np.zeros(len(starts), dtype=np.int64), starts, rng, first_turn=t)
        values[here, t] = again.rewards.reshape(-1, count).mean(1)
        cost[here] += again.lengths.reshape(-1, count).sum(1)
    return values, cost


def exact_advantages(mdp: FiniteMdp, policy: FloatArray, walks: Walks) -> FloatArray:
    """Return Q - V of the objective at each turn, (N, T): what no estimator can know."""
    turns = np.arange(walks.states.shape[1])
    return solve(mdp, policy).advantages()[turns, walks.states, walks.actions] * walks.taken


def with_values(groups: Sequence[Group], at_turns: FloatArray, at_end: FloatArray) -> list[Group]:
    """Return the groups with values for each member; rows of `at_turns` (N, T) and `at_end` (N,) are in their order."""
    size = len(groups[0].members)
    return [
        replace(
            group,
            members=tuple(
                replace(
                    member,
                    values=_values(at_turns[i], float(at_end[i]), len(member.trajectory.turns)),
                )
                for i, member in enumerate(group.members, start=number * size)
            ),
        )
        for number, group in enumerate(groups)
    ]


def _values(at_turns: FloatArray, at_end: float, turns: int) -> Values:
    """An action is one token, so that values of turns and of tokens are the same."""
    return Values(at_turns=at_turns[:turns], at_tokens=at_turns[:turns], at_end=at_end)
