"""What may look at an episode when it is over, beside its grading."""

from __future__ import annotations

from typing import Protocol

from sanderling.sandbox.protocol import Sandbox, SandboxBackend
from sanderling.types import Disposition, Exhibit, Finding


class Screen(Protocol):
    @property
    def enters(self) -> bool:
        """Whether it looks into the agent's sandbox, which is then kept until `look` has returned."""
        ...

    async def look(
        self, exhibit: Exhibit, backend: SandboxBackend, seed: int, place: Sandbox | None = None
    ) -> tuple[Finding, ...]:
        """Return what is noticed about a graded episode.

        `backend` and `seed` are those of its grading: the same seed gives the same hidden inputs. `place` is the agent's
        sandbox as it was handed in, with nothing alive in it; None: nothing was, or it wasn't kept.
        """
        ...

    def decide(self, fate: Disposition, findings: tuple[Finding, ...]) -> Disposition:
        """Return what becomes of the episode, given what was found; never more than `fate` gives it."""
        ...
