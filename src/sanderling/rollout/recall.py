"""Which attempts of a killed process still count: those sampled from weights that this process has, too.

Weights are told apart by the engine's fingerprint. A step that is trained again from the same rows gives the same
weights to the bit, so what was sampled from them is taken over as well; where it gives others, it is not. An episode that
failed through our fault to its last retry is not taken over either: what failed may work now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sanderling.store.episode_log import Logged
from sanderling.types import Member


@dataclass(slots=True)
class Recall:
    """The records of earlier processes, and the weights of this one."""

    ended: dict[str, list[Logged]] = field(default_factory=dict)  # by trajectory id, oldest first
    weights: dict[int, str] = field(default_factory=dict)  # fingerprint by policy version, of this course of training
    retries: int = 0  # further attempts of an episode that failed through our fault

    def has(self, name: str) -> bool:
        """Return whether `take` would find a record."""
        return self._usable(name) is not None

    def take(self, name: str) -> tuple[Member, ...] | None:
        """Return the newest usable record of an attempt and forget the others; None: there is none.

        Raises:
            RunFolderError: the record can't be read any more.
        """
        found = self._usable(name)
        if found is None:
            return None
        del self.ended[name]
        return found.members()

    def unusable(self, name: str) -> Iterator[str]:
        """Yield why each record of an attempt is not taken, and forget it."""
        for logged in self.ended.pop(name, []):
            why = "its step is run again as a whole"
            if other := [v for v, fingerprint in logged.weights.items() if self.weights.get(v) != fingerprint]:
                why = f"sampled by weights of version {other} that this course of training does not have"
            elif self._failed_for_good(name, logged):
                why = "it failed through our fault to its last retry, and is tried again"
            yield f"a result of process {logged.process}: {why}"

    def keep_whole(self, group_ids: Iterable[str], size: int) -> list[str]:
        """Return the attempts to refuse, unless every place of these groups can be recalled to its end.

        A step in lockstep is recalled as a whole or not at all: what is in a batch decides the last bits of its results.
        """
        places = [f"{group}/{index}" for group in group_ids for index in range(size)]
        wanted = set(places)
        known = [name for name in self.ended if name.rpartition(".")[0] in wanted]
        return [] if all(self._ends(place) for place in places) else known

    def weights_of(self, members: Sequence[Member]) -> dict[int, str]:
        """Return the fingerprint of each version that sampled a token of these rows; "" where it isn't known."""
        actions = [turn.action for member in members for turn in member.trajectory.turns]
        versions = {int(version) for action in actions for version in action.policy_versions}
        return {version: self.weights.get(version, "") for version in sorted(versions)}

    def _ends(self, place: str) -> bool:
        for attempt in range(self.retries + 1):
            found = self._usable(f"{place}.{attempt}")
            if found is None or found.verdict == "graded":
                return found is not None
        return False

    def _usable(self, name: str) -> Logged | None:
        for logged in reversed(self.ended.get(name, [])):
            same = all(fingerprint and self.weights.get(v) == fingerprint for v, fingerprint in logged.weights.items())
            if same and not self._failed_for_good(name, logged):
                return logged
        return None

    def _failed_for_good(self, name: str, logged: Logged) -> bool:
        return logged.verdict == "ungraded" and attempt_of(name) >= self.retries


def group_of(name: str) -> str:
    """Return the group of a trajectory id `<group>/<index>.<attempt>`."""
    return name.rpartition("/")[0]


def attempt_of(name: str) -> int:
    """Return the attempt number of a trajectory id."""
    return int(name.rpartition(".")[2])
