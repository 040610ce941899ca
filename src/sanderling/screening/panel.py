"""All screens over one episode."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, Protocol, runtime_checkable

from sanderling.errors import ConfigError
from sanderling.sandbox.protocol import Sandbox, SandboxBackend
from sanderling.screening.findings import finding, worst
from sanderling.types import Disposition, Exhibit, Finding, Membership, Severity

FAILED = "screen_failed"
PROVEN = "hack_proven"  # reason of the disposition
logger = logging.getLogger("sanderling.screening")


class EpisodeScreen(Protocol):
    """One screen of a panel."""

    @property
    def names(self) -> Sequence[str]:
        """What its findings are called in `Finding.screen`."""
        ...

    async def look(self, exhibit: Exhibit, backend: SandboxBackend, seed: int) -> Sequence[Finding]:
        """Return what it notices. An error costs the episode its place in training: it is reported as suspected."""
        ...


@runtime_checkable
class InsideScreen(EpisodeScreen, Protocol):
    """One that looks into the agent's sandbox too: `look` is asked only where there is none, as nothing was handed in."""

    async def look_inside(
        self, exhibit: Exhibit, place: Sandbox, backend: SandboxBackend, seed: int
    ) -> Sequence[Finding]:
        """Return what it notices; see `EpisodeScreen.look`. `place` is for all screens: work in a fork of it."""
        ...


class Panel:
    """Implements `rollout.screen.Screen`: asks every screen and puts the configured severities in place of their own.

    Args:
        screens: asked in this order.
        severities: by name of a screen; "off" drops its findings.
        acts: whether a proof changes what an episode earns.

    Raises:
        ConfigError: a severity is set for a screen that isn't there.
    """

    def __init__(
        self,
        screens: Sequence[EpisodeScreen],
        severities: Mapping[str, Severity | Literal["off"]],
        *,
        acts: bool = True,
    ) -> None:
        known = [FAILED, *(name for screen in screens for name in screen.names)]
        unknown = [name for name in severities if name not in known]
        if unknown:
            raise ConfigError(
                f"screening.severities names no screen of this run: {unknown[0]!r}; they are {', '.join(known)}"
            )
        self._screens = tuple(screens)
        self._severities = dict(severities)
        self._acts = acts

    @property
    def enters(self) -> bool:
        """Whether a screen looks into the agent's sandbox; see `rollout.screen.Screen`."""
        return any(isinstance(screen, InsideScreen) for screen in self._screens)

    async def look(
        self, exhibit: Exhibit, backend: SandboxBackend, seed: int, place: Sandbox | None = None
    ) -> tuple[Finding, ...]:
        """Return the findings of all screens; see `rollout.screen.Screen`."""
        found: list[Finding] = []
        for screen in self._screens:
            try:
                if place is not None and isinstance(screen, InsideScreen):
                    found += await screen.look_inside(exhibit, place, backend, seed)
                else:
                    found += await screen.look(exhibit, backend, seed)
            except Exception as error:  # whatever it was, this episode went unscreened
                logger.warning("a screen failed on %s: %s", exhibit.rows[0].id, error)
                quote = f"{type(error).__name__}: {error}"
                explanation = f"{', '.join(screen.names)[:80]} could not look at this episode"
                found.append(finding(exhibit, FAILED, "suspected", explanation, quote=quote))
        return tuple(shown for one in found if (shown := self._as_configured(one)) is not None)

    def decide(self, fate: Disposition, findings: tuple[Finding, ...]) -> Disposition:
        """Return the disposition, with reward 0 for what is proven. Suspicion is `Watch.settle`'s business."""
        proven = self._acts and worst(findings) == "proven"
        if not proven or fate.membership is Membership.EXCLUDED:
            return fate
        return replace(fate, reward=0.0, reason=PROVEN)

    def _as_configured(self, found: Finding) -> Finding | None:
        severity = self._severities.get(found.screen, found.severity)
        return None if severity == "off" else replace(found, severity=severity)
