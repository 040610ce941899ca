"""Making findings, and reading what they say together."""

from __future__ import annotations

from collections.abc import Iterable

from sanderling.types import Exhibit, Finding, Group, Severity

RANK: dict[Severity, int] = {"info": 0, "suspected": 1, "proven": 2}
LONGEST_QUOTE = 200


def finding(
    exhibit: Exhibit, screen: str, severity: Severity, explanation: str, *, quote: str = "", turn: int | None = None
) -> Finding:
    """Return a finding about an episode; the quote is cut to `LONGEST_QUOTE` characters."""
    shown = quote if len(quote) <= LONGEST_QUOTE else f"{quote[: LONGEST_QUOTE - 3]}..."
    return Finding(
        trajectory_id=exhibit.rows[0].id,
        screen=screen,
        severity=severity,
        turn=turn,
        quote=shown,
        explanation=explanation,
    )


def worst(findings: Iterable[Finding]) -> Severity | None:
    """Return the highest severity among findings, None where there are none."""
    return max((found.severity for found in findings), key=RANK.__getitem__, default=None)


def worst_by_episode(group: Group) -> dict[str, Severity | None]:
    """Return the highest severity by the id of an episode's root."""
    found: dict[str, list[Finding]] = {root.trajectory.id: [] for root in group.roots()}
    for member in group.members:
        found.setdefault(member.trajectory.parent_id or member.trajectory.id, []).extend(member.findings)
    return {name: worst(some) for name, some in found.items()}
