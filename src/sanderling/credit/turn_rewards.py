"""Rewards per turn, compared among the siblings that reached the same turn.

    MT-GRPO (arXiv 2505.11821)    A_k = A_O + c (r_k - mean r_k) / std r_k before the last turn, A_O on it
    return-to-go                                A_k = compare G_k = sum over j >= k of r_j + R, per turn index
    accumulated                                 A_k = sum over j >= k of compare(r_j)

They answer different questions. MT-GRPO asks how good this turn's own reward was; return-to-go asks what came of it. The
accumulated form takes off a baseline whose number of terms depends on when the policy stops, which is a hidden bonus of minus
the mean reward for every further turn: it is here to show that, and to repeat what others computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from sanderling.credit.comparison import Normalise, compared
from sanderling.credit.paths import FloatArray, Path, discounted_returns, paths, per_turn
from sanderling.credit.protocol import About, Credit, Needs
from sanderling.types import Group, Signal

_NEEDS = frozenset({Signal.SIBLINGS, Signal.TURN_REWARDS})


def by_index(numbers: Sequence[FloatArray], normalise: Normalise, eps: float) -> list[FloatArray]:
    """Compare what stands at the same place of each list; lists may have different lengths."""
    found = [np.zeros(len(own)) for own in numbers]
    for k in range(max(map(len, numbers), default=0)):
        alive = [i for i, own in enumerate(numbers) if len(own) > k]
        for i, one in zip(alive, compared(np.array([numbers[i][k] for i in alive]), normalise, eps=eps), strict=True):
            found[i][k] = one
    return found


def outcomes(gathered: Sequence[Path]) -> FloatArray:
    return np.array([path.episode.reward for path in gathered], dtype=np.float64)


class MtGrpo(BaseModel):
    """MT-GRPO as published; with turn_weight = 0 it is GRPO."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    needs: ClassVar[Needs] = _NEEDS
    about: ClassVar[About] = About(
        equation="A_k = A_O + c (r_k - mean r_k) / std r_k before the last turn, A_O on the last",
        source="arXiv 2505.11821",
        gradient="biased: a turn is credited with its own reward and not with what follows from it",
    )

    turn_weight: float = Field(default=1.0, ge=0.0)
    """Weight c of the turn's own reward."""
    normalise: Normalise = "std"
    """How outcomes and turn rewards are compared."""
    eps: float = Field(default=0.0, ge=0.0)
    """Added to each deviation; the released code has 1e-4."""

    def __call__(self, group: Group) -> Credit:
        """Return (n_turns,) advantages per graded member, in deviations ("std") or units of the reward."""
        gathered = paths(group)
        whole = compared(outcomes(gathered), self.normalise, eps=self.eps)
        before = [np.array([turn.reward for turn in path.turns[:-1]], dtype=np.float64) for path in gathered]
        own = by_index(before, self.normalise, self.eps)
        advantages = []
        for a, turns, path in zip(whole, own, gathered, strict=True):
            advantage = np.full(len(path.turns), a)
            advantage[: len(turns)] += self.turn_weight * turns
            advantages.append(advantage)
        return per_turn(gathered, advantages)


class TurnReturn(BaseModel):
    """Return-to-go of turn rewards and outcome, against the siblings that reached the same turn."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    needs: ClassVar[Needs] = _NEEDS
    about: ClassVar[About] = About(
        equation="A_k = (G_k - mean G_k) / std G_k over the episodes that reached turn k, G_k = sum_{j>=k} r_j + R",
        source="return-to-go form of arXiv 2505.11821",
        gradient='of the sum of all rewards: unbiased with "leave-one-out" where at least one other episode reaches the turn, '
        'its direction with "none" where all do; "std" biased across turns, which are weighted by 1/std',
    )

    normalise: Normalise = "std"
    """How returns of one turn index are compared."""
    gamma: float = Field(default=1.0, gt=0.0, le=1.0)
    """Discount per turn."""
    eps: float = Field(default=0.0, ge=0.0)
    """Added to each deviation."""

    def __call__(self, group: Group) -> Credit:
        """Return (n_turns,) advantages per graded member, in deviations ("std") or units of the reward."""
        gathered = paths(group)
        returns = [discounted_returns(path.rewards(), self.gamma) for path in gathered]
        return per_turn(gathered, by_index(returns, self.normalise, self.eps))


class AccumulatedTurns(BaseModel):
    """Rewards that are compared first and summed then: over turn indices, or over all turns of the group at once (IGPO)."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    needs: ClassVar[Needs] = _NEEDS
    about: ClassVar[About] = About(
        equation='A_k = sum_{j>=k} gamma^(j-k) z_j; z compares rewards per turn index, or all of the group ("group")',
        source="arXiv 2510.14967 for pool = group",
        gradient="biased: the number of baseline terms depends on when the policy stops",
    )

    pool: Literal["index", "group"] = "index"
    """What a reward is compared with: those of the same turn, or all rewards of the group."""
    normalise: Normalise = "std"
    """How."""
    gamma: float = Field(default=1.0, gt=0.0, le=1.0)
    """Discount per turn of the sum."""
    eps: float = Field(default=0.0, ge=0.0)
    """Added to each deviation."""

    def __call__(self, group: Group) -> Credit:
        """Return (n_turns,) advantages per graded member, in deviations ("std") or units of the reward."""
        gathered = paths(group)
        rewards = [path.rewards() for path in gathered]
        if self.pool == "index":
            found = by_index(rewards, self.normalise, self.eps)
        else:
            pooled = compared(np.concatenate([*rewards, np.zeros(0)]), self.normalise, eps=self.eps)
            found = np.split(pooled, np.cumsum([len(r) for r in rewards]))[:-1]
        return per_turn(gathered, [discounted_returns(z, self.gamma) for z in found])


class MergedRewards(BaseModel):
    """Turn rewards summed into the outcome, then compared as GRPO does."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    needs: ClassVar[Needs] = _NEEDS
    about: ClassVar[About] = About(
        equation="A_i = (G_i - mean G) / std G, G_i = R_i + sum_k r_{i,k}",
        source="arXiv 2402.03300 on the sum of rewards",
        gradient='of the sum of all rewards: unbiased with "leave-one-out", its direction with "none"; "std" as GRPO',
    )

    normalise: Normalise = "std"
    """How sums are compared."""
    eps: float = Field(default=0.0, ge=0.0)
    """Added to the deviation."""

    def __call__(self, group: Group) -> Credit:
        """Return (n_turns,) advantages per graded member, the same for all turns of an episode."""
        gathered = paths(group)
        whole = compared(np.array([path.rewards().sum() for path in gathered]), self.normalise, eps=self.eps)
        return per_turn(gathered, [np.full(len(p.turns), a) for p, a in zip(gathered, whole, strict=True)])
