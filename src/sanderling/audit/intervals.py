"""What a count says about a rate, with the guarantee that an audit needs. Wilson's interval is in `store.estimators`.

Exact binomial tails are summed in floating point; no special functions are needed for the counts of an audit (n up to 10^6).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from sanderling.store.estimators import wilson
from sanderling.types import JsonValue

CONFIDENCE = 0.95
_HALVINGS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A share that was counted, with an interval. `value` is None where nothing was tried: no number stands for "unknown"."""

    value: float | None  # in [0, 1]; of Youden's J in [-1, 1]
    n: int  # trials behind it
    low: float
    high: float
    method: str = "wilson"

    def as_json(self) -> dict[str, JsonValue]:
        value = None if self.value is None else round(self.value, 6)
        return {
            "value": value,
            "n": self.n,
            "low": round(self.low, 6),
            "high": round(self.high, 6),
            "method": self.method,
        }


def counted(successes: int, trials: int, confidence: float = CONFIDENCE) -> Rate:
    """Return a share with its Wilson interval.

    Raises:
        ValueError: not 0 <= successes <= trials.
    """
    low, high = wilson(successes, trials, confidence)
    return Rate(value=successes / trials if trials else None, n=trials, low=low, high=high)


def paired_difference(both: int, first: int, second: int, neither: int, confidence: float = CONFIDENCE) -> Rate:
    """Return P(first) - P(second) of paired yes-or-no outcomes, with Newcombe's interval; without a pair it is unknown.

    `first` and `second` count the pairs in which only that one said yes. The Wilson intervals of both rates are put together by
    square-and-add with the correlation of the pairs, corrected for continuity. Unlike the interval of Wald it has a width where
    no pair differs. Source: Newcombe, Statistics in Medicine 17 (1998) 2635-2650, method 10.

    Raises:
        ValueError: a negative count, or a confidence outside (0, 1).
    """
    counts = (both, first, second, neither)
    if min(counts) < 0:
        raise ValueError(f"got the counts {counts} of pairs; expected none below 0")
    n = sum(counts)
    if n == 0:
        return Rate(value=None, n=0, low=-1.0, high=1.0, method="newcombe-paired")
    one, other = both + first, both + second
    p, q = one / n, other / n
    (p_low, p_high), (q_low, q_high) = wilson(one, n, confidence), wilson(other, n, confidence)
    down, up, q_down, q_up = p - p_low, p_high - p, q - q_low, q_high - q
    phi = _phi(both, first, second, neither)
    below = math.sqrt(max(0.0, down**2 - 2 * phi * down * q_up + q_up**2))
    above = math.sqrt(max(0.0, up**2 - 2 * phi * up * q_down + q_down**2))
    return Rate(value=p - q, n=n, low=p - q - below, high=p - q + above, method="newcombe-paired")


def _phi(both: int, first: int, second: int, neither: int) -> float:
    """Return the correlation of paired outcomes as Newcombe's method 10 takes it; 0.0 where one of them never varies."""
    margins = (both + first) * (second + neither) * (both + second) * (first + neither)
    if margins == 0:
        return 0.0
    cross = both * neither - first * second
    if cross > 0:
        cross = max(0.0, cross - (both + first + second + neither) / 2)
    return cross / math.sqrt(margins)


def clopper_pearson(successes: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the two-sided exact interval of a rate; (0.0, 1.0) where nothing was tried.

    It never covers less than it says, at the price of being wide. Source: Clopper and Pearson, Biometrika 26 (1934) 404-413.

    Raises:
        ValueError: not 0 <= successes <= trials, or a confidence outside (0, 1).
    """
    tail = (1 - confidence) / 2
    return lower_bound(successes, trials, 1 - tail), upper_bound(successes, trials, 1 - tail)


def upper_bound(successes: int, trials: int, confidence: float = CONFIDENCE) -> float:
    """Return the one-sided exact upper bound of a rate: no larger one explains so few successes with more than 1 - confidence.

    With zero successes it is 1 - (1 - confidence)^(1 / n), about 3 / n at 95 %.

    Raises:
        ValueError: not 0 <= successes <= trials, or a confidence outside (0, 1).
    """
    _check(successes, trials, confidence)
    if successes == trials:
        return 1.0
    return _root(lambda rate: binomial_cdf(successes, trials, rate) - (1 - confidence))


def lower_bound(successes: int, trials: int, confidence: float = CONFIDENCE) -> float:
    """Return the one-sided exact lower bound of a rate; 0.0 where nothing succeeded.

    Raises:
        ValueError: not 0 <= successes <= trials, or a confidence outside (0, 1).
    """
    _check(successes, trials, confidence)
    return 0.0 if successes == 0 else 1.0 - upper_bound(trials - successes, trials, confidence)


def binomial_cdf(successes: int, trials: int, rate: float) -> float:
    """Return P(X <= successes) for X binomial with this rate."""
    if rate <= 0.0:
        return 1.0
    if rate >= 1.0:
        return 1.0 if successes >= trials else 0.0
    log_rate, log_rest = math.log(rate), math.log1p(-rate)
    log_choices, total = 0.0, 0.0
    for k in range(successes + 1):
        if k:
            log_choices += math.log(trials - k + 1) - math.log(k)
        total += math.exp(log_choices + k * log_rate + (trials - k) * log_rest)
    return min(1.0, total)


def episodes_for_zero(rate: float, confidence: float = CONFIDENCE, recall: float = 1.0) -> int:
    """Return how many episodes without one event are needed to claim that events are rarer than `rate`.

    Args:
        rate: in (0, 1), such as 0.01 for "fewer than one in a hundred".
        recall: share of events that the detector sees; a detector that misses half needs about twice as many episodes.

    Raises:
        ValueError: an argument outside (0, 1], or a confidence outside (0, 1).
    """
    if not 0 < rate < 1 or not 0 < confidence < 1 or not 0 < recall <= 1:
        raise ValueError(f"rate {rate}, confidence {confidence}, recall {recall}: expected shares above 0 and below 1")
    return math.ceil(math.log(1 - confidence) / math.log1p(-rate * recall))


def flake_bound(runs: int, confidence: float = CONFIDENCE) -> float:
    """Return the smallest flake rate that `runs` runs without a flip exclude: 1 - (1 - confidence)^(1 / runs); 1.0 for none.

    Raises:
        ValueError: runs < 0.
    """
    if runs < 0:
        raise ValueError(f"runs is {runs}; expected 0 or more")
    return 1.0 if runs == 0 else 1.0 - (1.0 - confidence) ** (1.0 / runs)


def flake_power(rate: float, runs: int) -> float:
    """Return the chance that `runs` runs show at least one flip of a verdict that flips with this rate."""
    return 1.0 - (1.0 - rate) ** runs


def suite_flake(tests: int, rate: float) -> float:
    """Return the chance that a right solution is refused because one of `tests` tests flips, each with this rate."""
    return 1.0 - (1.0 - rate) ** tests


def design_effect(cluster_size: float, correlation: float) -> float:
    """Return by how much the variance grows where episodes come in clusters of one environment: 1 + (m - 1) ICC."""
    return 1.0 + (cluster_size - 1.0) * correlation


def _check(successes: int, trials: int, confidence: float) -> None:
    if not 0 <= successes <= trials:
        raise ValueError(f"got {successes} successes in {trials} trials; expected 0 <= successes <= trials")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence {confidence} is outside (0, 1)")


def _root(falling: Callable[[float], float]) -> float:
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return high
