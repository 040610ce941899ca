"""Measure arms in one environment: the same episodes for all of them, in pieces that fit in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sanderling.credit.catalogue import load_estimator
from sanderling.credit.protocol import CreditEstimator, LearnsValues
from sanderling.creditbench.arms import EXACT, Arm
from sanderling.creditbench.exact import policy_gradient, success
from sanderling.creditbench.gradients import by_turn, logit_gradients, weighted_advantages
from sanderling.creditbench.mdp import FiniteMdp, FloatArray
from sanderling.creditbench.quality import BLOCKS, Quality, measure
from sanderling.creditbench.records import Recorder
from sanderling.creditbench.sampling import Walks, sample
from sanderling.creditbench.values import (
    ValueSource,
    ValueTable,
    continuation_values,
    exact_advantages,
    with_values,
)
from sanderling.types import Group

GROUP_SIZE = 8
GROUPS_PER_UPDATE = 2
PER_UPDATE = GROUP_SIZE * GROUPS_PER_UPDATE
PIECE = 100  # updates that are held in memory at once
WARM_UP = 40  # updates that only teach value tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where arms are measured: a process, and the policy that samples and whose gradient is asked for."""

    mdp: FiniteMdp
    policy: FloatArray  # (F, A)

    @property
    def exact_gradient(self) -> FloatArray:
        return policy_gradient(self.mdp, self.policy)

    @property
    def success(self) -> float:
        return success(self.mdp, self.policy)

    def walks(self, updates: int, rng: np.random.Generator) -> Walks:
        """Return episodes of so many updates; each group starts in a task drawn evenly."""
        drawn = rng.integers(len(self.mdp.starts), size=updates * GROUPS_PER_UPDATE)
        starts = np.repeat(np.array(self.mdp.starts)[drawn], GROUP_SIZE)
        return sample(self.mdp, self.policy[None], np.zeros(len(starts), dtype=np.int64), starts, rng)


def measure_arms(place: Place, arms: Mapping[str, Arm], updates: int, seed: int) -> dict[str, Quality]:
    """Return the quality of each arm from `updates` updates of 2 groups of 8 episodes.

    Raises:
        ValueError: fewer updates than blocks of the interval.
    """
    if updates < BLOCKS:
        raise ValueError(f"{updates} updates, expected at least {BLOCKS}: the interval needs so many blocks")
    rng = np.random.default_rng(seed)
    runs = {name: _open(place, arm, np.random.default_rng([seed, n])) for n, (name, arm) in enumerate(arms.items())}
    warm_up = place.walks(WARM_UP, rng)
    for run in runs.values():
        if run.table is not None:
            run.learn_values(warm_up, _groups(place, run.arm, warm_up))
    for first in range(0, updates, PIECE):
        walks = place.walks(min(PIECE, updates - first), rng)
        recorded: dict[tuple[Any, Any], list[Group]] = {}
        for run in runs.values():
            key = (run.arm.pay, run.arm.cut)
            if key not in recorded:
                recorded[key] = _groups(place, run.arm, walks)
            run.add(walks, recorded[key])
    exact = place.exact_gradient.ravel()
    return {name: measure(np.concatenate(run.samples), exact, np.concatenate(run.turns)) for name, run in runs.items()}


def _groups(place: Place, arm: Arm, walks: Walks) -> list[Group]:
    return Recorder(mdp=place.mdp, policies=place.policy[None], pay=arm.pay, cut=arm.cut).groups(walks, GROUP_SIZE)


@dataclass(slots=True, kw_only=True)
class _Run:
    """One arm while it is measured."""

    place: Place
    arm: Arm
    estimator: CreditEstimator | None  # None: exact advantages
    rng: np.random.Generator
    table: ValueTable | None
    samples: list[FloatArray] = field(default_factory=list)  # (updates of a piece, F * A)
    turns: list[FloatArray] = field(default_factory=list)

    def learn_values(self, walks: Walks, groups: Sequence[Group]) -> None:
        """Teach the value table; the gradients are thrown away."""
        self._coefficients(walks, groups)

    def add(self, walks: Walks, groups: Sequence[Group]) -> None:
        coefficients, auxiliary = self._coefficients(walks, groups)
        gradients = logit_gradients(self.place.mdp, self.place.policy, walks, coefficients)
        self.samples.append(gradients.reshape(len(gradients), -1))
        self.turns.append((walks.lengths + auxiliary).reshape(-1, PER_UPDATE).sum(1).astype(np.float64))

    def _coefficients(self, walks: Walks, groups: Sequence[Group]) -> tuple[FloatArray, FloatArray]:
        """Return weight times advantage (U, PER_UPDATE, T), and auxiliary turns by episode (N,)."""
        turns, auxiliary, values = walks.states.shape[1], np.zeros(len(walks)), None
        if self.estimator is None:
            exact = exact_advantages(self.place.mdp, self.place.policy, walks)
            return exact.reshape(-1, PER_UPDATE, turns) / PER_UPDATE, auxiliary
        if self.arm.values is ValueSource.CONTINUATIONS:
            values, auxiliary = continuation_values(
                self.place.mdp, self.place.policy, walks, self.rng, group_size=GROUP_SIZE
            )
        found = []
        for update in range(len(walks) // PER_UPDATE):
            rows = slice(update * PER_UPDATE, (update + 1) * PER_UPDATE)
            batch = groups[update * GROUPS_PER_UPDATE : (update + 1) * GROUPS_PER_UPDATE]
            part = walks.part(rows)
            if values is not None:
                batch = with_values(batch, values[rows], np.zeros(PER_UPDATE))
            elif self.table is not None:
                batch = with_values(batch, *self.table.read(part))
            found.append(weighted_advantages(batch, self.estimator, turns, self.arm.aggregation))
            if self.table is not None:
                self.table.learn(part, value_targets(self.estimator, batch, turns))
        return np.stack(found), auxiliary


def value_targets(estimator: CreditEstimator, batch: Sequence[Group], turns: int) -> FloatArray:
    """Return what the values should have been (N, turns), as the estimator says; full returns."""
    if not isinstance(estimator, LearnsValues):
        raise TypeError(f"{type(estimator).__name__} reads values and doesn't say what they should be")
    targets = {name: value for group in batch for name, value in estimator.targets(group, 1.0).items()}
    return by_turn(batch, targets, turns)


def _open(place: Place, arm: Arm, rng: np.random.Generator) -> _Run:
    estimator = None if arm.estimator == EXACT else load_estimator(arm.estimator, arm.settings)
    return _Run(place=place, arm=arm, estimator=estimator, rng=rng, table=value_table(place.mdp, arm))


def value_table(mdp: FiniteMdp, arm: Arm, policies: int = 1) -> ValueTable | None:
    """Return the table that an arm's values are learnt in, or None where it has none."""
    features = {ValueSource.HISTORY: mdp.views, ValueSource.OBSERVATION: mdp.keys}.get(arm.values)
    return None if features is None else ValueTable(features=features, policies=policies)
