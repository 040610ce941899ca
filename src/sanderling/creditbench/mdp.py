"""A finite decision process with everything exact: what may happen, what the policy sees, what credit may see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class FiniteMdp:
    """S states, A actions, at most `max_turns` turns; reaching `goal` pays 1 and anything else pays 0.

    Policies are tables over what they distinguish: `views` numbers from 0 to F - 1. State keys are what the
    environment reports as `Turn.state_key`; they may be coarser than the views (an alias) or finer (a nonce).
    """

    name: str
    transitions: FloatArray  # (S, A, S) probabilities
    goal: int
    terminal: BoolArray  # (S,) the goal is one of them
    max_turns: int  # the limit while sampling
    eval_turns: int  # the limit of the objective, at least `max_turns`
    views: IntArray  # (S, eval_turns + 1): what the policy distinguishes in state s before turn t
    keys: IntArray  # (S, eval_turns + 1): what the environment says the state is
    unique_keys: bool = False  # every key gets a nonce, as a time stamp in an observation does
    starts: tuple[int, ...] = (0,)  # each is a task
    turn_rewards: FloatArray | None = None  # (S, A) what a turn is paid where the environment pays per turn
    scores: FloatArray | None = None  # (S,) how good a state is, where the environment says so; NaN: it doesn't

    @property
    def num_views(self) -> int:
        return int(self.views.max()) + 1

    @property
    def num_actions(self) -> int:
        return self.transitions.shape[1]

    @property
    def open_ended(self) -> bool:
        """The limit while sampling is not the limit of the objective: an episode that ran into it was cut."""
        return self.eval_turns > self.max_turns


def table(states: int, turns: int, of: Callable[[int, int], int]) -> IntArray:
    """Return `of(state, turn)` for all states and for turns 0 to `turns`, (states, turns + 1)."""
    return np.array([[of(s, t) for t in range(turns + 1)] for s in range(states)], dtype=np.int64)


def softmax(logits: FloatArray) -> FloatArray:
    """Return probabilities over the last axis."""
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)
