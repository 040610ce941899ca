"""The reward fades towards the start of the episode (Kimi-Researcher): turn k of K gets gamma^(K - k) of it.

A_k = gamma^(K - 1 - k) * compare(R)        k = 0 .. K - 1
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from sanderling.credit.comparison import Normalise, compared
from sanderling.credit.paths import paths, per_turn
from sanderling.credit.protocol import About, Credit, Needs
from sanderling.credit.turn_rewards import outcomes
from sanderling.types import Group, Signal


class Decayed(BaseModel):
    """Settings of the estimator, and the estimator itself: call it with a group."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    needs: ClassVar[Needs] = frozenset({Signal.SIBLINGS})
    about: ClassVar[About] = About(
        equation="A_k = gamma^(K-1-k) (R_i - mean of the others)",
        source="Kimi-Researcher, technical report of June 2025",
        gradient="biased for gamma < 1: early turns get less than they led to, and short episodes are preferred",
    )

    gamma: float = Field(default=0.95, gt=0.0, le=1.0)
    """Discount per turn."""
    normalise: Normalise = "leave-one-out"
    """How outcomes are compared."""

    def __call__(self, group: Group) -> Credit:
        """Return (n_turns,) advantages per graded member, in units of the reward, or deviations ("std")."""
        gathered = paths(group)
        whole = compared(outcomes(gathered), self.normalise)
        return per_turn(
            gathered,
            [a * self.gamma ** np.arange(len(p.turns))[::-1] for a, p in zip(whole, gathered, strict=True)],
        )
