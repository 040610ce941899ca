"""The charts of a report. Each comes in two widths, so that its text is readable on a phone too."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sanderling.report.digest import Decoding, Evaluation, StepSummary, smoothed
from sanderling.report.svg import Axis, Frame, band, dots, interval, line, padded, stacked_bars
from sanderling.store.metrics import find
from sanderling.types import StepReport

STOP_ORDER = (
    "submitted",
    "gave_up",
    "max_turns",
    "max_tokens",
    "max_action_tokens",
    "timeout",
    "format_error",
    "sandbox_broken",
    "sandbox_lost",
    "engine_error",
    "verifier_error",
    "cancelled",
)
PHASES = ("rollout_s", "train_s", "push_s", "store_s", "checkpoint_s", "eval_s")
PARTS_OF_ROLLOUT = ("sample_s", "tools_s", "grade_s")  # shown in the place of rollout_s where that isn't recorded
HEALTH = (
    "entropy",
    "approx_kl",
    "grad_norm",
    "clip_fraction",
    "turns_mean",
    "action_tokens_mean",
    "groups_zero_variance",
    "logprob_gap_max",
    "staleness_max",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One chart in two widths, with the names of its colours."""

    wide: str
    narrow: str
    legend: tuple[tuple[int, str], ...] = ()  # (colour class, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Small:
    """One small chart with its declared meaning."""

    name: str
    unit: str
    formula: str
    last: str
    svg: str


def learning_curve(steps: Sequence[StepSummary], evaluations: Sequence[Evaluation]) -> Chart | None:
    """Return training and evaluation rates over steps: dots per step, a pooled window with its interval, evaluations."""
    placed = [(one, _place(one, steps)) for one in evaluations if one.rate.graded]
    graded = [one for one in steps if one.rate.graded]
    if not graded and not placed:
        return None
    xs = [float(one.step) for one in graded]
    width = max(3, round(len(graded) / 12) | 1)
    pooled = smoothed(graded, width)
    every = [*xs, *(x for _, x in placed)]

    def draw(frame: Frame) -> list[str]:
        tips = [f"step {one.step}: {one.rate.solved} of {one.rate.graded} solved" for one in graded]
        marks = [
            band(frame, xs, [rate.low for rate in pooled], [rate.high for rate in pooled], 0),
            dots(frame, xs, [one.rate.value for one in graded], 0, tips),
            line(frame, xs, [rate.value for rate in pooled], 0),
        ]
        for colour, decoding in enumerate(Decoding, start=1):
            aside = (2 * colour - 3) * 5 * (frame.x.high - frame.x.low) / frame.width  # side by side, not on top
            alike = [(one, x + aside) for one, x in placed if one.decoding is decoding]
            marks.append(line(frame, [x for _, x in alike], [one.rate.value for one, _ in alike], colour, "dashed"))
            marks += [_evaluation_mark(frame, one, x, colour) for one, x in alike]
        return marks

    legend = [(0, f"training episodes: each step, and {width} steps pooled with their 95 % interval")] if graded else []
    for colour, decoding in enumerate(Decoding, start=1):
        if any(one.decoding is decoding for one, _ in placed):
            legend.append((colour, f"evaluation, {decoding.value}, with its 95 % interval"))
    rates = Axis(low=0.0, high=1.0, percent=True)
    return _both(draw, _roomy(_steps_axis(every)), rates, "Solve rate over steps", tuple(legend))


def _evaluation_mark(frame: Frame, one: Evaluation, x: float, colour: int) -> str:
    rate = one.rate
    tip = f"{one.label}: {rate.solved} of {rate.graded} = {rate.value:.1%}, {rate.low:.1%} to {rate.high:.1%}"
    return interval(frame, x, (rate.value, rate.low, rate.high), colour, tip)


def stop_chart(steps: Sequence[StepSummary]) -> Chart | None:
    """Return how episodes ended, as shares of all trajectories of each step."""
    present = [stop for stop in STOP_ORDER if any(one.stops.get(stop) for one in steps)]
    if not present:
        return None
    xs = [float(one.step) for one in steps]
    parts = {_words(stop): [one.stops.get(stop, 0) / max(1, one.total) for one in steps] for stop in present}
    return _stack(xs, parts, Axis(low=0.0, high=1.0, percent=True), "How episodes ended, by step")


