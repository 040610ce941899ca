"""The turns of an episode in the order in which they were taken, whatever rows they lie in, and the way back to rows.

Estimators that give turns of an episode different credit work on paths. Turns that a row shares with its parent are the
parent's; a fork's path holds them too, because its return comes after them, and `first_own` says where its own begin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sanderling.credit.episodes import Episode, episodes
from sanderling.errors import ConfigError
from sanderling.types import Branching, Group, Member, Turn, Values

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """The K turns of one graded episode."""

    episode: Episode
    turns: tuple[Turn, ...]
    owners: tuple[Member, ...]  # (K,) the member in whose row each turn lies
    places: Mapping[str, NDArray[np.intp]]  # by trajectory id: which turns of the path its own turns are, (n_turns,)
    first_own: int  # turns before it are those of the episode that this one was forked from

    @property
    def truncated(self) -> bool:
        """A budget ended the episode."""
        return self.episode.members[0].trajectory.stop.truncated

    def rewards(self) -> FloatArray:
        """Return what each turn was paid (K,): its own reward, and on the last one that of the episode on top."""
        paid = np.array([turn.reward for turn in self.turns], dtype=np.float64)
        if len(paid):
            paid[-1] += self.episode.reward
        return paid

    def token_counts(self) -> NDArray[np.intp]:
        """Return the action tokens of each turn, (K,)."""
        return np.array([len(turn.action.token_ids) for turn in self.turns], dtype=np.intp)

    def values(self) -> Values:
        """Return the values of all turns (K,), of all tokens where every row has them, and at the end of the episode.

        Raises:
            ConfigError: a row has none.
        """
        turns, tokens = [], []
        for place, member in enumerate(self.owners):
            values = member.values
            if values is None:
                raise ConfigError(
                    f"trajectory {member.trajectory.id!r} has no values; expected those of a value model or of forks"
                )
            own = int(np.flatnonzero(self.places[member.trajectory.id] == place)[0])
            turns.append(values.at_turns[own])
            if values.at_tokens is not None:
                lengths = [len(turn.action.token_ids) for turn in member.trajectory.turns]
                start = sum(lengths[:own])
                tokens.append(values.at_tokens[start : start + lengths[own]])
        last = self.owners[-1].values if self.owners else None
        return Values(
            at_turns=np.array(turns, dtype=np.float64),
            at_tokens=np.concatenate(tokens).astype(np.float64) if tokens and len(tokens) == len(turns) else None,
            at_end=last.at_end if last is not None else None,
        )


def paths(group: Group) -> tuple[Path, ...]:
    """Return one path per graded episode, in the order of `episodes(group)`."""
    return tuple(_path(episode) for episode in episodes(group))


def per_turn(gathered: Sequence[Path], advantages: Sequence[FloatArray]) -> dict[str, FloatArray]:
    """Give each row the advantages of its turns; `advantages[i]` is (K,) for path i."""
    return {
        name: np.asarray(values, dtype=np.float64)[places]
        for path, values in zip(gathered, advantages, strict=True)
        for name, places in path.places.items()
    }


def per_token(gathered: Sequence[Path], advantages: Sequence[FloatArray]) -> dict[str, FloatArray]:
    """Give each row the advantages of its action tokens; `advantages[i]` runs over all action tokens of path i."""
    credit: dict[str, FloatArray] = {}
    for path, values in zip(gathered, advantages, strict=True):
        parts = np.split(np.asarray(values, dtype=np.float64), np.cumsum(path.token_counts())[:-1])
        for name, places in path.places.items():
            credit[name] = np.concatenate([parts[k] for k in places]) if len(places) else np.zeros(0)
    return credit


def discounted_returns(rewards: FloatArray, gamma: float) -> FloatArray:
    """Return G_k = sum over j >= k of gamma^(j - k) r_j, (K,)."""
    returns, following = np.zeros(len(rewards)), 0.0
    for k in reversed(range(len(rewards))):
        following = returns[k] = rewards[k] + gamma * following
    return returns


def _path(episode: Episode) -> Path:
    root, *rows = episode.members
    turns, owners = list(root.trajectory.turns), [root] * len(root.trajectory.turns)
    places = {root.trajectory.id: np.arange(len(turns), dtype=np.intp)}
    for member in rows:
        trajectory, shared = member.trajectory, member.trajectory.forked_at or 0
        before = places.get(trajectory.parent_id or "", places[root.trajectory.id])[:shared]
        own = trajectory.turns[shared:]
        places[trajectory.id] = np.concatenate([before, np.arange(len(turns), len(turns) + len(own))]).astype(np.intp)
        turns += own
        owners += [member] * len(own)
    return Path(
        episode=episode,
        turns=tuple(turns),
        owners=tuple(owners),
        places=places,
        first_own=(root.trajectory.forked_at or 0) if root.trajectory.branching is Branching.FORK else 0,
    )
