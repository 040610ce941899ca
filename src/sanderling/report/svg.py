"""Charts as inline SVG: no script, no font, no request. Colours are CSS classes (c0, c1, ...), so that a page's theme applies.

A chart is a `Frame` (the area and its two axes) and marks drawn in it::

    frame = Frame(width=720, height=300, x=Axis(low=1, high=80, label="step"), y=Axis(low=0, high=1, percent=True))
    svg = frame.draw([line(frame, xs, ys, 0)], title="Solve rate")
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

Numbers = Sequence[float]
Look = Literal["solid", "thin", "dashed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A range of values and how to write them."""

    low: float
    high: float
    label: str = ""
    percent: bool = False
    ticks: int = 5  # about so many

    def text(self, value: float) -> str:
        if self.percent:
            return f"{100 * value:g} %"
        return compact(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The drawing area; margins leave room for the axes' text."""

    width: float
    height: float
    x: Axis
    y: Axis
    left: float = 46.0
    right: float = 12.0
    top: float = 12.0
    bottom: float = 34.0

    def px(self, value: float) -> float:
        """Return the horizontal position of a value."""
        return self.left + _share(value, self.x) * (self.width - self.left - self.right)

    def py(self, value: float) -> float:
        """Return the vertical position of a value."""
        return self.height - self.bottom - _share(value, self.y) * (self.height - self.top - self.bottom)

    def draw(self, marks: Iterable[str], *, title: str) -> str:
        """Return the whole chart; `title` is what a screen reader says."""
        return (
            f'<svg viewBox="0 0 {_n(self.width)} {_n(self.height)}" role="img" aria-label="{escape(title)}">'
            f"{self._axes()}{''.join(marks)}</svg>"
        )

    def _axes(self) -> str:
        base, parts = self.height - self.bottom, []
        for value in nice_ticks(self.y.low, self.y.high, self.y.ticks):
            y = self.py(value)
            parts.append(
                f'<line class="grid" x1="{_n(self.left)}" x2="{_n(self.width - self.right)}" y1="{_n(y)}" y2="{_n(y)}"/>'
            )
            parts.append(
                f'<text class="tick" x="{_n(self.left - 7)}" y="{_n(y + 4)}" text-anchor="end">{self.y.text(value)}</text>'
            )
        for value in nice_ticks(self.x.low, self.x.high, self.x.ticks, whole=True):
            x = self.px(value)
            parts.append(
                f'<text class="tick" x="{_n(x)}" y="{_n(base + 16)}" text-anchor="middle">{self.x.text(value)}</text>'
            )
        parts.append(
            f'<line class="axis" x1="{_n(self.left)}" x2="{_n(self.width - self.right)}" y1="{_n(base)}" y2="{_n(base)}"/>'
        )
        if self.y.label:
            parts.append(f'<text class="tick" x="{_n(self.left)}" y="{_n(self.top - 2)}">{escape(self.y.label)}</text>')
        if self.x.label:
            middle = (self.left + self.width - self.right) / 2
            parts.append(
                f'<text class="tick" x="{_n(middle)}" y="{_n(base + 31)}" text-anchor="middle">{escape(self.x.label)}</text>'
            )
        return "".join(parts)


def line(frame: Frame, xs: Numbers, ys: Numbers, colour: int, look: Look = "solid") -> str:
    """Return a line through the points; NaN breaks it, a lone point becomes a dot."""
    parts = []
    for run in _runs(xs, ys):
        if len(run) == 1:
            parts.append(_dot(frame, run[0], f"c{colour}", 2.5, ""))
            continue
        path = "M" + "L".join(f"{_n(frame.px(x))} {_n(frame.py(y))}" for x, y in run)
        parts.append(f'<path class="line c{colour}{"" if look == "solid" else f" {look}"}" d="{path}"/>')
    return "".join(parts)


def band(frame: Frame, xs: Numbers, lows: Numbers, highs: Numbers, colour: int) -> str:
    """Return the area between two curves."""
    points = [(x, a, b) for x, a, b in zip(xs, lows, highs, strict=True) if math.isfinite(a) and math.isfinite(b)]
    if len(points) < 2:
        return ""
    there = [f"{_n(frame.px(x))} {_n(frame.py(high))}" for x, _, high in points]
    back = [f"{_n(frame.px(x))} {_n(frame.py(low))}" for x, low, _ in reversed(points)]
    return f'<path class="band c{colour}" d="M{"L".join(there + back)}Z"/>'


def dots(frame: Frame, xs: Numbers, ys: Numbers, colour: int, labels: Sequence[str] = ()) -> str:
    """Return small faint dots; `labels` are what a pointer shows."""
    texts = labels or [""] * len(xs)
    points = zip(xs, ys, texts, strict=True)
    return "".join(_dot(frame, (x, y), f"c{colour} faint", 2.2, text) for x, y, text in points if math.isfinite(y))


def interval(frame: Frame, x: float, estimate: tuple[float, float, float], colour: int, label: str) -> str:
    """Return a point with its interval; `estimate` is (value, low, high)."""
    value, low, high = estimate
    px, caps = frame.px(x), []
    for end in (low, high):
        caps.append(f"M{_n(px - 4)} {_n(frame.py(end))}h8")
    stem = f"M{_n(px)} {_n(frame.py(low))}V{_n(frame.py(high))}"
    return f'<path class="whisker c{colour}" d="{stem}{"".join(caps)}"/>' + _dot(
        frame, (x, value), f"c{colour}", 4.5, label
    )


def stacked_bars(frame: Frame, xs: Numbers, parts: Mapping[str, Numbers]) -> str:
    """Return one bar per x, split into `parts` from the bottom up; part i has colour i.

    Bars touch where there are many, so that they read as areas.
    """
    if not len(xs):
        return ""
    slot = (frame.px(frame.x.high) - frame.px(frame.x.low)) / max(1.0, frame.x.high - frame.x.low)
    width = max(1.0, slot * (0.82 if slot > 6 else 1.0))
    drawn = []
    for index, x in enumerate(xs):
        bottom = 0.0
        for colour, (name, values) in enumerate(parts.items()):
            value = values[index]
            if not math.isfinite(value) or value <= 0:
                continue
            top = bottom + value
            y, height = frame.py(top), frame.py(bottom) - frame.py(top)
            tip = f"<title>{frame.x.label} {x:g}: {escape(name)} {frame.y.text(round(value, 3))}</title>"
            drawn.append(
                f'<rect class="fill c{colour}" x="{_n(frame.px(x) - width / 2)}" y="{_n(y)}" '
                f'width="{_n(width)}" height="{_n(height)}">{tip}</rect>'
            )
            bottom = top
    return "".join(drawn)


def nice_ticks(low: float, high: float, count: int, *, whole: bool = False) -> list[float]:
    """Return round values (1, 2, 2.5 or 5 times a power of ten) within [low, high], about `count` of them."""
    span = high - low
    if not (math.isfinite(span) and span > 0):
        return [low] if math.isfinite(low) else []
    rough = span / max(1, count)
    power = 10.0 ** math.floor(math.log10(rough))
    steps = [power * factor for factor in (1, 2, 5, 10)] if whole else [power * factor for factor in (1, 2, 2.5, 5, 10)]
    step = next(candidate for candidate in steps if candidate >= rough * 0.999)
    if whole:
        step = max(1.0, step)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(step * index, 12) for index in range(first, last + 1)]


