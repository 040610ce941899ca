"""The accounts of a run: at every moment submitted = graded + ungraded + running (invariant 4)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from sanderling.errors import InvariantViolation
from sanderling.types import Member, Ungraded


@dataclass(slots=True)
class Ledger:
    """Counts attempts. It is the one mutable account of the rollout stage; everybody else reads `snapshot()`."""

    submitted: int = 0
    graded: int = 0
    ungraded: int = 0
    running: int = 0
    retried: int = 0
    stops: Counter[str] = field(default_factory=Counter)

    def start(self) -> None:
        self.submitted += 1
        self.running += 1
        self.check()

    def finish(self, member: Member) -> None:
        """Count the end of an attempt; `member` is its root, however many rows it has."""
        self.running -= 1
        if isinstance(member.verdict, Ungraded):
            self.ungraded += 1
        else:
            self.graded += 1
        self.stops[member.trajectory.stop.value] += 1
        self.check()

    def abandon(self) -> None:
        """Count an attempt that was cancelled before it had a record."""
        self.running -= 1
        self.ungraded += 1
        self.stops["cancelled"] += 1
        self.check()

    def check(self) -> None:
        """Raise InvariantViolation if the accounts do not add up."""
        if self.running < 0 or self.submitted != self.graded + self.ungraded + self.running:
            raise InvariantViolation(
                f"accounts do not add up: submitted {self.submitted} != graded {self.graded} + ungraded {self.ungraded} "
                f"+ running {self.running}"
            )

    def snapshot(self) -> dict[str, int]:
        return {
            "submitted": self.submitted,
            "graded": self.graded,
            "ungraded": self.ungraded,
            "running": self.running,
            "retried": self.retried,
        }
