"""Declared names, their page, and the estimators behind them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanderling.report.metrics import Metric, check_declared, declare, declared, document, find, pass_at_k, wilson
from sanderling.types import StepReport, StopReason


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_intervals_are_those_of_newcombe_1998_table_1(k, n, low, high):
    assert wilson(k, n) == pytest.approx((low, high), abs=5e-5)


def test_wilson_at_the_ends_by_hand():
    share = 1.959963984540054**2 / (10 + 1.959963984540054**2)  # z²/(n + z²)
    assert wilson(0, 10) == pytest.approx((0.0, share))
    assert wilson(10, 10) == pytest.approx((1.0 - share, 1.0))


def test_wilson_with_other_confidence_and_with_nothing_tried():
    assert wilson(0, 0) == (0.0, 1.0)
    narrow, wide = wilson(30, 100, 0.5), wilson(30, 100, 0.99)
    assert wide[0] < narrow[0] < 0.3 < narrow[1] < wide[1]
    for bad in ((-1, 3), (4, 3)):
        with pytest.raises(ValueError, match="expected 0 <= successes <= trials"):
            wilson(*bad)
    with pytest.raises(ValueError, match="outside"):
        wilson(1, 2, 1.0)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_rate_and_mirrors(counts):
    k, n = counts
    low, high = wilson(k, n)
    assert 0.0 <= low <= k / n <= high <= 1.0
    assert wilson(n - k, n) == pytest.approx((1 - high, 1 - low))


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [(5, 0, 1, 0.0), (5, 2, 1, 0.4), (5, 2, 2, 0.7), (5, 2, 4, 1.0), (4, 1, 4, 1.0), (10, 3, 5, 11 / 12)],
)
def test_pass_at_k_by_hand(n, c, k, expected):
    assert pass_at_k(n, c, k) == pytest.approx(expected)


def test_pass_at_k_counts_subsets_and_stays_finite():
    from itertools import combinations

    outcomes = [1, 1, 0, 0, 0, 0, 1, 0]
    subsets = list(combinations(outcomes, 3))
    assert pass_at_k(8, 3, 3) == pytest.approx(sum(any(s) for s in subsets) / len(subsets))
    assert pass_at_k(100_000, 10, 1000) == pytest.approx(1 - 0.99**10, abs=1e-4)
    with pytest.raises(ValueError, match="pass@3 needs"):
        pass_at_k(2, 1, 3)


def report(**parts) -> StepReport:
    return StepReport(step=1, policy_version=1, **({"metrics": {}, "timing": {}, "counts": {}} | parts))


def test_every_stop_reason_and_any_drop_reason_is_declared():
    stops = {f"stop_{stop.value}": 0.1 for stop in StopReason}
    check_declared(report(metrics=stops, counts={"dropped_stale": 1, "dropped_zero_advantage": 2}))
    with pytest.raises(ValueError, match=r"'stop_bored' in StepReport\.metrics"):
        check_declared(report(metrics={"stop_bored": 0.1}))
    with pytest.raises(ValueError, match=r"'dropped_' in StepReport\.counts"):
        check_declared(report(counts={"dropped_": 1}))


def test_an_undeclared_name_is_told_from_one_in_the_wrong_place():
    with pytest.raises(ValueError, match=r"'step_s' in StepReport.metrics \(declared for StepReport.timing\)"):
        check_declared(report(metrics={"step_s": 1.0}))
    with pytest.raises(ValueError, match=r"declare it: sanderling\.store\.metrics\.declare"):
        check_declared(report(timing={"coffee_s": 1.0}))


def test_a_name_means_one_thing():
    mine = Metric(name="lines_changed_mean", kind="metrics", unit="lines", formula="mean lines changed per submission")
    assert declare(mine) is mine
    declare(mine)
    check_declared(report(metrics={"lines_changed_mean": 2.0}))
    with pytest.raises(ValueError, match="declared already"):
        declare(Metric(name="lines_changed_mean", kind="metrics", unit="lines", formula="another thing"))


def test_every_declaration_says_something_and_is_found():
    for metric in declared():
        assert metric.unit
        assert len(metric.formula) > 8
        name = metric.name + (metric.values or ("anything",))[0] if metric.prefix else metric.name
        assert find(metric.kind, name) == metric


def test_the_page_in_the_documentation_is_current():
    page = Path(__file__).parents[2] / "docs" / "metrics.md"
    generated = "\n".join(line for line in document().splitlines() if "lines_changed_mean`" not in line)
    assert page.read_text("utf-8").rstrip("\n") == generated, "run: python -m sanderling.report.metrics docs/metrics.md"