def padded(values: Iterable[float], *, floor: float | None = None) -> tuple[float, float]:
    """Return a range around the finite values with a little room; `floor` is its lower end where given."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return (0.0, 1.0)
    low, high = min(finite) if floor is None else min(floor, *finite), max(finite)
    room = (high - low) * 0.08 or abs(high) * 0.1 or 1.0
    return (low if floor is not None else low - room, high + room)


def compact(value: float) -> str:
    """Return a number in few characters: 0, 0.05, 12, 1.2k, 3e-05."""
    size = abs(value)
    if size >= 10_000:
        return f"{value / 1000:g}k"
    if size != 0 and size < 0.001:
        return f"{value:.0e}"
    return f"{value:.4g}"


def _share(value: float, axis: Axis) -> float:
    span = axis.high - axis.low
    return 0.5 if span == 0 else (value - axis.low) / span


def _runs(xs: Numbers, ys: Numbers) -> list[list[tuple[float, float]]]:
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y in zip(xs, ys, strict=True):
        if math.isfinite(y):
            runs[-1].append((x, y))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _dot(frame: Frame, at: tuple[float, float], look: str, radius: float, label: str) -> str:
    tip = f"<title>{escape(label)}</title>" if label else ""
    return (
        f'<circle class="dot {look}" cx="{_n(frame.px(at[0]))}" cy="{_n(frame.py(at[1]))}" r="{radius}">{tip}</circle>'
    )


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
