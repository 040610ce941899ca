"""GAE on two clocks (VAGEN's bi-level GAE, arXiv 2510.16907): over turns, then over the tokens inside each turn.

turns    A_k over turns with the value at the last action token of each, gamma_turn
tokens   the last token of turn k has A_k; before it, delta_t = gamma_token V_{t+1} - V_t and
         A_t = delta_t + gamma_token lambda A_{t+1} inside the turn
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from sanderling.credit.gae import AtBudget, gae, value_after
from sanderling.credit.paths import FloatArray, Path, paths, per_token
from sanderling.credit.protocol import About, Credit, Needs
from sanderling.credit.token_gae import token_values
from sanderling.errors import ConfigError
from sanderling.types import Group, Signal


class BilevelGae(BaseModel):
    """Settings of the estimator, and the estimator itself: call it with a group."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    needs: ClassVar[Needs] = frozenset({Signal.TOKEN_VALUES})
    about: ClassVar[About] = About(
        equation="A_k by GAE over turns with V at their last tokens; inside a turn GAE over tokens that ends in A_k",
        source="arXiv 2510.16907",
        gradient="unbiased with lambda = gamma = 1, whatever the values; else biased: a turn is judged by values taken "
        "when most of it was written, and gamma_turn < 1 discounts",
        level="token",
    )

    gamma_turn: float = Field(default=0.95, gt=0.0, le=1.0)
    """Discount per turn."""
    gamma_token: float = Field(default=1.0, gt=0.0, le=1.0)
    """Discount per token inside a turn."""
    lam: float = Field(default=0.95, ge=0.0, le=1.0)
    """Weight of later steps, on both clocks."""
    at_budget: AtBudget = "bootstrap"
    """What stands behind an episode that a limit cut. The released code has 0 in every case ("terminal")."""

    def __call__(self, group: Group) -> Credit:
        """Return (n_action_tokens,) advantages per graded member, in units of the reward.

        Raises:
            ConfigError: values are missing, or a turn has no token.
        """
        gathered = paths(group)
        return per_token(gathered, [self._advantages(path, self.lam) for path in gathered])

    def targets(self, group: Group, lam: float) -> Credit:
        """Return (n_action_tokens,) A_t + V_t; see `protocol.LearnsValues`."""
        gathered = paths(group)
        return per_token(gathered, [self._advantages(path, lam) + token_values(path) for path in gathered])

    def _advantages(self, path: Path, lam: float) -> FloatArray:
        counts, values = path.token_counts(), token_values(path)
        if np.any(counts == 0):
            raise ConfigError(
                f"trajectory {path.episode.id!r} has a turn without action tokens; bi-level GAE needs one"
            )
        ends = np.cumsum(counts) - 1
        after = value_after(path, path.values().at_end, self.at_budget)
        turns = gae(path.rewards(), values[ends], after, gamma=self.gamma_turn, lam=lam)
        advantages = np.zeros(len(values))
        for end, count, advantage in zip(ends, counts, turns, strict=True):
            advantages[end] = advantage
            for t in range(end - 1, end - count, -1):
                delta = self.gamma_token * values[t + 1] - values[t]
                advantages[t] = delta + self.gamma_token * lam * advantages[t + 1]
        return advantages
