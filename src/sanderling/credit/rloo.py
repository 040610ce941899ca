"""Leave-one-out baseline: each trajectory is compared with the mean of the others (RLOO, arXiv 2402.14740, eq. 8).

    A_i = R_i - mean_{j != i} R_j = n / (n - 1) * (R_i - mean R)

The baseline doesn't depend on the trajectory's own reward, so the gradient is unbiased.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict

from sanderling.credit.episodes import broadcast, episode_rewards, episodes
from sanderling.credit.protocol import About, Credit, Needs
from sanderling.types import Group, Signal


class Rloo(BaseModel):
    """The estimator; it has no settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    needs: ClassVar[Needs] = frozenset({Signal.SIBLINGS})
    about: ClassVar[About] = About(
        equation="A_i = R_i - mean_{j != i} R_j",
        source="arXiv 2402.14740 eq. 8",
        gradient="unbiased: the baseline doesn't depend on the episode's own actions",
    )

    def __call__(self, group: Group) -> Credit:
        """Return (n_turns,) advantages per graded member, in units of the reward. Fewer than two members: zeros."""
        gathered = episodes(group)
        rewards = episode_rewards(gathered)
        n = len(rewards)
        if n < 2 or np.ptp(rewards) == 0.0:
            return broadcast(gathered, np.zeros(n))
        return broadcast(gathered, (rewards - rewards.mean()) * (n / (n - 1)))
