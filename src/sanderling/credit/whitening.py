"""Advantages of a whole step brought to mean 0 and deviation 1 over its trained action tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sanderling.credit.episodes import settled
from sanderling.credit.protocol import Credit
from sanderling.types import Gradient, Group, Member


def whitened(groups: Sequence[Group], credit: Credit, eps: float) -> Credit:
    """Return (a - mean) / sqrt(variance + eps) with the Bessel variance; all equal: zeros.

    Tokens that are not trained have no say in mean and variance; those shared with a parent count there.
    """
    trained = [_own_tokens(m, credit) for g in groups for m in g.graded() if m.disposition.gradient is Gradient.FULL]
    numbers = settled(np.concatenate(trained) if trained else np.zeros(0))
    if len(numbers) < 2 or np.ptp(numbers) == 0.0:
        return {name: np.zeros_like(advantages) for name, advantages in credit.items()}
    mean, scale = numbers.mean(), np.sqrt(numbers.var(ddof=1) + eps)
    return {name: (advantages - mean) / scale for name, advantages in credit.items()}


def _own_tokens(member: Member, credit: Credit) -> NDArray[np.float64]:
    trajectory = member.trajectory
    counts = [len(turn.action.token_ids) for turn in trajectory.turns]
    advantages = credit[trajectory.id]
    by_token = np.repeat(advantages, counts) if advantages.shape == (len(counts),) else advantages
    return by_token[sum(counts[: trajectory.forked_at or 0]) :]
