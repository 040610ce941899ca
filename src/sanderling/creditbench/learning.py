"""Learning curves of toy policies: what an estimator or a correction does to the score at the same number of turns.

The policy is a softmax over random features of the views, as many as there are views, so that what is learnt in one place
moves others, as it does in a language model; the optimiser is Adam (arXiv 1412.6980) with beta 0.9, 0.99 and eps 1e-4. The
objective is computed exactly after every update. All seeds advance together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sanderling.credit.catalogue import load_estimator
from sanderling.creditbench.arms import EXACT, Arm
from sanderling.creditbench.corrections import CORRECTIONS, Tokens, coefficients
from sanderling.creditbench.exact import successes
from sanderling.creditbench.gradients import logit_gradients, weighted_advantages
from sanderling.creditbench.mdp import FiniteMdp, FloatArray, softmax
from sanderling.creditbench.measurement import GROUP_SIZE, GROUPS_PER_UPDATE, PER_UPDATE, value_table, value_targets
from sanderling.creditbench.records import Recorder
from sanderling.creditbench.sampling import Walks, sample
from sanderling.creditbench.values import ValueTable, exact_advantages, with_values

RATES = (0.03, 0.1, 0.3)
WARM_UP_UPDATES = 2  # of a value table, without a step of the policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Learner:
    """What learns: an arm, and for a stale sampler how old it is and how that is corrected."""

    arm: Arm
    correction: str = "none"
    lag: int = 0  # updates that the sampler is behind


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Success over environment turns of several seeds."""

    turns: FloatArray  # (U + 1,) mean over seeds
    success: FloatArray  # (seeds, U + 1)
    rate: float

    @property
    def areas(self) -> FloatArray:
        """Mean success over the budget of each seed, (seeds,)."""
        return np.trapezoid(self.success, self.turns, axis=1) / self.turns[-1]

    @property
    def finals(self) -> FloatArray:
        return self.success[:, -1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is spent on a curve: the same for every learner."""

    turns: int  # environment turns per seed
    seeds: int = 16
    tuning_seeds: int = 6  # disjoint from the seeds that are reported


def tuned_curves(mdp: FiniteMdp, learner: Learner, effort: Effort, seed: int) -> Curves:
    """Return the curves at the rate of `RATES` with the largest area on the tuning seeds."""
    tuning = replace(effort, seeds=effort.tuning_seeds)
    tried = {rate: learn(mdp, learner, tuning, rate=rate, seed=seed + 1) for rate in RATES}
    best = max(tried, key=lambda rate: float(tried[rate].areas.mean()))
    return learn(mdp, learner, effort, rate=best, seed=seed)


def learn(mdp: FiniteMdp, learner: Learner, effort: Effort, *, rate: float, seed: int) -> Curves:
    """Train `effort.seeds` policies side by side until each has taken `effort.turns` turns on average."""
    state = _State.start(mdp, learner, effort.seeds, np.random.default_rng(seed))
    spent, turns, success = 0.0, [0.0], [successes(mdp, state.policies())]
    while spent < effort.turns:
        spent += state.update(rate)
        turns.append(spent)
        success.append(successes(mdp, state.policies()))
    return Curves(turns=np.array(turns), success=np.stack(success, axis=1), rate=rate)


@dataclass(slots=True)
class _State:
    mdp: FiniteMdp
    learner: Learner
    estimator: Any
    table: ValueTable | None
    rng: np.random.Generator
    features: FloatArray  # (K, F, F)
    weights: FloatArray  # (K, F, A)
    first: FloatArray  # of Adam
    second: FloatArray
    sampled_from: deque[FloatArray]
    updates: int = 0

    @classmethod
    def start(cls, mdp: FiniteMdp, learner: Learner, seeds: int, rng: np.random.Generator) -> _State:
        features = rng.normal(size=(seeds, mdp.num_views, mdp.num_views))
        features /= np.linalg.norm(features, axis=-1, keepdims=True)
        weights = np.zeros((seeds, mdp.num_views, mdp.num_actions))
        arm = learner.arm
        estimator = None if arm.estimator == EXACT else load_estimator(arm.estimator, arm.settings)
        table = value_table(mdp, arm, seeds)
        past = deque([softmax(features @ weights)], maxlen=learner.lag + 1)
        return cls(mdp, learner, estimator, table, rng, features, weights, weights * 0, weights * 0, past)

    def policies(self) -> FloatArray:
        return softmax(self.features @ self.weights)

    def update(self, rate: float) -> float:
        """Sample, give credit, take one step; return the mean turns that it took per seed."""
        mdp, seeds = self.mdp, len(self.weights)
        sampler, now = self.sampled_from[0], self.policies()
        starts = self.rng.integers(len(mdp.starts), size=seeds * GROUPS_PER_UPDATE)
        starts = np.repeat(np.array(mdp.starts)[starts], GROUP_SIZE)
        walks = sample(mdp, sampler, np.repeat(np.arange(seeds), PER_UPDATE), starts, self.rng)
        given = self._credit(walks, sampler)
        if self.table is None or self.updates >= WARM_UP_UPDATES:
            given = self._corrected(walks, now, sampler, given)
            gradient = logit_gradients(mdp, now, walks, given.reshape(seeds, PER_UPDATE, -1))
            self._step(np.swapaxes(self.features, 1, 2) @ gradient, rate)
        self.updates += 1
        self.sampled_from.append(self.policies())
        return float(walks.lengths.sum() / seeds)

    def _credit(self, walks: Walks, sampler: FloatArray) -> FloatArray:
        arm, turns = self.learner.arm, walks.states.shape[1]
        parts = [walks.part(slice(k * PER_UPDATE, (k + 1) * PER_UPDATE)) for k in range(len(sampler))]
        if self.estimator is None:
            exact = [exact_advantages(self.mdp, sampler[k], part) for k, part in enumerate(parts)]
            return np.concatenate(exact) / PER_UPDATE
        recorder = Recorder(mdp=self.mdp, policies=sampler, pay=arm.pay, cut=arm.cut)
        groups = recorder.groups(walks, GROUP_SIZE)
        if self.table is not None:
            groups = with_values(groups, *self.table.read(walks))
        batches = [groups[first : first + GROUPS_PER_UPDATE] for first in range(0, len(groups), GROUPS_PER_UPDATE)]
        found = [weighted_advantages(batch, self.estimator, turns, arm.aggregation) for batch in batches]
        if self.table is not None:
            self.table.learn(walks, np.concatenate([value_targets(self.estimator, batch, turns) for batch in batches]))
        return np.concatenate(found)

    def _corrected(self, walks: Walks, now: FloatArray, sampler: FloatArray, given: FloatArray) -> FloatArray:
        if self.learner.lag == 0:
            return given
        views = self.mdp.views[walks.states, np.arange(walks.states.shape[1])]
        place = (walks.policies[:, None], views, walks.actions)
        tokens = Tokens(
            now=np.log(now[place]),
            sampler=np.log(sampler[place]),
            weighted=given,
            taken=walks.taken,
            weight=1.0 / PER_UPDATE,
        )
        return coefficients(tokens, CORRECTIONS[self.learner.correction])

    def _step(self, gradient: FloatArray, rate: float) -> None:
        count = self.updates + 1
        self.first = 0.9 * self.first + 0.1 * gradient
        self.second = 0.99 * self.second + 0.01 * gradient**2
        mean, square = self.first / (1 - 0.9**count), self.second / (1 - 0.99**count)
        self.weights = self.weights + rate * mean / (np.sqrt(square) + 1e-4)


def curves_of(mdp: FiniteMdp, learners: Mapping[str, Learner], effort: Effort, seed: int) -> dict[str, Curves]:
    """Return tuned curves by name; seeds of the same number start from the same features and draw from like streams."""
    return {name: tuned_curves(mdp, learner, effort, seed) for name, learner in learners.items()}


def paired_difference(one: Sequence[float] | FloatArray, other: Sequence[float] | FloatArray) -> tuple[float, float]:
    """Return the mean of one - other over paired seeds and the half-width of its 95 % interval (normal)."""
    difference = np.asarray(one) - np.asarray(other)
    return float(difference.mean()), float(1.96 * difference.std(ddof=1) / np.sqrt(len(difference)))