def time_chart(reports: Sequence[StepReport]) -> Chart | None:
    """Return the seconds of each phase by step."""
    parts = phase_seconds(reports)
    if not parts:
        return None
    xs = [float(report.step) for report in reports]
    highest = max(sum(values[i] for values in parts.values()) for i in range(len(reports)))
    axis = Axis(low=0.0, high=highest * 1.05 or 1.0, label="seconds")
    return _stack(xs, parts, axis, "Seconds per phase, by step")


def phase_seconds(reports: Sequence[StepReport]) -> dict[str, list[float]]:
    """Return the seconds of each recorded phase, one per report; phases that took nothing are left out."""
    whole = any("rollout_s" in report.timing for report in reports)
    names = PHASES if whole else (*PARTS_OF_ROLLOUT, *PHASES)
    found = {name: [_finite(report.timing.get(name, 0.0)) for report in reports] for name in names}
    return {name.removesuffix("_s"): values for name, values in found.items() if sum(values) > 0}


def health_charts(reports: Sequence[StepReport]) -> list[Small]:
    """Return one small chart per recorded metric of `HEALTH`."""
    return [_small(name, reports) for name in HEALTH if sum(name in report.metrics for report in reports) > 1]


def _small(name: str, reports: Sequence[StepReport]) -> Small:
    xs = [float(report.step) for report in reports]
    ys = [report.metrics.get(name, math.nan) for report in reports]
    finite = [value for value in ys if math.isfinite(value)]
    floor = 0.0 if finite and min(finite) >= 0 else None
    low, high = padded(ys, floor=floor)
    metric = find("metrics", name)
    frame = Frame(
        width=280,
        height=132,
        x=_steps_axis(xs, ticks=4),
        y=Axis(low=low, high=high, ticks=3),
        bottom=22,
        left=44,
        top=8,
    )
    return Small(
        name=_words(name),
        unit=metric.unit if metric and metric.unit != "1" else "",
        formula=metric.formula if metric else "",
        last=f"{finite[-1]:.3g}" if finite else "none",
        svg=frame.draw(
            [line(frame, xs, ys, 0, "thin" if len(xs) > 120 else "solid")], title=f"{_words(name)} over steps"
        ),
    )


def _stack(xs: Sequence[float], parts: Mapping[str, Sequence[float]], y: Axis, title: str) -> Chart:
    def draw(frame: Frame) -> list[str]:
        return [stacked_bars(frame, xs, parts)]

    axis = _steps_axis(xs)
    whole_bars = Axis(low=axis.low - 0.5, high=axis.high + 0.5, label="step")
    return _both(draw, whole_bars, y, title, tuple(enumerate(parts)))


def _both(
    draw: Callable[[Frame], list[str]], x: Axis, y: Axis, title: str, legend: tuple[tuple[int, str], ...]
) -> Chart:
    wide = Frame(width=820, height=300, x=_with_ticks(x, 10), y=y, bottom=40)
    narrow = Frame(width=360, height=250, x=_with_ticks(x, 5), y=y, bottom=40)
    return Chart(wide=wide.draw(draw(wide), title=title), narrow=narrow.draw(draw(narrow), title=title), legend=legend)


def _with_ticks(axis: Axis, ticks: int) -> Axis:
    return Axis(low=axis.low, high=axis.high, label=axis.label, percent=axis.percent, ticks=ticks)


def _roomy(axis: Axis) -> Axis:
    room = 0.02 * (axis.high - axis.low)
    return Axis(low=axis.low - room, high=axis.high + room, label=axis.label)


def _steps_axis(xs: Sequence[float], ticks: int = 10) -> Axis:
    low, high = (min(xs), max(xs)) if xs else (0.0, 1.0)
    return Axis(low=low, high=high if high > low else low + 1, label="step" if ticks > 4 else "", ticks=ticks)


def _place(one: Evaluation, steps: Sequence[StepSummary]) -> float:
    """Return where an evaluation stands on the axis of steps."""
    if one.step is not None:
        return float(one.step)
    digits = "".join(char for char in one.label if char.isdigit())
    if digits:
        return float(digits)
    return 0.0 if one.label == "before" or not steps else float(steps[-1].step)


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def _words(name: str) -> str:
    return name.replace("_", " ")
