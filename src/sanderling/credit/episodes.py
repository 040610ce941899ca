"""Rows of one episode count once: in the baseline and in the loss weights.

Folding the context splits an episode into several trajectories. A row names its parent and the number of turns
that it shares with it; it has the reward of its episode and is no further sample of the policy. A fork is: it was sampled
anew from a state of its parent, and begins an episode of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sanderling.errors import InvariantViolation
from sanderling.types import Gradient, Group, Member, Trajectory, Turn

RESIDUE = 1e-9  # rewards that differ by less than this share of the largest one are equal: the rest is float residue


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """The graded rows of one episode, the first one first."""

    id: str  # of the trajectory at the root
    reward: float
    members: tuple[Member, ...]

    @property
    def num_action_tokens(self) -> int:
        """Action tokens over all rows, trained or not; turns shared with a parent count there."""
        return sum(len(turn.action.token_ids) for m in self.members for turn in own_turns(m.trajectory))

    @property
    def num_trained_tokens(self) -> int:
        """Action tokens that get a gradient, over all branches; turns shared with a parent count there."""
        return sum(
            sum(len(turn.action.token_ids) for turn in own_turns(m.trajectory))
            for m in self.members
            if m.disposition.gradient is Gradient.FULL
        )


def own_turns(trajectory: Trajectory) -> Sequence[Turn]:
    """Return the turns that are this branch's own: those after the part it shares with its parent."""
    return trajectory.turns[trajectory.forked_at or 0 :]


def episodes(group: Group) -> tuple[Episode, ...]:
    """Gather the graded members of a group by episode.

    Raises:
        InvariantViolation: branches of one episode have different rewards, or parents form a circle.
    """
    parents = {m.trajectory.id: None if m.trajectory.begins_episode else m.trajectory.parent_id for m in group.members}
    found: dict[str, list[Member]] = {}
    for member in group.graded():
        found.setdefault(_root(member.trajectory.id, parents), []).append(member)
    return tuple(
        Episode(id=root, reward=_reward(root, ms), members=tuple(sorted(ms, key=_place))) for root, ms in found.items()
    )


def episode_rewards(gathered: Sequence[Episode]) -> NDArray[np.float64]:
    """Return the rewards (n,) with float residue removed: where all are equal up to rounding, they become equal."""
    return settled(np.array([e.reward for e in gathered], dtype=np.float64))


def settled(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return numbers of one kind (n,), made equal where they are all equal up to rounding."""
    if len(numbers) and np.ptp(numbers) <= RESIDUE * np.abs(numbers).max():
        numbers = np.full_like(numbers, numbers[0])
    return numbers


def broadcast(gathered: Sequence[Episode], advantages: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Give every turn of every branch of episode i the advantage i."""
    return {
        m.trajectory.id: np.full(len(m.trajectory.turns), advantage, dtype=np.float64)
        for episode, advantage in zip(gathered, advantages, strict=True)
        for m in episode.members
    }


def _place(member: Member) -> tuple[bool, int, str]:
    """Return where a row stands in its episode: the root first, then by number (rows are called <root>+<number>)."""
    name = member.trajectory.id
    return not member.trajectory.begins_episode, len(name), name


def _root(trajectory_id: str, parents: dict[str, str | None]) -> str:
    seen = [trajectory_id]
    while (parent := parents.get(seen[-1])) is not None and parent in parents:
        if parent in seen:
            raise InvariantViolation(
                f"trajectory {trajectory_id!r} is its own ancestor: {' -> '.join([*seen, parent])}"
            )
        seen.append(parent)
    return seen[-1]


def _reward(root: str, members: Sequence[Member]) -> float:
    rewards = {float(m.disposition.reward) for m in members if m.disposition.reward is not None}
    if len(rewards) != 1:
        raise InvariantViolation(
            f"branches of episode {root!r} have rewards {sorted(rewards)}; all branches of one episode earn the same"
        )
    return rewards.pop()
