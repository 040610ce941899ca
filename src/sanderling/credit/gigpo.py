"""Group-in-group advantage (GiGPO, arXiv 2505.10978): turns that began in the same state are compared, too.

    G_k   = sum over j >= k of gamma^(j - k) r_j
    A_S,k = compare G_k with the returns of all turns of the task's group that have the same state key
    A_k   = episode_weight * A_E + step_weight * A_S,k              A_E compares the rewards of the episodes

A state that was met once says nothing: its A_S is 0, so that with unique keys only A_E is left. The state group is that of
one task: keys of other groups never meet. With gamma < 1 a return is worth less the farther the end is, so a short way of .55
beats a long one of .75 (.95^2 * .55 > .95^12 * .75): gamma = 1 is right for outcome rewards unless turns should cost.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from sanderling.credit.comparison import Normalise, compared
from sanderling.credit.paths import FloatArray, Path, discounted_returns, paths, per_turn
from sanderling.credit.protocol import About, Credit, Needs
from sanderling.errors import ConfigError
from sanderling.types import Group, Signal

Place = tuple[int, int]  # path and turn


class Gigpo(BaseModel):
    """Settings of the estimator, and the estimator itself: call it with a group."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    needs: ClassVar[Needs] = frozenset({Signal.SIBLINGS, Signal.STATE_KEYS})
    about: ClassVar[About] = About(
        equation="A_k = w_E A_E + w_S (G_k - mean G over the state group) / std of it",
        source="arXiv 2505.10978",
        gradient="direction unbiased with gamma = 1 and normalise 'none' where keys don't merge states that the policy "
        "tells apart and no episode meets a state twice; 'std', gamma < 1 and loops bias it",
    )

    gamma: float = Field(default=0.95, gt=0.0, le=1.0)
    """Discount per turn of the step returns. 0.95 is the paper's; 1.0 fits outcome rewards."""
    episode_weight: float = Field(default=1.0, ge=0.0)
    """Of the episode's own advantage; 0: the step part alone."""
    step_weight: float = Field(default=1.0, ge=0.0)
    """Of the step part (omega); 0: the episode's advantage alone."""
    normalise: Normalise = "std"
    """How numbers are compared, in both parts."""
    eps: float = Field(default=0.0, ge=0.0)
    """Added to each deviation; the released code has 1e-6."""
    statistics: Literal["episodes", "turns"] = "episodes"
    """Over what A_E takes mean and deviation: one reward per episode, as the paper has it, or one per turn, as the released
    code does by default, where long episodes weigh more."""

    def __call__(self, group: Group) -> Credit:
        """Return (n_turns,) advantages per graded member, in deviations ("std") or units of the reward.

        Raises:
            ConfigError: no turn of the group has a state key.
        """
        gathered = paths(group)
        require_state_keys(group, gathered)
        steps = step_advantages(gathered, self)
        whole = episode_advantages(gathered, self)
        return per_turn(
            gathered,
            [self.episode_weight * a + self.step_weight * s for a, s in zip(whole, steps, strict=True)],
        )


def require_state_keys(group: Group, gathered: Sequence[Path]) -> None:
    """Raise ConfigError where there are turns and none has a state key."""
    turns = [turn for path in gathered for turn in path.turns]
    if turns and all(turn.state_key is None for turn in turns):
        raise ConfigError(
            f"group {group.id!r}: none of its {len(turns)} turns has a state key, so states can't be compared; use a "
            "sandbox backend that digests the workspace, or another estimator"
        )


def episode_advantages(gathered: Sequence[Path], settings: Gigpo) -> FloatArray:
    """Return A_E per path, (n,)."""
    rewards = np.array([path.episode.reward for path in gathered], dtype=np.float64)
    if settings.statistics == "episodes":
        return compared(rewards, settings.normalise, eps=settings.eps)
    counts = np.array([len(path.turns) for path in gathered], dtype=np.intp)
    everyone = compared(np.repeat(rewards, counts), settings.normalise, eps=settings.eps)
    first = np.cumsum(counts) - counts
    return np.array([everyone[i] if n else 0.0 for i, n in zip(first, counts, strict=True)])


def step_returns(gathered: Sequence[Path], gamma: float) -> list[FloatArray]:
    """Return the discounted return of each turn of each path."""
    return [discounted_returns(path.rewards(), gamma) for path in gathered]


def state_groups(gathered: Sequence[Path], history: int = 1) -> Mapping[Hashable, list[Place]]:
    """Return the turns that began in the same state after the same `history - 1` states before it.

    A turn without a key, or with a shorter past, is in no group. Turns that a fork shares with its parent are the parent's.
    """
    found: dict[Hashable, list[Place]] = {}
    for i, path in enumerate(gathered):
        for k in range(max(path.first_own, history - 1), len(path.turns)):
            keys = tuple(turn.state_key for turn in path.turns[k - history + 1 : k + 1])
            if None not in keys:
                found.setdefault(keys, []).append((i, k))
    return found


def step_advantages(gathered: Sequence[Path], settings: Gigpo) -> list[FloatArray]:
    """Return A_S per turn of each path, 0 where a state was met once."""
    returns = step_returns(gathered, settings.gamma)
    steps = [np.zeros(len(path.turns)) for path in gathered]
    for places in state_groups(gathered).values():
        numbers = np.array([returns[i][k] for i, k in places])
        for (i, k), advantage in zip(places, compared(numbers, settings.normalise, eps=settings.eps), strict=True):
            steps[i][k] = advantage
    return steps
