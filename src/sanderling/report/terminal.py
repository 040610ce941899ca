"""Progress of a run: one plain line per step, or a live display where somebody looks at a terminal.

step 12/80  solved 0.31 (20/64)  turns 4.2  entropy 0.51  kl 0.004  grad 0.83  zero variance 3/8  41s  left 46m
"""

from __future__ import annotations

import math
import time
from collections import deque
from enum import StrEnum
from types import TracebackType
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sanderling.types import StepReport

BARS = "▁▂▃▄▅▆▇█"
SHOWN_STEPS = 8
HISTORY = 60


class ProgressStyle(StrEnum):
    AUTO = "auto"  # live on a terminal, plain elsewhere
    PLAIN = "plain"
    LIVE = "live"
    NONE = "none"


class Progress:
    """Shows a run while it goes on. It writes to the stream that it is given and to nothing else.

    Example::

        with Progress(sys.stderr, total_steps=80, title="fix-python") as progress:
            progress.phase("sampling")
            progress.step(report)
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        total_steps: int | None = None,
        title: str = "",
        style: ProgressStyle = ProgressStyle.AUTO,
    ) -> None:
        """Open the display. `stream` is standard output, or standard error where output is for machines."""
        self.total_steps = total_steps
        self.title = title
        self._stream = stream
        self._started = time.monotonic()
        self._phase = "starting"
        self._reports: deque[StepReport] = deque(maxlen=HISTORY)
        self._notes: deque[str] = deque(maxlen=3)
        self._console = Console(file=stream, highlight=False)
        if style is ProgressStyle.AUTO:
            style = ProgressStyle.LIVE if self._console.is_terminal else ProgressStyle.PLAIN
        self.style = style
        self._live: Live | None = None
        if style is ProgressStyle.LIVE:
            self._live = Live(console=self._console, get_renderable=self._render, refresh_per_second=2, transient=False)
            self._live.start()

    def phase(self, name: str) -> None:
        """Say what is going on now, such as "sampling"; shown on the live display only."""
        self._phase = name

    def step(self, report: StepReport) -> None:
        """Show a finished step."""
        self._reports.append(report)
        if self._live is None:
            self._line(step_line(report, total_steps=self.total_steps, left_s=self._left_s(report.step)))

    def evaluation(self, label: str, *, solved: int, tasks: int, low: float, high: float) -> None:
        """Show an evaluation; `low` and `high` are the ends of its interval."""
        rate = solved / tasks if tasks else float("nan")
        self.note(f"evaluation {label}: {solved}/{tasks} solved = {rate:.3f}, 95 % interval {low:.3f} to {high:.3f}")

    def note(self, text: str) -> None:
        """Show one line that stays."""
        self._notes.append(text)
        if self._live is None:
            self._line(text)
        else:
            self._live.console.print(text, markup=False)

    def close(self) -> None:
        """Leave the last state on the screen. May be called twice."""
        if self._live is not None:
            self._live.stop()
            self._live = None
            self.style = ProgressStyle.NONE

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _line(self, text: str) -> None:
        if self.style is not ProgressStyle.NONE:
            self._stream.write(text + "\n")
            self._stream.flush()

    def _left_s(self, step: int) -> float | None:
        recent = [report.timing["step_s"] for report in self._reports if "step_s" in report.timing]
        if self.total_steps is None or not recent:
            return None
        return sum(recent) / len(recent) * max(0, self.total_steps - step)

    def _render(self) -> RenderableType:
        last = self._reports[-1] if self._reports else None
        of = f"/{self.total_steps}" if self.total_steps else ""
        head = Text.assemble(
            (self.title or "run", "bold"),
            f"  step {last.step if last else 0}{of}",
            (f"  {self._phase}", "cyan"),
            (f"  {duration(time.monotonic() - self._started)}", "dim"),
        )
        left = self._left_s(last.step) if last else None
        if left is not None:
            head.append(f"  left {duration(left)}", "dim")
        rates = [report.metrics["solve_rate"] for report in self._reports if "solve_rate" in report.metrics]
        curve = Text.assemble(("solved ", "dim"), (sparkline(rates, low=0.0, high=1.0), "green"))
        return Group(head, curve, _table(list(self._reports)[-SHOWN_STEPS:]))


def step_line(report: StepReport, *, total_steps: int | None = None, left_s: float | None = None) -> str:
    """Return the plain line of a step; numbers that the report lacks are left out."""
    parts = [f"step {report.step}" + (f"/{total_steps}" if total_steps else "")]
    parts += [f"{name} {value}" for name, value in _cells(report).items() if value]
    if "step_s" in report.timing:
        parts.append(duration(report.timing["step_s"]))
    if left_s is not None:
        parts.append(f"left {duration(left_s)}")
    return "  ".join(parts)


def sparkline(values: list[float], *, low: float | None = None, high: float | None = None) -> str:
    """Return one bar per value between `low` and `high` (default: the values' own); "" for none, a space for NaN."""
    finite = [value for value in values if not math.isnan(value)]
    if not finite:
        return " " * len(values)
    bottom = min(finite) if low is None else low
    span = (max(finite) if high is None else high) - bottom
    return "".join(" " if math.isnan(value) else _bar((value - bottom) / span if span > 0 else 0.5) for value in values)


def duration(seconds: float) -> str:
    """Return 0.04s, 0.4s, 41s, 3m20s, 2h05m."""
    if seconds < 0.1:
        return f"{seconds:.2f}s"
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def _bar(share: float) -> str:
    return BARS[min(len(BARS) - 1, max(0, int(share * len(BARS))))]


def _cells(report: StepReport) -> dict[str, str]:
    metrics, counts = report.metrics, report.counts
    return {
        "solved": _solved(report),
        "reward": _number(metrics.get("reward_mean")) if "solve_rate" not in metrics else "",
        "turns": _number(metrics.get("turns_mean"), 1),
        "entropy": _number(metrics.get("entropy")),
        "kl": _number(metrics.get("approx_kl"), 4),
        "grad": _number(metrics.get("grad_norm")),
        "trained": str(counts["trained"]) if "trained" in counts else "",
        "zero variance": _share(metrics.get("groups_zero_variance"), metrics.get("groups_total")),
        "ungraded": str(counts["ungraded"]) if counts.get("ungraded") else "",
        "hacks": str(counts["hacks_proven"]) if counts.get("hacks_proven") else "",
        "suspected": str(counts["hacks_suspected"]) if counts.get("hacks_suspected") else "",
        "eval": _number(metrics.get("eval_solve_rate")),
    }


def _solved(report: StepReport) -> str:
    """Return rate and counts; the step's graded members are those trained and those dropped."""
    rate = report.metrics.get("solve_rate")
    if rate is None:
        return ""
    graded = sum(number for name, number in report.counts.items() if name == "trained" or name.startswith("dropped_"))
    return f"{rate:.2f}" + (f" ({round(rate * graded)}/{graded})" if graded else "")


def _share(part: float | None, whole: float | None) -> str:
    return "" if part is None or whole is None else f"{part:.0f}/{whole:.0f}"


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _table(reports: list[StepReport]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    rows = [_cells(report) for report in reports]
    shown = [name for name in (rows[-1] if rows else {}) if any(row[name] for row in rows)]
    table.add_column("step", justify="right")
    for name in shown:
        table.add_column(name, justify="right")
    if rows:
        table.add_column("time", justify="right")
    for report, row in zip(reports, rows, strict=True):
        seconds = duration(report.timing["step_s"]) if "step_s" in report.timing else ""
        table.add_row(str(report.step), *(row[name] for name in shown), seconds)
    return table
