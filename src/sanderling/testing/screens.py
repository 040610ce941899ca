"""Screens for tests of what follows from findings; name one in the setting `screening.own`."""

from __future__ import annotations

import string
from dataclasses import dataclass

from sanderling.sandbox.protocol import SandboxBackend
from sanderling.screening.findings import finding
from sanderling.types import Exhibit, Finding, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class CharacterScreen:
    """Reports an episode whose change holds one of some characters."""

    characters: bytes
    severity: Severity
    names: tuple[str, ...] = ("characters",)

    async def look(self, exhibit: Exhibit, backend: SandboxBackend, seed: int) -> tuple[Finding, ...]:
        """Return one finding, or none."""
        submitted = b"".join(exhibit.submission.files.values()) if exhibit.submission else b""
        held = bytes(sorted(set(submitted) & set(self.characters)))
        if not held:
            return ()
        return (finding(exhibit, "characters", self.severity, "the change holds one", quote=held.decode("latin-1")),)


class FailingScreen:
    """Can't look at anything."""

    names = ("failing",)

    async def look(self, exhibit: Exhibit, backend: SandboxBackend, seed: int) -> tuple[Finding, ...]:
        """Raise an error."""
        raise RuntimeError("failed on request of the test")


SUSPECTS_LETTERS = CharacterScreen(characters=string.ascii_letters.encode(), severity="suspected")
PROVES_LETTERS = CharacterScreen(characters=string.ascii_letters.encode(), severity="proven")
