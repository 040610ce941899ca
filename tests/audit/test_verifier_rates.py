"""The mathematics of an imperfect verifier, with the numbers of the worked examples."""

from __future__ import annotations

import math
from random import Random

import pytest

from sanderling.audit import intervals, rates
from sanderling.audit.rates import Judged
from sanderling.store.estimators import wilson


def test_expected_reward_of_tests_that_catch_four_fifths_of_the_failures():
    q = rates.expected_reward(p=0.40, alpha=1 - 0.80, beta=0.0)
    assert q == pytest.approx(0.52)
    assert q - 0.40 == pytest.approx(0.12)
    assert rates.false_discovery_rate(0.40, 0.20, 0.0) == pytest.approx(0.23, abs=0.005)


def test_joint_rates_are_not_conditional_ones():
    p, alpha, beta = rates.rates_of_joint(paid=0.60, wrong_and_paid=0.085, right_and_unpaid=0.24)
    assert p == pytest.approx(0.755)
    assert alpha == pytest.approx(0.35, abs=0.005)
    assert beta == pytest.approx(0.32, abs=0.005)
    assert 1 - alpha - beta == pytest.approx(0.34, abs=0.01)
    assert pytest.approx(0.675) == 1 - (0.085 + 0.24)


def test_rogan_gladen_and_how_much_too_small_the_naive_error_is():
    found = rates.rogan_gladen((460, 1000), (20, 200), (12, 200))
    assert found.value == pytest.approx(0.429, abs=0.0005)
    assert found.se == pytest.approx(0.025, abs=0.0005)
    assert (found.low, found.high) == (pytest.approx(0.379, abs=0.001), pytest.approx(0.478, abs=0.001))
    naive = math.sqrt(0.46 * 0.54 / 1000)
    assert naive == pytest.approx(0.016, abs=0.0005)
    assert 1 - naive / found.se == pytest.approx(0.37, abs=0.01)


def test_rogan_gladen_is_clipped_and_refuses_a_verifier_that_says_nothing():
    assert rates.rogan_gladen((1, 100), (10, 100), (0, 100)).value == 0.0
    assert rates.rogan_gladen((99, 100), (0, 100), (10, 100)).value == 1.0
    with pytest.raises(ValueError, match="says nothing"):
        rates.rogan_gladen((50, 100), (60, 100), (50, 100))
    with pytest.raises(ValueError, match="at least one"):
        rates.rogan_gladen((50, 100), (0, 0), (0, 10))


def test_two_phase_audit_of_four_hundred_episodes():
    assert wilson(24, 200) == (pytest.approx(0.082, abs=0.0005), pytest.approx(0.172, abs=0.0005))
    assert intervals.clopper_pearson(24, 200) == (pytest.approx(0.078, abs=0.0005), pytest.approx(0.173, abs=0.0005))
    assert wilson(10, 200) == (pytest.approx(0.027, abs=0.0005), pytest.approx(0.090, abs=0.0005))
    assert intervals.clopper_pearson(10, 200) == (pytest.approx(0.024, abs=0.0005), pytest.approx(0.090, abs=0.0005))
    found = rates.two_phase((4600, 10_000), (24, 200), (10, 200))
    for name, value, low, high in (
        ("p", 0.432, 0.404, 0.460),
        ("alpha", 0.097, 0.067, 0.133),
        ("beta", 0.063, 0.034, 0.105),
        ("j", 0.84, 0.78, 0.885),
        ("fdr", 0.12, 0.08, 0.17),
    ):
        estimate = getattr(found, name)
        assert estimate.value == pytest.approx(value, abs=0.0011), name
        assert (estimate.low, estimate.high) == (pytest.approx(low, abs=0.006), pytest.approx(high, abs=0.006)), name
    assert (found.p.high - found.p.low) / 2 == pytest.approx(0.03, abs=0.003)


def test_two_phase_audit_covers_the_truth():
    """A simulated policy with known truth: about 95 of 100 intervals hold it."""
    rng, held = Random(7), 0
    for _ in range(100):
        episodes = [(rng.random() < 0.3, rng.random()) for _ in range(2000)]
        paid = [(right, (u > 0.1) if right else (u < 0.2)) for right, u in episodes]
        yes, no = [r for r, got in paid if got], [r for r, got in paid if not got]
        first, second = rng.sample(yes, 100), rng.sample(no, 100)
        found = rates.two_phase((len(yes), 2000), (first.count(False), 100), (second.count(True), 100), draws=1000)
        held += found.p.low <= 0.3 <= found.p.high
    assert 88 <= held <= 100


@pytest.mark.parametrize(("rate", "episodes"), [(0.01, 299), (0.001, 2995), (0.0001, 29_956)])
def test_episodes_without_an_event_that_a_claim_needs(rate, episodes):
    assert intervals.episodes_for_zero(rate) == episodes
    assert intervals.upper_bound(0, episodes) <= rate < intervals.upper_bound(0, episodes - 1)


def test_zero_events_bound_is_about_three_over_n_and_recall_divides_it():
    for n in (100, 1000):
        assert intervals.upper_bound(0, n) == pytest.approx(3 / n, rel=0.02)
    assert intervals.episodes_for_zero(0.01, recall=0.5) == pytest.approx(2 * 299, rel=0.01)


