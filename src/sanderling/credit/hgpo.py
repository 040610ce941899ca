"""Hierarchy of state groups (HGPO, arXiv 2602.22817): a turn is compared with those of the same state and the same past.

    groups of order h = 1 .. history + 1: turns with the same last h state keys
    A_k = sum over h of (h + 1)^alpha A_k^h / sum over h of (h + 1)^alpha

A_k^h compares returns within the group of order h, as GiGPO does for h = 1; groups of one turn drop out. Longer pasts are purer
but smaller groups. The released code also leaves out groups in which the advantage is exactly 0 (zeros = "dropped"), which
changes the weights of the others.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from sanderling.credit.comparison import Normalise, compared
from sanderling.credit.gigpo import require_state_keys, state_groups, step_returns
from sanderling.credit.paths import paths, per_turn
from sanderling.credit.protocol import About, Credit, Needs
from sanderling.types import Group, Signal


class Hgpo(BaseModel):
    """Settings of the estimator, and the estimator itself: call it with a group."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    needs: ClassVar[Needs] = frozenset({Signal.SIBLINGS, Signal.STATE_KEYS})
    about: ClassVar[About] = About(
        equation="A_k = sum_h (h+1)^alpha A_k^h / sum_h (h+1)^alpha over groups with the same last h states",
        source="arXiv 2602.22817; form of its released code",
        gradient="as GiGPO's step part; turns in no group of two get nothing at all, so it is biased where states are rare",
    )

    gamma: float = Field(default=0.95, gt=0.0, le=1.0)
    """Discount per turn."""
    history: int = Field(default=2, ge=0)
    """States before the present one that the largest key holds; 0 is GiGPO's step part."""
    alpha: float = Field(default=1.0, ge=0.0)
    """How much more a longer past weighs."""
    normalise: Normalise = "none"
    """How returns are compared within a group."""
    ddof: Literal[0, 1] = 0
    """0: population deviation, as the released code has it."""
    eps: float = Field(default=0.0, ge=0.0)
    """Added to deviations and to the sum of weights; the released code has 1e-6."""
    zeros: Literal["kept", "dropped"] = "kept"
    """Whether a group in which the advantage is exactly 0 keeps its weight."""
    episode_weight: float = Field(default=0.0, ge=0.0)
    """Of the episode's own advantage on top, compared in the same way; the released code has none."""

    def __call__(self, group: Group) -> Credit:
        """Return (n_turns,) advantages per graded member, in units of the reward, or deviations ("std").

        Raises:
            ConfigError: no turn of the group has a state key.
        """
        gathered = paths(group)
        require_state_keys(group, gathered)
        returns = step_returns(gathered, self.gamma)
        sums = [np.zeros(len(path.turns)) for path in gathered]
        weights = [np.zeros(len(path.turns)) for path in gathered]
        for order in range(1, self.history + 2):
            weight = (order + 1.0) ** self.alpha
            for places in state_groups(gathered, order).values():
                if len(places) < 2:
                    continue
                numbers = np.array([returns[i][k] for i, k in places])
                found = compared(numbers, self.normalise, eps=self.eps, ddof=self.ddof)
                for (i, k), advantage in zip(places, found, strict=True):
                    if advantage != 0.0 or self.zeros == "kept":
                        sums[i][k] += weight * advantage
                        weights[i][k] += weight
        whole = compared(np.array([p.episode.reward for p in gathered]), self.normalise, eps=self.eps, ddof=self.ddof)
        return per_turn(
            gathered,
            [
                self.episode_weight * a + s / np.where(w > 0, w + self.eps, 1.0)
                for a, s, w in zip(whole, sums, weights, strict=True)
            ],
        )
