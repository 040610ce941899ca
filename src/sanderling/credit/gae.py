"""Generalised advantage estimation (arXiv 1506.02438, eq. 16) on the clock of turns or of action tokens.

    delta_k = r_k + gamma V_{k+1} - V_k        A_k = delta_k + gamma lambda A_{k+1}        target_k = A_k + V_k

The clock counts actions only: an observation between two of them is no step of its own, so neither gamma nor lambda decays
over it, and what it paid belongs to the turn that caused it. Behind the last action stands 0 where the episode ended by itself.
Where a budget cut it, `at_budget` says what is true: "bootstrap" takes the value of the state that was left (the limit is no
part of the task), "terminal" takes 0 (it is one).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from sanderling.credit.paths import FloatArray, Path
from sanderling.credit.protocol import Credit
from sanderling.credit.whitening import whitened
from sanderling.errors import ConfigError
from sanderling.types import Group

AtBudget = Literal["bootstrap", "terminal"]


def gae(rewards: FloatArray, values: FloatArray, after: float, *, gamma: float, lam: float) -> FloatArray:
    """Return A_k of K steps, (K,).

    Args:
        rewards: (K,) paid for each step.
        values: (K,) of the state before each step.
        after: value of the state behind the last step; 0.0 where nothing can follow.
        gamma: discount per step, in (0, 1].
        lam: weight of later steps, in [0, 1].
    """
    advantages, following, value = np.zeros(len(rewards)), 0.0, after
    for k in reversed(range(len(rewards))):
        delta = rewards[k] + gamma * value - values[k]
        following = advantages[k] = delta + gamma * lam * following
        value = values[k]
    return advantages


def value_after(path: Path, at_end: float | None, at_budget: AtBudget) -> float:
    """Return what stands behind the last action of a path.

    Raises:
        ConfigError: a budget cut the episode, its rest is to be bootstrapped, and nobody estimated the state that was left.
    """
    if at_budget == "terminal" or not path.truncated:
        return 0.0
    if at_end is None:
        raise ConfigError(
            f"trajectory {path.episode.id!r} was cut by {path.episode.members[0].trajectory.stop.value} and at_budget is "
            '"bootstrap", but its values have no at_end; estimate it or set at_budget to "terminal"'
        )
    return at_end


class GaeSettings(BaseModel):
    """What the estimators with a critic share."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gamma: float = Field(default=1.0, gt=0.0, le=1.0)
    """Discount per step of the clock."""
    lam: float = Field(default=0.95, ge=0.0, le=1.0)
    """Weight of later steps. 1: the return that was seen minus the value; 0: one step of temporal difference."""
    at_budget: AtBudget = "bootstrap"
    """What stands behind an episode that a limit cut."""
    whiten: Literal["step", "none"] = "none"
    """Whether advantages are brought to mean 0 and deviation 1 over the trained tokens of the step."""

    def across_groups(self, groups: Sequence[Group], credit: Credit) -> Credit:
        """Return the final credit: whitened where that is set."""
        return credit if self.whiten == "none" else whitened(groups, credit, 1e-8)
