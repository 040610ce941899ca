"""Charts put values where they belong."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanderling.report.svg import Axis, Frame, band, compact, interval, line, nice_ticks, padded, stacked_bars

FRAME = Frame(
    width=246, height=146, x=Axis(low=0, high=10, label="step"), y=Axis(low=0, high=1, percent=True), bottom=34, left=34
)


def test_corners_of_the_frame():
    assert (FRAME.px(0), FRAME.px(10)) == (34, 234)
    assert (FRAME.py(0), FRAME.py(1)) == (112, 12)


def test_a_chart_is_well_formed_and_names_itself():
    marks = [line(FRAME, [0, 5, 10], [0, 0.5, 1], 0), interval(FRAME, 5, (0.5, 0.4, 0.7), 1, "a < b & c")]
    root = ElementTree.fromstring(FRAME.draw(marks, title='the "rate" & more'))
    assert root.attrib["aria-label"] == 'the "rate" & more'
    path = next(node for node in root.iter("path") if node.attrib["class"] == "line c0")
    assert path.attrib["d"] == "M34 112L134 62L234 12"
    circle = next(root.iter("circle"))
    assert (circle.attrib["cx"], circle.attrib["cy"]) == ("134", "62")
    assert circle[0].text == "a < b & c"


def test_a_gap_breaks_a_line_and_a_lone_point_is_a_dot():
    drawn = line(FRAME, [0, 1, 2, 3, 4], [0, 1, math.nan, 1, math.inf], 2)
    assert drawn.count("<path") == 1
    assert drawn.count("<circle") == 1
    assert line(FRAME, [], [], 0) == ""
    assert band(FRAME, [1], [0], [1], 0) == ""


def test_bars_stand_on_each_other():
    drawn = stacked_bars(FRAME, [1, 2], {"a": [0.25, 0.0], "b": [0.5, math.nan]})
    rects = re.findall(r'y="([\d.]+)" width="[\d.]+" height="([\d.]+)"', drawn)
    assert rects == [("87", "25"), ("37", "50")]
    assert "step 1: b 50 %" in drawn


@pytest.mark.parametrize(
    ("low", "high", "count", "expected"),
    [
        (0, 1, 5, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0, 80, 4, [0, 20, 40, 60, 80]),
        (3, 3, 5, [3]),
        (0.0, 0.1, 2, [0, 0.05, 0.1]),
    ],
)
def test_ticks_are_round(low, high, count, expected):
    assert nice_ticks(low, high, count) == pytest.approx(expected)


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(1, 12))
def test_ticks_stay_inside_and_few(low, span, count):
    high = low + span
    ticks = nice_ticks(low, high, count)
    assert all(low - 1e-6 * span <= tick <= high + 1e-6 * span for tick in ticks) or span < 1e-9 * abs(low)
    assert len(ticks) <= 2 * count + 2


def test_ranges_leave_room_and_survive_nothing():
    assert padded([]) == (0.0, 1.0)
    assert padded([math.nan]) == (0.0, 1.0)
    low, high = padded([2.0, 4.0])
    assert low < 2.0
    assert high > 4.0
    assert padded([2.0, 4.0], floor=0.0)[0] == 0.0
    assert padded([5.0])[0] < 5.0 < padded([5.0])[1]


def test_numbers_in_few_characters():
    assert [compact(x) for x in (0, 0.05, 12, 12000, 0.00003)] == ["0", "0.05", "12", "12k", "3e-05"]
