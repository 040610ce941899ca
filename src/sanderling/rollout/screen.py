"""What may look at an episode when it is over, beside its grading."""

from __future__ import annotations

from typing import Protocol

from sanderling.sandbox.protocol import SandboxBackend
from sanderling.types import Disposition, Exhibit, Finding


class Screen(Protocol):
    async def look(self, exhibit: Exhibit, backend: SandboxBackend, seed: int) -> tuple[Finding, ...]:
        """Return what is noticed about a graded episode.

        `backend` and `seed` are those of its grading: the same seed gives the same hidden inputs.
        """
        ...

    def decide(self, fate: Disposition, findings: tuple[Finding, ...]) -> Disposition:
        """Return what becomes of the episode, given what was found; never more than `fate` gives it."""
        ...
