"""One picture of the bench: a panel per environment, turns for SNR 1 on a logarithmic scale, one line per arm."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape

from sanderling.creditbench.quality import Quality

_WIDTH, _COLUMNS, _LINE, _HEAD, _FOOT, _LABELS = 1080, 3, 15, 26, 22, 122
_STYLE = (
    "<style>text{font:10px system-ui,sans-serif;fill:#57606a}.h{font-size:12px;font-weight:600;fill:#24292f}"
    ".g{stroke:#d0d7de;stroke-width:1}.ok{stroke:#0969da;fill:#0969da}.off{stroke:#cf222e;fill:#fff}"
    ".ref{stroke:#8c959f;stroke-dasharray:2 3}line{stroke-width:1.5}circle{stroke-width:1.5}</style>"
)
UNBIASED = 0.99


def draw(qualities: Mapping[str, Mapping[str, Quality]]) -> str:
    """Return an SVG file. Blue: cosine of at least 0.99; red and hollow: below, with the cosine. The dashed line is RLOO."""
    width = _WIDTH / _COLUMNS
    panels, top, rows = [], 30.0, list(qualities.items())
    for first in range(0, len(rows), _COLUMNS):
        row = rows[first : first + _COLUMNS]
        for column, (name, arms) in enumerate(row):
            panels.append(_panel(name, arms, column * width, top, width))
        top += max(len(arms) for _, arms in row) * _LINE + _HEAD + _FOOT + 12
    legend = (
        '<text x="8" y="16">Environment turns for SNR 1, logarithmic, fewer is better. Blue: unbiased (cosine at least 0.99). '
        "Red: biased, with its cosine. Dashed: RLOO.</text>"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top:.0f}" role="img" '
        f'aria-label="Turns for SNR 1 by environment and arm">{_STYLE}'
        f'<rect width="{_WIDTH}" height="{top:.0f}" fill="#fff"/>{legend}{"".join(panels)}</svg>'
    )


def _panel(name: str, arms: Mapping[str, Quality], left: float, top: float, width: float) -> str:
    found = [q.turns_for_snr_1 for q in arms.values() if q.turns_for_snr_1 is not None]
    low = math.floor(math.log10(min((e.low for e in found), default=1.0)))
    high = min(7, math.ceil(math.log10(max((e.high for e in found), default=10.0))))
    start, end, base = left + _LABELS, left + width - 40, top + _HEAD + len(arms) * _LINE

    def at(turns: float) -> float:
        share = (math.log10(turns) - low) / max(1, high - low)
        return start + min(1.0, max(0.0, share)) * (end - start)

    parts = [f'<text class="h" x="{left + 8:.0f}" y="{top + 14:.0f}">{escape(name)}</text>']
    for power in range(low, high + 1):
        x = at(10.0**power)
        parts.append(f'<line class="g" x1="{x:.1f}" x2="{x:.1f}" y1="{top + _HEAD - 4:.0f}" y2="{base:.0f}"/>')
        parts.append(f'<text x="{x:.1f}" y="{base + 12:.0f}" text-anchor="middle">{_power(power)}</text>')
    reference = arms["rloo"].turns_for_snr_1 if "rloo" in arms else None
    if reference is not None:
        x = at(reference.value)
        parts.append(f'<line class="ref" x1="{x:.1f}" x2="{x:.1f}" y1="{top + _HEAD - 4:.0f}" y2="{base:.0f}"/>')
    for number, (arm, quality) in enumerate(arms.items()):
        y = top + _HEAD + (number + 0.5) * _LINE
        parts.append(f'<text x="{start - 6:.0f}" y="{y + 3:.1f}" text-anchor="end">{escape(arm)}</text>')
        parts.append(_mark(quality, (at, y, start)))
    return "".join(parts)


def _mark(quality: Quality, place: tuple) -> str:
    at, y, start = place
    needed, cosine = quality.turns_for_snr_1, quality.cosine
    if needed is None:
        return f'<text x="{start + 4:.0f}" y="{y + 3:.1f}">{"noise" if quality.has_signal else "no signal"}</text>'
    biased = cosine is None or cosine.value < UNBIASED
    look, x = ("off" if biased else "ok"), at(needed.value)
    note = "" if not biased else f'<text x="{at(needed.high) + 7:.1f}" y="{y + 3:.1f}">{_cosine(quality)}</text>'
    return (
        f'<line class="{look}" x1="{at(needed.low):.1f}" x2="{at(needed.high):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<circle class="{look}" cx="{x:.1f}" cy="{y:.1f}" r="3.2"/>{note}'
    )


def _cosine(quality: Quality) -> str:
    return "noise" if quality.cosine is None else f"{quality.cosine.value:.2f}"


def _power(power: int) -> str:
    return {0: "1", 1: "10", 2: "100", 3: "1k", 4: "10k", 5: "100k", 6: "1M"}.get(power, f"1e{power}")
