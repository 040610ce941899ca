"""Lossy infrastructure: what to do with episodes that were lost through no fault of the policy.

Losses strike at random, or every turn has the same risk, so that long episodes are lost more often. Rules:

    exclude    the baseline is computed from the survivors, the lost one is trained on nowhere
    requeue    a fresh attempt is made, until one survives
    pad        a surviving sibling is counted again in its place
    zero       the lost one is a failure with reward 0
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum

import numpy as np

from sanderling.credit.catalogue import load_estimator
from sanderling.creditbench.gradients import logit_gradients, weighted_advantages
from sanderling.creditbench.mdp import BoolArray, FloatArray, IntArray
from sanderling.creditbench.measurement import GROUP_SIZE, GROUPS_PER_UPDATE, PER_UPDATE, PIECE, Place
from sanderling.creditbench.quality import Quality, measure
from sanderling.creditbench.records import Recorder
from sanderling.creditbench.sampling import Walks, sample


class Risk(StrEnum):
    RANDOM = "random"
    BY_LENGTH = "by length"


class LossRule(StrEnum):
    EXCLUDE = "exclude"
    REQUEUE = "requeue"
    PAD = "pad"
    ZERO = "zero"


SHARE = 0.05  # of the episodes are lost


def measure_losses(place: Place, updates: int, seed: int, share: float = SHARE) -> dict[str, Quality]:
    """Return the quality of RLOO's gradient by "<rule>, <risk>", and of "nothing lost".

    Args:
        place: process and policy.
        updates: of 2 groups of 8 episodes.
        seed: of everything that is drawn.
        share: mean share of lost episodes, for both risks.
    """
    rng = np.random.default_rng(seed)
    risk = _turn_risk(place.walks(500, np.random.default_rng([seed, 1])).lengths, share)
    cases: Mapping[str, tuple[LossRule, Risk] | None] = {
        "nothing lost": None,
        **{f"{rule.value}, {risk.value}": (rule, risk) for rule in LossRule for risk in Risk},
    }
    samples: dict[str, list[FloatArray]] = {name: [] for name in cases}
    turns: dict[str, list[FloatArray]] = {name: [] for name in cases}
    for first in range(0, updates, PIECE):
        walks = place.walks(min(PIECE, updates - first), rng)
        for name, case in cases.items():
            lost, cost, kept = np.zeros(len(walks), dtype=np.bool_), walks.lengths, walks
            if case is not None:
                lost = _lost(walks, case[1], share, risk, rng)
                kept, lost, cost = _treat(place, walks, lost, case, (share, risk, rng))
            samples[name].append(_gradients(place, kept, lost))
            turns[name].append(cost.reshape(-1, PER_UPDATE).sum(1).astype(np.float64))
    exact = place.exact_gradient.ravel()
    return {name: measure(np.concatenate(samples[name]), exact, np.concatenate(turns[name])) for name in cases}


def _turn_risk(lengths: IntArray, share: float) -> float:
    """Return the risk per turn at which `share` of episodes of these lengths are lost, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if np.mean(1 - (1 - middle) ** lengths) < share else (low, middle)
    return low


def _lost(walks: Walks, risk: Risk, share: float, turn_risk: float, rng: np.random.Generator) -> BoolArray:
    chances = np.full(len(walks), share) if risk is Risk.RANDOM else 1 - (1 - turn_risk) ** walks.lengths
    return rng.random(len(walks)) < chances


def _treat(
    place: Place,
    walks: Walks,
    lost: BoolArray,
    case: tuple[LossRule, Risk],
    chance: tuple[float, float, np.random.Generator],
) -> tuple[Walks, BoolArray, IntArray]:
    """Return the episodes that credit sees, which of them are lost for it, and the turns of each, wasted ones included."""
    rule, risk = case
    none = np.zeros(len(walks), dtype=np.bool_)
    match rule:
        case LossRule.EXCLUDE:
            return walks, lost, walks.lengths
        case LossRule.ZERO:
            return replace(walks, rewards=np.where(lost, 0.0, walks.rewards)), none, walks.lengths
        case LossRule.PAD:
            instead = _siblings(lost)
            return walks.part(instead), lost[instead], walks.lengths
        case LossRule.REQUEUE:
            return _requeued(place, walks, lost, risk, chance)


def _siblings(lost: BoolArray) -> IntArray:
    """Return for each episode itself, or for a lost one a survivor of its group (itself where there is none)."""
    instead = np.arange(len(lost))
    for i in np.flatnonzero(lost):
        first = i // GROUP_SIZE * GROUP_SIZE
        alive = first + np.flatnonzero(~lost[first : first + GROUP_SIZE])
        if len(alive):
            instead[i] = alive[i % len(alive)]
    return instead


def _requeued(
    place: Place, walks: Walks, lost: BoolArray, risk: Risk, chance: tuple[float, float, np.random.Generator]
) -> tuple[Walks, BoolArray, IntArray]:
    share, turn_risk, rng = chance
    kept = replace(walks, **{name: getattr(walks, name).copy() for name in walks.__slots__})
    cost, left = walks.lengths.copy(), np.flatnonzero(lost)
    while len(left):
        again = sample(place.mdp, place.policy[None], walks.policies[left], walks.states[left, 0], rng)
        for name in walks.__slots__:
            getattr(kept, name)[left] = getattr(again, name)
        cost[left] += again.lengths
        left = left[_lost(again, risk, share, turn_risk, rng)]
    return kept, np.zeros(len(walks), dtype=np.bool_), cost


def _gradients(place: Place, walks: Walks, lost: BoolArray) -> FloatArray:
    groups = Recorder(mdp=place.mdp, policies=place.policy[None]).groups(walks, GROUP_SIZE, lost)
    estimator, turns = load_estimator("rloo"), walks.states.shape[1]
    found = [
        weighted_advantages(groups[first : first + GROUPS_PER_UPDATE], estimator, turns, "sequence-sum")
        for first in range(0, len(groups), GROUPS_PER_UPDATE)
    ]
    gradients = logit_gradients(place.mdp, place.policy, walks, np.stack(found))
    return gradients.reshape(len(gradients), -1)
