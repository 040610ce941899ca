"""Walks: many episodes of a `FiniteMdp` at once, as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sanderling.creditbench.mdp import BoolArray, FiniteMdp, FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Walks:
    """N episodes of at most T turns. Entries of turns that were not taken hold the last state and a drawn action."""

    states: IntArray  # (N, T) before each turn
    actions: IntArray  # (N, T)
    taken: BoolArray  # (N, T)
    ends: IntArray  # (N,) the state at the end
    cut: BoolArray  # (N,) ended by the limit on turns
    rewards: FloatArray  # (N,) 1.0 at the goal
    policies: IntArray  # (N,) which of the policies took the actions

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def lengths(self) -> IntArray:
        """Turns of each episode, (N,)."""
        return self.taken.sum(1)

    def part(self, which: slice | NDArray[np.int64]) -> Walks:
        """Return some of them."""
        return Walks(**{name: getattr(self, name)[which] for name in Walks.__slots__})


def sample(
    mdp: FiniteMdp,
    policies: FloatArray,
    which: IntArray,
    starts: IntArray,
    rng: np.random.Generator,
    *,
    first_turn: int = 0,
) -> Walks:
    """Return one episode for each entry of `starts`, (N,) states.

    Args:
        mdp: the process.
        policies: (K, F, A) probabilities.
        which: (N,) policy of each episode.
        starts: (N,) states.
        rng: source of chance.
        first_turn: number of turns that were taken before; a continuation of an episode has more than 0.
    """
    turns = mdp.max_turns - first_turn
    shape = (len(starts), turns)
    states, actions = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    taken = np.zeros(shape, dtype=np.bool_)
    ladder = mdp.transitions.cumsum(-1)
    state = starts.copy()
    for t in range(turns):
        chances = policies[which, mdp.views[state, first_turn + t]]
        action = _draw(chances.cumsum(-1), rng)
        states[:, t], actions[:, t], taken[:, t] = state, action, ~mdp.terminal[state]
        state = np.where(taken[:, t], _draw(ladder[state, action], rng), state)
    return Walks(
        states=states,
        actions=actions,
        taken=taken,
        ends=state,
        cut=~mdp.terminal[state],
        rewards=(state == mdp.goal).astype(np.float64),
        policies=which,
    )


def _draw(ladder: FloatArray, rng: np.random.Generator) -> IntArray:
    """Return one index per row of cumulated probabilities (N, K)."""
    drawn = (rng.random((len(ladder), 1)) > ladder).sum(-1)
    return np.minimum(drawn, ladder.shape[1] - 1)
