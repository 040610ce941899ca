"""Progress is one line per step for machines and logs, and a display for people."""

from __future__ import annotations

import io
import math

import pytest

from sanderling.report.terminal import Progress, ProgressStyle, duration, sparkline, step_line
from sanderling.types import StepReport


def report(step: int, seconds: float = 40.0) -> StepReport:
    return StepReport(
        step=step,
        policy_version=step,
        metrics={
            "solve_rate": 20 / 64,
            "turns_mean": 4.21,
            "entropy": 0.512,
            "approx_kl": 0.0041,
            "grad_norm": 0.83,
            "groups_zero_variance": 3.0,
            "groups_total": 8.0,
        },
        timing={"step_s": seconds},
        counts={"graded": 64, "trained": 40, "dropped_zero_advantage": 24, "ungraded": 2},
    )


def test_the_line_of_a_step():
    line = step_line(report(12), total_steps=80, left_s=2750)
    assert line == (
        "step 12/80  solved 0.31 (20/64)  turns 4.2  entropy 0.51  kl 0.0041  grad 0.83  trained 40  zero variance 3/8  "
        "ungraded 2  40s  left 45m50s"
    )
    bare = StepReport(step=1, policy_version=1, metrics={}, timing={}, counts={})
    assert step_line(bare) == "step 1"


def test_a_stream_that_is_no_terminal_gets_plain_lines_at_once():
    stream = io.StringIO()
    with Progress(stream, total_steps=3, title="x") as progress:
        assert progress.style is ProgressStyle.PLAIN
        progress.phase("sampling")
        progress.evaluation("before", solved=44, tasks=236, low=0.142, high=0.241)
        assert stream.getvalue() == "evaluation before: 44/236 solved = 0.186, 95 % interval 0.142 to 0.241\n"
        progress.step(report(1, 10.0))
        progress.step(report(2, 20.0))
    lines = stream.getvalue().splitlines()
    assert [line.split()[0:2] for line in lines[1:]] == [["step", "1/3"], ["step", "2/3"]]
    assert lines[1].endswith("10s  left 20s")
    assert lines[2].endswith("20s  left 15s")
    assert "\x1b" not in stream.getvalue()


def test_silence_is_possible():
    stream = io.StringIO()
    with Progress(stream, style=ProgressStyle.NONE) as progress:
        progress.step(report(1))
        progress.note("hello")
    assert stream.getvalue() == ""


def test_the_live_display_shows_the_last_steps_and_keeps_notes():
    stream = io.StringIO()
    progress = Progress(stream, total_steps=40, title="fix-python", style=ProgressStyle.LIVE)
    for step in range(1, 13):
        progress.step(report(step))
    progress.phase("evaluation")
    progress.note("kept [bold]as it is[/bold]")
    progress.close()
    progress.close()
    shown = stream.getvalue()
    assert "fix-python" in shown
    assert "step 12/40" in shown
    assert "evaluation" in shown
    assert "kept [bold]as it is[/bold]" in shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.012, "0.01s"), (0.44, "0.4s"), (41, "41s"), (59.7, "1m00s"), (200, "3m20s"), (7500, "2h05m")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_sparklines():
    assert sparkline([0.0, 0.5, 1.0], low=0.0, high=1.0) == "▁▅█"
    assert sparkline([2.0, math.nan, 4.0]) == "▁ █"
    assert sparkline([3.0, 3.0]) == "▅▅"
    assert sparkline([]) == ""