def test_exact_bounds_cover_at_least_what_they_say():
    """Summed over all outcomes, a one-sided 95 % bound lies above the true rate with a chance of 95 % or more."""
    for rate in (0.03, 0.2, 0.5, 0.9):
        n = 30
        chance = [
            intervals.binomial_cdf(k, n, rate) - (intervals.binomial_cdf(k - 1, n, rate) if k else 0)
            for k in range(n + 1)
        ]
        above = sum(c for k, c in enumerate(chance) if intervals.upper_bound(k, n) >= rate)
        below = sum(c for k, c in enumerate(chance) if intervals.lower_bound(k, n) <= rate)
        assert above >= 0.95
        assert below >= 0.95


@pytest.mark.parametrize(
    ("rates_", "j", "q", "fdr", "cost"),
    [
        ((0.02, 0.05, 0.05), 0.90, 0.068, 0.72, 4.0),
        ((0.02, 0.20, 0.05), 0.75, 0.215, 0.91, 15.3),
        ((0.10, 0.02, 0.02), 0.96, 0.116, 0.16, 1.2),
        ((0.10, 0.20, 0.05), 0.75, 0.275, 0.65, 3.9),
        ((0.30, 0.20, 0.05), 0.75, 0.425, 0.33, 2.1),
        ((0.50, 0.05, 0.05), 0.90, 0.500, 0.05, 1.2),
    ],
)
def test_what_a_leaky_verifier_costs(rates_, j, q, fdr, cost):
    p, alpha, beta = rates_
    assert 1 - alpha - beta == pytest.approx(j)
    assert rates.expected_reward(p, alpha, beta) == pytest.approx(q, abs=0.0005)
    assert rates.expected_reward(p, alpha, beta) == pytest.approx(alpha + p * j)
    assert rates.false_discovery_rate(p, alpha, beta) == pytest.approx(fdr, abs=0.006)
    assert rates.signal_cost(p, alpha, beta) == pytest.approx(cost, abs=0.06)
    right, wrong = rates.mean_advantages(p, alpha, beta)
    assert (right, wrong) == (pytest.approx((1 - p) * j), pytest.approx(-p * j))


def test_the_signal_cost_is_what_a_simulation_of_groups_shows():
    """1 / rho^2 from the correlation of paid with true reward in 200,000 simulated samples."""
    rng, p, alpha, beta = Random(3), 0.1, 0.2, 0.05
    pairs = []
    for _ in range(200_000):
        right = rng.random() < p
        pairs.append((right, rng.random() < (1 - beta if right else alpha)))
    n, sx, sy = len(pairs), sum(a for a, _ in pairs), sum(b for _, b in pairs)
    sxy = sum(a and b for a, b in pairs)
    rho2 = (sxy / n - sx * sy / n**2) ** 2 / ((sx / n) * (1 - sx / n) * (sy / n) * (1 - sy / n))
    assert 1 / rho2 == pytest.approx(rates.signal_cost(p, alpha, beta), rel=0.05)


def test_screening_slows_and_only_taking_the_reward_reverses():
    assert rates.least_recall(0.1) == pytest.approx(0.90)
    assert rates.least_recall(0.1, penalty=1.0) == pytest.approx(0.45)
    assert all(rates.exploit_growth(recall, 0.1) > 0 for recall in (0.0, 0.63, 0.9, 0.999))


def test_flake_arithmetic():
    assert intervals.suite_flake(50, 0.001) == pytest.approx(0.049, abs=0.0005)
    assert intervals.suite_flake(200, 0.001) == pytest.approx(0.18, abs=0.005)
    for runs, bound in ((5, 0.45), (10, 0.26), (59, 0.05), (299, 0.01)):
        assert intervals.flake_bound(runs) == pytest.approx(bound, abs=0.005)
        assert intervals.flake_power(intervals.flake_bound(runs), runs) == pytest.approx(0.95)
    assert intervals.flake_bound(0) == 1.0
    assert intervals.design_effect(16, 0.2) == pytest.approx(4.0)


def test_judged_submissions_give_every_rate_with_n_and_interval():
    found = Judged(right=100, right_paid=97, wrong=200, wrong_paid=4)
    assert (found.alpha.value, found.alpha.n) == (0.02, 200)
    assert (found.beta.value, found.beta.n) == (pytest.approx(0.03), 100)
    assert (found.fdr.value, found.fdr.n) == (pytest.approx(4 / 101), 101)
    assert found.precision.value == pytest.approx(97 / 101)
    assert (found.joint.value, found.joint.n) == (pytest.approx(4 / 300), 300)
    assert found.j.value == pytest.approx(0.95)
    assert found.j.low < 0.95 < found.j.high
    for rate in found.as_json().values():
        assert rate["low"] <= rate["value"] <= rate["high"]
    nothing = Judged(right=0, right_paid=0, wrong=0, wrong_paid=0)
    assert nothing.alpha.value is None
    assert nothing.j.value is None
    with pytest.raises(ValueError, match="more is paid"):
        Judged(right=1, right_paid=2, wrong=0, wrong_paid=0)
