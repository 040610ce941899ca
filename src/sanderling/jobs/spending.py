"""What a run has spent: the account in which estimators are compared, and the budget that ends a run.

The unit is an environment turn that was really taken: those of lost attempts, of excluded episodes and of forks count like
any other, because each had to be sampled and executed. Everything is read from the rollouts on disk, so that a resumed run
knows what was spent before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sanderling.credit.episodes import own_turns
from sanderling.store.reader import RunReader
from sanderling.types import Gradient, Member, Membership, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """Sums over some steps of a run."""

    turns: int = 0  # taken in the environment, whatever became of them
    auxiliary_turns: int = 0  # of them in forks
    wasted_turns: int = 0  # of them in attempts that entered no baseline and served no other
    sampled_tokens: int = 0
    trained_tokens: int = 0  # of episodes whose gradient was on; without those that had no advantage
    episodes: int = 0  # attempts, forks included

    def __add__(self, other: Spending) -> Spending:
        return Spending(**{name: getattr(self, name) + getattr(other, name) for name in Spending.__slots__})

    def as_json(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in Spending.__slots__}


def spending_of(members: Iterable[Member], trained: Iterable[str]) -> Spending:
    """Return what these members cost; `trained` are the ids of the trajectories that had an advantage."""
    live, total = set(trained), Spending()
    for member in members:
        trajectory, own = member.trajectory, own_turns(member.trajectory)
        fork = trajectory.parent_id is not None and trajectory.begins_episode
        lost = member.disposition.membership is Membership.EXCLUDED
        trains = trajectory.id in live and member.disposition.gradient is Gradient.FULL
        total += Spending(
            turns=len(own),
            auxiliary_turns=len(own) if fork else 0,
            wasted_turns=len(own) if lost and not fork else 0,
            sampled_tokens=_tokens(own),
            trained_tokens=_tokens(own) if trains else 0,
            episodes=int(trajectory.begins_episode),
        )
    return total


@dataclass(slots=True, kw_only=True)
class Accounts:
    """The spending of a run by step; steps are read when they are asked for, and once."""

    run: RunReader
    known: dict[int, Spending] = field(default_factory=dict)

    def up_to(self, step: int) -> Spending:
        """Return the spending of the stored steps from 1 to `step`, both included."""
        total = Spending()
        for number in range(1, step + 1):
            if number not in self.known:
                rollouts = self.run.rollouts(number)
                live = {name for name, given in rollouts.advantages.items() if any(given)}
                self.known[number] = spending_of(rollouts.members(), live)
            total += self.known[number]
        return total


def _tokens(turns: Iterable[Turn]) -> int:
    return sum(len(turn.action.token_ids) for turn in turns)
