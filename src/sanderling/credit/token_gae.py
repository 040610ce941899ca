"""GAE over action tokens that skips observations (SAO, arXiv 2607.07508); see `gae` for equation and clock.

Where an episode has several rows (its context was folded), rows = "joint" walks over all of them as one. "compaction" is the
form of CompactionRL (arXiv 2607.05378): each row by itself with the reward at its end, then

    A_row = (gamma lambda)^(action tokens after the row) * A_local
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from sanderling.credit.gae import GaeSettings, gae, value_after
from sanderling.credit.paths import FloatArray, Path, paths, per_token
from sanderling.credit.protocol import About, Credit, Needs
from sanderling.errors import ConfigError
from sanderling.types import Group, Signal

ADAPTIVE = 1.5  # SAO's constant: lambda = 1 - 1 / (1.5 l)


def adaptive_lambda(tokens: int) -> float:
    """Return 1 - 1 / (1.5 l) for an episode of l action tokens, at least 0: long episodes look farther ahead."""
    return max(0.0, 1.0 - 1.0 / (ADAPTIVE * tokens)) if tokens else 0.0


def token_rewards(path: Path) -> FloatArray:
    """Return what each action token was paid: that of its turn, on the turn's last token.

    Raises:
        ConfigError: a turn without a token was paid.
    """
    counts, paid = path.token_counts(), path.rewards()
    if np.any((counts == 0) & (paid != 0.0)):
        raise ConfigError(
            f"trajectory {path.episode.id!r} has a paid turn without action tokens; no token can earn its reward"
        )
    rewards = np.zeros(int(counts.sum()))
    np.add.at(rewards, np.cumsum(counts)[counts > 0] - 1, paid[counts > 0])
    return rewards


def token_values(path: Path) -> FloatArray:
    """Return the value before each action token.

    Raises:
        ConfigError: a row has values of turns only, or none.
    """
    values = path.values().at_tokens
    if values is None and path.turns:
        raise ConfigError(
            f"trajectory {path.episode.id!r} has values of turns only; token GAE needs one before each action token"
        )
    return np.zeros(0) if values is None else values


class TokenGae(GaeSettings):
    """An action token is one step. What a turn was paid stands on its last token."""

    needs: ClassVar[Needs] = frozenset({Signal.TOKEN_VALUES})
    about: ClassVar[About] = About(
        equation="A_t = delta_t + gamma lambda A_{t+1}, over action tokens; observations are skipped",
        source="arXiv 1506.02438 eq. 16; skipping arXiv 2607.07508; rows arXiv 2607.05378",
        gradient="unbiased with lambda = gamma = 1, whatever the values (where a budget cut it: as far as the value at the end "
        'is right); with lambda < 1 as far as the values are right; rows = "compaction" is biased for earlier rows',
        level="token",
    )

    decay: Literal["constant", "adaptive"] = "constant"
    """Whether lambda is `lam`, or 1 - 1 / (1.5 l) for the l action tokens of the episode (SAO), where `lam` has no say."""
    rows: Literal["joint", "compaction"] = "joint"
    """How the rows of an episode come together."""

    def __call__(self, group: Group) -> Credit:
        """Return (n_action_tokens,) advantages per graded member, in units of the reward.

        Raises:
            ConfigError: values are missing.
        """
        gathered = paths(group)
        return per_token(gathered, [self._advantages(path, self._lambda(path)) for path in gathered])

    def targets(self, group: Group, lam: float) -> Credit:
        """Return (n_action_tokens,) lambda-returns A_t + V_t over all rows jointly; see `protocol.LearnsValues`."""
        gathered = paths(group)
        return per_token(gathered, [self._joint(path, lam) + token_values(path) for path in gathered])

    def _lambda(self, path: Path) -> float:
        return self.lam if self.decay == "constant" else adaptive_lambda(int(path.token_counts().sum()))

    def _advantages(self, path: Path, lam: float) -> FloatArray:
        return self._joint(path, lam) if self.rows == "joint" else self._compaction(path, lam)

    def _joint(self, path: Path, lam: float) -> FloatArray:
        after = value_after(path, path.values().at_end, self.at_budget)
        return gae(token_rewards(path), token_values(path), after, gamma=self.gamma, lam=lam)

    def _compaction(self, path: Path, lam: float) -> FloatArray:
        after = value_after(path, path.values().at_end, self.at_budget)
        rewards, values = token_rewards(path), token_values(path)
        lengths: dict[str, int] = {}
        for member, count in zip(path.owners, path.token_counts(), strict=True):
            lengths[member.trajectory.id] = lengths.get(member.trajectory.id, 0) + int(count)
        advantages, stop, left = [], len(rewards), 0
        for length in reversed(list(lengths.values())):
            row = slice(stop - length, stop)
            local = rewards[row].copy()
            if left and length:
                local[-1] += path.episode.reward
            found = gae(local, values[row], 0.0 if left else after, gamma=self.gamma, lam=lam)
            advantages.append(found * (self.gamma * lam) ** left)
            stop, left = row.start, left + length
        return np.concatenate(advantages[::-1]) if advantages else np.zeros(0)
