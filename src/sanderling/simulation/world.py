"""Episodes that are going on, and what the simulated parts know of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from sanderling.simulation.processors import Machine
from sanderling.simulation.scripts import Round, Script, Workload
from sanderling.simulation.virtual_time import running_loop
from sanderling.types import Int32Array


class TokenKind(Enum):
    """Where a token stands."""

    PROMPT = "prompt"
    ACTION = "action"
    OBSERVATION = "observation"


@dataclass(slots=True)
class Play:
    """An episode that is going on."""

    number: int
    script: Script
    unread: int  # tokens that the engine has not read yet
    next_round: int = 0

    @property
    def current(self) -> Round:
        return self.script.rounds[self.next_round]

    @property
    def at_the_end(self) -> bool:
        return self.next_round == len(self.script.rounds) - 1

    def move_on(self) -> None:
        self.unread = self.current.observation_tokens
        self.next_round += 1


@dataclass(slots=True, kw_only=True)
class World:
    """What the simulated parts share. One stored token id stands for `tokens_per_id` tokens."""

    workload: Workload
    machine: Machine
    tokens_per_id: float
    rounds: int | None  # at most so many per episode; None: a round for each turn
    plays: dict[int, Play] = field(default_factory=dict)
    sandboxes: int = 0
    most_sandboxes: int = 0
    sandbox_s: float = 0.0  # seconds of all sandboxes together, up to the last one that came or went
    _counted_at: float = 0.0
    _rest: dict[TokenKind, float] = field(default_factory=lambda: dict.fromkeys(TokenKind, 0.0))

    def ids(self, kind: TokenKind, tokens: float) -> Int32Array:
        """Return the ids that stand for so many tokens, (T,), at least one where the kind needs it.

        What rounding adds here it takes away from the next ids of the kind, so that sums are right.
        """
        wanted = tokens / self.tokens_per_id + self._rest[kind]
        count = max(0 if kind is TokenKind.OBSERVATION else 1, round(wanted))
        self._rest[kind] = wanted - count
        return np.zeros(count, dtype=np.int32)

    def count_sandboxes(self, change: int) -> None:
        """Note that so many sandboxes came (or went)."""
        now = running_loop().time()
        self.sandbox_s += self.sandboxes * (now - self._counted_at)
        self._counted_at = now
        self.sandboxes += change
        self.most_sandboxes = max(self.most_sandboxes, self.sandboxes)
