"""How well turn advantages agree with others: correlation and signs, with intervals.

Turns of a task are alike, so the intervals are percentile bootstraps over tasks (Efron 1979): whole tasks are drawn again, with
all of their turns. The numbers of a task enter through sums, so a resample is one product of matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
RESAMPLES = 2000
ZERO = 1e-9  # advantages closer to 0 have no sign


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A number with its 95 % interval; the ends are None where fewer than two tasks say anything."""

    value: float
    low: float | None
    high: float | None

    def as_json(self) -> dict[str, float | None]:
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How an estimator's turn advantages go with reference ones."""

    turns: int
    correlation: Interval | None  # Pearson's, in [-1, 1]; None: all advantages of one side are the same
    signs: Interval | None  # share of equal signs among `decided`; None: there are none
    decided: int  # turns where both sides are not 0


def agreement(tasks: Sequence[str], found: FloatArray, reference: FloatArray, *, seed: int = 0) -> Agreement:
    """Compare advantages turn by turn.

    Args:
        tasks: (n,) the task of each turn.
        found: (n,) advantages of an estimator.
        reference: (n,) what they are held against.
        seed: of the resamples.
    """
    decided = (np.abs(found) > ZERO) & (np.abs(reference) > ZERO)
    same = decided & (np.sign(found) == np.sign(reference))
    columns = [np.ones(len(found)), found, reference, found**2, reference**2, found * reference, decided, same]
    names, which = np.unique(np.array(tasks, dtype=str), return_inverse=True)
    sums = np.zeros((len(names), len(columns)))
    np.add.at(sums, which, np.stack(columns, axis=1).astype(np.float64))
    draws = np.random.default_rng(seed).multinomial(len(names), np.full(len(names), 1 / max(1, len(names))), RESAMPLES)
    total, again = sums.sum(axis=0, keepdims=True), draws @ sums
    return Agreement(
        turns=len(found),
        correlation=_interval(_correlations(total), _correlations(again), len(names)),
        signs=_interval(_shares(total), _shares(again), len(names)),
        decided=int(decided.sum()),
    )


def ceiling(halves: float) -> float:
    """Return the largest correlation that anything can have with a noisy reference, sqrt(2 r / (1 + r)), in [0, 1].

    Args:
        halves: correlation r of references from either half of the samples (Spearman 1910, Brown 1910).
    """
    return float(np.sqrt(2 * halves / (1 + halves))) if halves > 0 else 0.0


def _correlations(sums: FloatArray) -> FloatArray:
    n, x, y, xx, yy, xy = (sums[:, i] for i in range(6))
    with np.errstate(divide="ignore", invalid="ignore"):
        left, right = xx - x * x / n, yy - y * y / n
        flat = (left <= ZERO * xx) | (right <= ZERO * yy)  # what is left of a constant is rounding
        return np.where(flat, np.nan, (xy - x * y / n) / np.sqrt(left * right))


def _shares(sums: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return sums[:, 7] / sums[:, 6]


def _interval(value: FloatArray, resampled: FloatArray, tasks: int) -> Interval | None:
    if np.isnan(value[0]):
        return None
    known = resampled[~np.isnan(resampled)]
    if tasks < 2 or not len(known):
        return Interval(value=float(value[0]), low=None, high=None)
    low, high = np.percentile(known, [2.5, 97.5])
    return Interval(value=float(value[0]), low=float(low), high=float(high))
