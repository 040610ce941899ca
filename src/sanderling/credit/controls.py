"""Controls: baselines that look at nothing that came after the action, to hold other estimators against.

reinforce     A_i = R_i                                          no baseline at all: unbiased, and as noisy as can be
other-tasks   A_i = R_i - mean reward of the other groups        no sibling is looked at
turn-index    A_k = G_k - mean G_k of the other episodes that reached turn k
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict

from sanderling.credit.comparison import compared
from sanderling.credit.episodes import broadcast, episode_rewards, episodes
from sanderling.credit.paths import discounted_returns, paths, per_turn
from sanderling.credit.protocol import About, Credit, Needs
from sanderling.types import Group, Signal


class Reinforce(BaseModel):
    """The reward itself (Williams 1992). It has no settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    needs: ClassVar[Needs] = frozenset()
    about: ClassVar[About] = About(
        equation="A_i = R_i", source="Williams, Machine Learning 8 (1992) 229-256", gradient="unbiased"
    )

    def __call__(self, group: Group) -> Credit:
        """Return (n_turns,) advantages per graded member, in units of the reward."""
        gathered = episodes(group)
        return broadcast(gathered, episode_rewards(gathered))


class OtherTasks(BaseModel):
    """The reward against the mean of all other groups of the step. It has no settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    needs: ClassVar[Needs] = frozenset()
    about: ClassVar[About] = About(
        equation="A_i = R_i - mean reward of the other groups of the step",
        source="leave-one-group-out form of Williams' baseline",
        gradient="unbiased: other tasks' rewards don't depend on the episode's actions",
    )

    def __call__(self, group: Group) -> Credit:
        """Return (n_turns,) rewards per graded member; the baseline needs the whole step."""
        gathered = episodes(group)
        return broadcast(gathered, episode_rewards(gathered))

    def across_groups(self, groups: Sequence[Group], credit: Credit) -> Credit:
        """Return the credit with the baseline taken off. One group alone has no baseline and keeps its rewards."""
        rewards = [episode_rewards(episodes(group)) for group in groups]
        total, count = sum(float(r.sum()) for r in rewards), sum(len(r) for r in rewards)
        final = dict(credit)
        for group, own in zip(groups, rewards, strict=True):
            others = count - len(own)
            baseline = (total - float(own.sum())) / others if others else 0.0
            final |= {m.trajectory.id: credit[m.trajectory.id] - baseline for m in group.graded()}
        return final


class TurnIndex(BaseModel):
    """Return-to-go against the mean of the siblings that reached the same turn. It has no settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    needs: ClassVar[Needs] = frozenset({Signal.SIBLINGS})
    about: ClassVar[About] = About(
        equation="A_k = G_k - mean of G_k over the other episodes that reached turn k",
        source="arXiv 1506.02438 eq. 1 with a baseline of time alone",
        gradient="unbiased where at least one other episode reaches the turn; turns that few reach get less than their share, "
        "because an episode alone there gets 0",
    )

    def __call__(self, group: Group) -> Credit:
        """Return (n_turns,) advantages per graded member, in units of the reward."""
        gathered = paths(group)
        returns = [discounted_returns(path.rewards(), 1.0) for path in gathered]
        advantages = [np.zeros(len(r)) for r in returns]
        for k in range(max(map(len, returns), default=0)):
            alive = [i for i, r in enumerate(returns) if len(r) > k >= gathered[i].first_own]
            found = compared(np.array([returns[i][k] for i in alive]), "leave-one-out")
            for i, advantage in zip(alive, found, strict=True):
                advantages[i][k] = advantage
        return per_turn(gathered, advantages)
