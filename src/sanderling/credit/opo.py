"""Length-weighted baseline (OPO, arXiv 2505.23585): the constant baseline of least variance for lengths L_i.

    A_i = R_i - sum_j L_j R_j / sum_j L_j

L_i are the action tokens of episode i, trained or not. The baseline holds the own reward, with its share of the tokens.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict

from sanderling.credit.episodes import broadcast, episode_rewards, episodes
from sanderling.credit.protocol import About, Credit, Needs
from sanderling.types import Group, Signal


class Opo(BaseModel):
    """The estimator; it has no settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    needs: ClassVar[Needs] = frozenset({Signal.SIBLINGS})
    about: ClassVar[About] = About(
        equation="A_i = R_i - sum_j L_j R_j / sum_j L_j",
        source="arXiv 2505.23585",
        gradient="biased: the baseline holds the episode's own reward and length; the bias falls as 1/n",
    )

    def __call__(self, group: Group) -> Credit:
        """Return (n_turns,) advantages per graded member, in units of the reward. No spread of rewards: zeros."""
        gathered = episodes(group)
        rewards = episode_rewards(gathered)
        lengths = np.array([e.num_action_tokens for e in gathered], dtype=np.float64)
        if len(rewards) < 2 or np.ptp(rewards) == 0.0:
            return broadcast(gathered, np.zeros(len(rewards)))
        return broadcast(gathered, rewards - (lengths @ rewards) / lengths.sum())
