"""GAE over turns (arXiv 2512.17008): a turn is one step, however many tokens it has; see `gae` for equation and clock."""

from __future__ import annotations

from typing import ClassVar

from sanderling.credit.gae import GaeSettings, gae, value_after
from sanderling.credit.paths import FloatArray, Path, paths, per_turn
from sanderling.credit.protocol import About, Credit, Needs
from sanderling.types import Group, Signal


class TurnGae(GaeSettings):
    """The value of a turn is that of its first action token, and all its tokens share the advantage.

    With lam = 0 and values from fresh continuations at each turn, this is VinePPO (arXiv 2410.01679).
    """

    needs: ClassVar[Needs] = frozenset({Signal.TURN_VALUES})
    about: ClassVar[About] = About(
        equation="A_k = delta_k + gamma lambda A_{k+1}, delta_k = r_k + gamma V_{k+1} - V_k, over turns",
        source="arXiv 1506.02438 eq. 16; over turns arXiv 2512.17008",
        gradient="unbiased with lambda = gamma = 1, whatever the values (where a budget cut it: as far as the value at the end "
        "is right); with lambda < 1 as far as the values are right",
    )

    def __call__(self, group: Group) -> Credit:
        """Return (n_turns,) advantages per graded member, in units of the reward.

        Raises:
            ConfigError: values are missing.
        """
        gathered = paths(group)
        return per_turn(gathered, [self._advantages(path, self.lam) for path in gathered])

    def targets(self, group: Group, lam: float) -> Credit:
        """Return (n_turns,) lambda-returns A_k + V_k; see `protocol.LearnsValues`."""
        gathered = paths(group)
        return per_turn(gathered, [self._advantages(path, lam) + path.values().at_turns for path in gathered])

    def _advantages(self, path: Path, lam: float) -> FloatArray:
        values = path.values()
        after = value_after(path, values.at_end, self.at_budget)
        return gae(path.rewards(), values.at_turns, after, gamma=self.gamma, lam=lam)
