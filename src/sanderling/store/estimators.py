"""Estimators behind the declared metrics: what a count says about a rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist


def wilson(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the Wilson score interval (low, high) of a rate; (0.0, 1.0) where nothing was tried.

    With p = k / n and z the normal quantile of (1 + confidence) / 2:
    (p + z²/2n ± z sqrt(p (1 - p) / n + z²/4n²)) / (1 + z²/n). Source: Wilson, JASA 22 (1927) 209-212.

    Raises:
        ValueError: not 0 <= successes <= trials, or a confidence outside (0, 1).
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"got {successes} successes in {trials} trials; expected 0 <= successes <= trials")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence {confidence} is outside (0, 1)")
    if trials == 0:
        return 0.0, 1.0
    z, rate = NormalDist().inv_cdf((1 + confidence) / 2), successes / trials
    shrink = 1 + z * z / trials
    centre = (rate + z * z / (2 * trials)) / shrink
    half = z * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials)) / shrink
    low = 0.0 if successes == 0 else max(0.0, centre - half)  # exact at the ends, where rounding would leave 1e-17
    high = 1.0 if successes == trials else min(1.0, centre + half)
    return low, high


def pass_at_k(trials: int, successes: int, k: int) -> float:
    """Return the unbiased estimate of the chance that at least one of k samples solves the task.

    1 - C(n - c, k) / C(n, k) with n = trials and c = successes, as a product that can't overflow.
    Source: arXiv 2107.03374 equation 1.

    Raises:
        ValueError: not 0 <= successes <= trials, or not 1 <= k <= trials.
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"got {successes} successes in {trials} trials; expected 0 <= successes <= trials")
    if not 1 <= k <= trials:
        raise ValueError(f"pass@{k} needs 1 <= k <= trials, got {trials} trials")
    if trials - successes < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(trials - successes + 1, trials + 1))


_T_975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


def paired_interval(differences: Sequence[float]) -> tuple[float, float, float]:
    """Return (mean, low, high) of paired differences with their 95 % interval of Student's t; one pair says nothing: +-inf.

    Above 31 pairs the quantile of the normal distribution stands in for that of t, which is at most 4 % larger there.
    Source: Student, Biometrika 6 (1908) 1-25.

    Raises:
        ValueError: there is no pair.
    """
    if not differences:
        raise ValueError("no pairs; expected at least one difference")
    mean = sum(differences) / len(differences)
    if len(differences) == 1:
        return mean, -math.inf, math.inf
    free = len(differences) - 1
    quantile = _T_975[free - 1] if free <= len(_T_975) else 1.96
    half = quantile * math.sqrt(sum((d - mean) ** 2 for d in differences) / free / len(differences))
    return mean, mean - half, mean + half
