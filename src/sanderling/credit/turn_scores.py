"""Scores of states by the environment (such as the share of visible tests that pass), on top of the episode's advantage.

    telescoping   d_k = s_k - s_{k-1};  c_k = sum over j >= k of d_j gamma^(j-k) / sum_{i<=j} gamma^(j-i);  A_k = A_O + w c_k
    bounded       q_k = sign(A) d_k;  w_k = clip(1 + b z(q_k), 1 - b, 1 + b);  A_k = w_k A_O

s_k is the score of the state that turn k left behind; a turn without one leaves the last score. Deltas telescope: standing
still earns nothing, and a peak that is undone earns nothing in sum. Each delta is spread over the turns that led to it, with
weights that sum to 1. The bounded form never changes the sign of an advantage, so that a wrong score can't turn it round.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from sanderling.credit.comparison import Normalise, compared
from sanderling.credit.paths import FloatArray, Path, paths, per_turn
from sanderling.credit.protocol import About, Credit, Needs
from sanderling.credit.turn_rewards import outcomes
from sanderling.types import Group, Signal

_NEEDS = frozenset({Signal.SIBLINGS, Signal.TURN_SCORES})


def score_changes(path: Path, first: float) -> FloatArray:
    """Return how much each turn changed the score, (K,); `first` is the score before the first turn."""
    scores, last = [first], first
    for turn in path.turns:
        last = last if turn.score is None else turn.score
        scores.append(last)
    return np.diff(np.array(scores, dtype=np.float64))


def smeared(changes: FloatArray, gamma: float) -> FloatArray:
    """Spread each change over its own turn and those before, with weights gamma^distance that sum to 1; (K,), same sum."""
    credit = np.zeros(len(changes))
    for j, change in enumerate(changes):
        weights = gamma ** np.arange(j, -1, -1.0)
        credit[: j + 1] += change * weights / weights.sum()
    return credit


class TurnCredit(BaseModel):
    """The episode's advantage and, on top, the telescoping changes of the score."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    needs: ClassVar[Needs] = _NEEDS
    about: ClassVar[About] = About(
        equation="A_k = A_O + w c_k; the c_k of an episode sum to its last score minus its first",
        source="telescoping turn credit; potentials as in Ng, Harada and Russell, ICML 1999",
        gradient="biased towards states with a high score, as far as w reaches; for w = 0 that of the episode's advantage",
    )

    turn_weight: float = Field(default=1.0, ge=0.0)
    """Weight w of the changes; 0: the episode's advantage alone. It should reach 0 before training ends."""
    gamma: float = Field(default=0.0, ge=0.0, le=1.0)
    """How far back a change is spread; 0: it belongs to its own turn."""
    first_score: float = 0.0
    """Score of the task before the first turn."""
    normalise: Normalise = "std"
    """How outcomes are compared."""
    eps: float = Field(default=0.0, ge=0.0)
    """Added to the deviation."""

    def __call__(self, group: Group) -> Credit:
        """Return (n_turns,) advantages per graded member: deviations or reward, plus w times units of the score."""
        gathered = paths(group)
        whole = compared(outcomes(gathered), self.normalise, eps=self.eps)
        return per_turn(
            gathered,
            [
                a + self.turn_weight * smeared(score_changes(path, self.first_score), self.gamma)
                for a, path in zip(whole, gathered, strict=True)
            ],
        )


class BoundedScores(BaseModel):
    """The episode's advantage, a little more where the score moved its way and a little less where it did not."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    needs: ClassVar[Needs] = _NEEDS
    about: ClassVar[About] = About(
        equation="A_k = A_O clip(1 + b z(sign(A_O) d_k), 1 - b, 1 + b)",
        source="bounded reshaping in the manner of arXiv 2608.05987",
        gradient="biased, by at most the share b of each turn's part",
    )

    bound: float = Field(default=0.25, ge=0.0, lt=1.0)
    """Largest relative change b of an advantage."""
    first_score: float = 0.0
    """Score of the task before the first turn."""
    normalise: Normalise = "std"
    """How outcomes are compared."""
    eps: float = Field(default=0.0, ge=0.0)
    """Added to the deviation of the outcomes."""

    def __call__(self, group: Group) -> Credit:
        """Return (n_turns,) advantages per graded member, with the sign of the episode's advantage."""
        gathered = paths(group)
        whole = compared(outcomes(gathered), self.normalise, eps=self.eps)
        return per_turn(
            gathered,
            [a * self._weights(float(a), path) for a, path in zip(whole, gathered, strict=True)],
        )

    def _weights(self, advantage: float, path: Path) -> FloatArray:
        aligned = np.sign(advantage) * score_changes(path, self.first_score)
        z = compared(aligned, "std", ddof=0)
        return np.clip(1.0 + self.bound * z, 1.0 - self.bound, 1.0 + self.bound)
