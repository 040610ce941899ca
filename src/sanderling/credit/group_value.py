"""Values from state groups instead of a critic (as G2PO, arXiv 2606.22995, and GAGPO, arXiv 2605.13217), then GAE over turns.

    V(s) = mean of the discounted returns of all turns of the group that began in state s
    A_k  = delta_k + gamma lambda A_{k+1},  delta_k = r_k + gamma V(s_{k+1}) - V(s_k)

A state that was met once has its own return as its value, so that it gets no credit of its own: with unique keys and lambda = 0
nothing at all is left. A coarse key is worse than that: values of different states flow into each other, and the gradient can
point elsewhere. Prefer GiGPO unless keys say everything that matters.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from sanderling.credit.gae import gae
from sanderling.credit.gigpo import require_state_keys, state_groups, step_returns
from sanderling.credit.paths import paths, per_turn
from sanderling.credit.protocol import About, Credit, Needs
from sanderling.types import Group, Signal


class GroupValueGae(BaseModel):
    """Settings of the estimator, and the estimator itself: call it with a group."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    needs: ClassVar[Needs] = frozenset({Signal.SIBLINGS, Signal.STATE_KEYS})
    about: ClassVar[About] = About(
        equation="A_k by GAE over turns with V(s) = mean return of the turns that began in s",
        source="arXiv 2605.13217, 2606.22995",
        gradient="biased: values hold the own return, and merge states that share a key",
    )

    gamma: float = Field(default=0.95, gt=0.0, le=1.0)
    """Discount per turn."""
    lam: float = Field(default=0.5, ge=0.0, le=1.0)
    """Weight of later turns."""

    def __call__(self, group: Group) -> Credit:
        """Return (n_turns,) advantages per graded member, in units of the reward.

        Raises:
            ConfigError: no turn of the group has a state key.
        """
        gathered = paths(group)
        require_state_keys(group, gathered)
        returns = step_returns(gathered, self.gamma)
        values = [numbers.copy() for numbers in returns]
        for places in state_groups(gathered).values():
            mean = float(np.mean([returns[i][k] for i, k in places]))
            for i, k in places:
                values[i][k] = mean
        return per_turn(
            gathered,
            [gae(p.rewards(), v, 0.0, gamma=self.gamma, lam=self.lam) for p, v in zip(gathered, values, strict=True)],
        )
