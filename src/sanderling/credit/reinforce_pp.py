"""REINFORCE++ (arXiv 2501.03262): token returns whitened over all action tokens of the step.

    G_t = sum over action tokens t' >= t of gamma^(t' - t) r_t'      the clock counts action tokens, not observations
    A_t = (G_t - mean G) / sqrt(var G + 1e-8)                        mean and Bessel variance over the step's action tokens

With baseline "group", the mean reward of the siblings is taken off before (REINFORCE++-baseline).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from sanderling.credit.episodes import settled
from sanderling.credit.paths import FloatArray, Path, discounted_returns, paths, per_token
from sanderling.credit.protocol import About, Credit, Needs
from sanderling.credit.whitening import whitened
from sanderling.types import Group, Signal


class ReinforcePlusPlus(BaseModel):
    """Settings of the estimator, and the estimator itself. Its mean and deviation need the whole step."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    about: ClassVar[About] = About(
        equation="A_t = (G_t - mean G) / sqrt(var G + eps), over the action tokens of the step",
        source="arXiv 2501.03262",
        gradient="biased: mean and deviation hold the own return and weigh long episodes more; the bias falls as 1/tokens",
        level="token",
    )

    gamma: float = Field(default=1.0, gt=0.0, le=1.0)
    """Discount per action token."""
    baseline: Literal["none", "group"] = "none"
    """What is taken off an episode's reward before: nothing, or the mean of its group."""
    whiten: Literal["step", "none"] = "step"
    """Whether returns are whitened over the step's trained tokens, or left as they are."""
    eps: float = Field(default=1e-8, ge=0.0)
    """Added to the variance."""

    @property
    def needs(self) -> Needs:
        return frozenset({Signal.SIBLINGS} if self.baseline == "group" else set())

    def __call__(self, group: Group) -> Credit:
        """Return (n_action_tokens,) returns per graded member, not yet whitened."""
        gathered = paths(group)
        totals = settled(np.array([path.rewards().sum() for path in gathered]))
        baseline = totals.mean() if self.baseline == "group" and len(totals) else 0.0
        return per_token(gathered, [self._returns(path, float(baseline)) for path in gathered])

    def across_groups(self, groups: Sequence[Group], credit: Credit) -> Credit:
        """Return the returns of all groups, whitened; all equal: zeros."""
        return credit if self.whiten == "none" else whitened(groups, credit, self.eps)

    def _returns(self, path: Path, baseline: float) -> FloatArray:
        counts, paid = path.token_counts(), path.rewards()
        rewards = np.zeros(int(counts.sum()))
        if len(paid):
            paid[-1] -= baseline
            np.add.at(rewards, np.cumsum(counts) - 1, paid)
        return discounted_returns(rewards, self.gamma)
