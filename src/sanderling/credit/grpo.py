"""Group-relative advantage: a trajectory is compared with its siblings (GRPO, arXiv 2402.03300, section 4.1.2).

    A_i = (R_i - mean R) / (std R + eps)        normalise = "std"
    A_i =  R_i - mean R                         normalise = "none": Dr. GRPO, arXiv 2503.20783

Dividing by the deviation gives groups that nearly always succeed or fail more weight than groups in between; without it
every group weighs as its rewards do.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from sanderling.credit.episodes import broadcast, episode_rewards, episodes
from sanderling.credit.protocol import About, Credit, Needs
from sanderling.types import Group, Signal


class Grpo(BaseModel):
    """Settings of the estimator, and the estimator itself: call it with a group."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    needs: ClassVar[Needs] = frozenset({Signal.SIBLINGS})
    about: ClassVar[About] = About(
        equation="A_i = (R_i - mean R) / (std R + eps), or without the division",
        source="arXiv 2402.03300 section 4.1.2; without the division arXiv 2503.20783 section 3.2",
        gradient='"none": its direction is unbiased, its size is (n - 1)/n of it, because the mean holds the own reward; '
        '"std": biased across tasks, which are weighted by 1/std',
    )

    normalise: Literal["std", "none"] = "std"
    """"std" divides by the group's deviation, "none" only subtracts the mean."""
    eps: float = Field(default=0.0, ge=0.0)
    """Added to the deviation. 0 is the paper's form; verl adds 1e-6, TRL 1e-4. Groups without variance get 0 in any
    case."""
    ddof: Literal[0, 1] = 1
    """1: sample deviation, as the released implementations have it; 0: population deviation."""

    def __call__(self, group: Group) -> Credit:
        """Return (n_turns,) advantages per graded member, the same for all turns of an episode.

        Unit: deviations of the group ("std") or reward ("none"). No member, one member or equal rewards: zeros.
        """
        gathered = episodes(group)
        rewards = episode_rewards(gathered)
        if len(rewards) < 2 or np.ptp(rewards) == 0.0:
            return broadcast(gathered, np.zeros(len(rewards)))
        advantages = rewards - rewards.mean()
        if self.normalise == "std":
            advantages /= rewards.std(ddof=self.ddof) + self.eps
        return broadcast(gathered, advantages)
