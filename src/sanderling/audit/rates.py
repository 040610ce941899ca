"""How often a verifier errs, and what that does to the reward: expected reward against true success.

p is the share of work that is right, alpha = P(paid | wrong), beta = P(not paid | right), J = 1 - alpha - beta (Youden, Cancer
3 (1950) 32-35) and q = P(paid) = alpha + p J. Three quantities are easily confused, so they are always given together: alpha,
the false discovery rate P(wrong | paid) and the joint rate P(wrong and paid).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from sanderling.audit.intervals import CONFIDENCE, Rate, counted
from sanderling.types import JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Submissions whose truth is known beside what the verifier paid. Each is a different piece of work, no repetition."""

    right: int
    right_paid: int
    wrong: int
    wrong_paid: int

    def __post_init__(self) -> None:
        if not (0 <= self.right_paid <= self.right and 0 <= self.wrong_paid <= self.wrong):
            raise ValueError(f"{self}: more is paid than there is, or a count is negative")

    @property
    def alpha(self) -> Rate:
        """P(paid | wrong): the false positive rate."""
        return counted(self.wrong_paid, self.wrong)

    @property
    def beta(self) -> Rate:
        """P(not paid | right): the false negative rate."""
        return counted(self.right - self.right_paid, self.right)

    @property
    def fdr(self) -> Rate:
        """P(wrong | paid) among these submissions; of a policy it depends on p, see `false_discovery_rate`."""
        return counted(self.wrong_paid, self.wrong_paid + self.right_paid)

    @property
    def precision(self) -> Rate:
        """P(right | paid) among these submissions."""
        return counted(self.right_paid, self.wrong_paid + self.right_paid)

    @property
    def joint(self) -> Rate:
        """P(wrong and paid) among these submissions."""
        return counted(self.wrong_paid, self.wrong + self.right)

    @property
    def j(self) -> Rate:
        """Youden's J, the difference of two rates; interval by Newcombe's hybrid of Wilson's (Stat. Med. 17 (1998) 873-890)."""
        paid, false = counted(self.right_paid, self.right), self.alpha
        n = self.right + self.wrong
        if paid.value is None or false.value is None:
            return Rate(value=None, n=n, low=-1.0, high=1.0, method="newcombe")
        value = paid.value - false.value
        below = math.hypot(paid.value - paid.low, false.high - false.value)
        above = math.hypot(paid.high - paid.value, false.value - false.low)
        return Rate(value=value, n=n, low=value - below, high=value + above, method="newcombe")

    def as_json(self) -> dict[str, JsonValue]:
        names = ("alpha", "beta", "fdr", "joint", "j", "precision")
        return {name: getattr(self, name).as_json() for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number with its standard error and interval."""

    value: float
    se: float
    low: float
    high: float
    n: int

    def as_json(self) -> dict[str, JsonValue]:
        return {
            "value": round(self.value, 6),
            "se": round(self.se, 6),
            "low": round(self.low, 6),
            "high": round(self.high, 6),
            "n": self.n,
        }


def expected_reward(p: float, alpha: float, beta: float) -> float:
    """Return q = p (1 - beta) + (1 - p) alpha = alpha + p J."""
    return p * (1 - beta) + (1 - p) * alpha


def false_discovery_rate(p: float, alpha: float, beta: float) -> float:
    """Return P(wrong | paid) = alpha (1 - p) / q; NaN where nothing is paid."""
    q = expected_reward(p, alpha, beta)
    return alpha * (1 - p) / q if q else math.nan


def rates_of_joint(paid: float, wrong_and_paid: float, right_and_unpaid: float) -> tuple[float, float, float]:
    """Return (p, alpha, beta) where an audit gives shares of *all* episodes, as audits of datasets often do.

    p = q - P(wrong and paid) + P(right and unpaid); alpha and beta are those shares over 1 - p and p.
    """
    p = paid - wrong_and_paid + right_and_unpaid
    return p, wrong_and_paid / (1 - p), right_and_unpaid / p


def rogan_gladen(paid: tuple[int, int], wrong_paid: tuple[int, int], right_refused: tuple[int, int]) -> Estimate:
    """Return the true success from the paid share and a calibration of the verifier.

    p = (q - alpha) / J, clipped to [0, 1], with variance
    [q (1 - q) / n + (1 - p)^2 alpha (1 - alpha) / m0 + p^2 beta (1 - beta) / m1] / J^2.
    Source: Rogan and Gladen, Am. J. Epidemiol. 107 (1978) 71-76. It holds only where the calibration is of this very policy:
    rates drift under training, and then `two_phase` is the honest way.

    Args:
        paid: (paid, all) episodes of the policy.
        wrong_paid: (paid, all) wrong submissions of the calibration, m0 in all.
        right_refused: (not paid, all) right submissions of the calibration, m1 in all.

    Raises:
        ValueError: nothing was counted, or J <= 0: the verifier says nothing.
    """
    for name, (part, whole) in (("paid", paid), ("wrong_paid", wrong_paid), ("right_refused", right_refused)):
        if not 0 <= part <= whole or whole == 0:
            raise ValueError(f"{name} is {part} of {whole}; expected a part of at least one")
    q, alpha, beta = (part / whole for part, whole in (paid, wrong_paid, right_refused))
    j = 1 - alpha - beta
    if j <= 0:
        raise ValueError(
            f"alpha {alpha:.3f} and beta {beta:.3f} leave J = {j:.3f}; a verifier without J > 0 says nothing"
        )
    p = min(1.0, max(0.0, (q - alpha) / j))
    variance = q * (1 - q) / paid[1]
    variance += (1 - p) ** 2 * alpha * (1 - alpha) / wrong_paid[1] + p**2 * beta * (1 - beta) / right_refused[1]
    se = math.sqrt(variance) / j
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    return Estimate(value=p, se=se, low=max(0.0, p - z * se), high=min(1.0, p + z * se), n=paid[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoPhaseAudit:
    """True success and the verifier's rates for the policy itself, from a second look at a sample of paid and of unpaid."""

    p: Estimate
    alpha: Estimate
    beta: Estimate
    j: Estimate
    fdr: Estimate

    def as_json(self) -> dict[str, JsonValue]:
        return {name: getattr(self, name).as_json() for name in ("p", "alpha", "beta", "j", "fdr")}


def two_phase(
    paid: tuple[int, int],
    paid_wrong: tuple[int, int],
    unpaid_right: tuple[int, int],
    *,
    seed: int = 0,
    draws: int = 200_000,
) -> TwoPhaseAudit:
    """Return the true success of a policy from a stratified audit: p = q P(right | paid) + (1 - q) P(right | unpaid).

    Values are the plug-in ones; intervals hold 95 % of draws from the posteriors with Jeffreys' prior.

    Args:
        paid: (paid, all) episodes of the policy.
        paid_wrong: (wrong, audited) among the paid ones that were graded again by the strongest checks.
        unpaid_right: (right, audited) among the unpaid ones.
        seed: of the draws.
        draws: from the posteriors; 200,000 leave an error of about 0.0003 in an interval's ends.

    Raises:
        ValueError: a part is larger than its whole, or nothing was audited.
    """
    counts = (paid, paid_wrong, unpaid_right)
    for part, whole in counts:
        if not 0 <= part <= whole or whole == 0:
            raise ValueError(f"{part} of {whole}: expected a part of at least one audited episode")
    rng = np.random.default_rng(seed)
    drawn = [rng.beta(part + 0.5, whole - part + 0.5, draws) for part, whole in counts]
    points = _of_strata(*(np.array(part / whole) for part, whole in counts))
    spread = _of_strata(*drawn)
    n = paid_wrong[1] + unpaid_right[1]
    return TwoPhaseAudit(**{name: _summed_up(float(points[name]), spread[name], n) for name in points})


def _of_strata(q: np.ndarray, wrong: np.ndarray, right: np.ndarray) -> dict[str, np.ndarray]:
    with np.errstate(divide="ignore", invalid="ignore"):
        p = q * (1 - wrong) + (1 - q) * right
        alpha, beta = q * wrong / (1 - p), (1 - q) * right / p
    return {"p": p, "alpha": alpha, "beta": beta, "j": 1 - alpha - beta, "fdr": wrong}


def _summed_up(value: float, draws: np.ndarray, n: int) -> Estimate:
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(value=value, se=float(draws.std()), low=float(low), high=float(high), n=n)


def signal_cost(p: float, alpha: float, beta: float) -> float:
    """Return 1 / rho^2: by which factor an imperfect verifier multiplies the groups that give the same learning signal.

    rho is the correlation of paid with true reward, rho^2 = J^2 p (1 - p) / (q (1 - q)); infinite where J = 0.
    """
    q, j = expected_reward(p, alpha, beta), 1 - alpha - beta
    return math.inf if j == 0 else q * (1 - q) / (j * j * p * (1 - p))


def mean_advantages(p: float, alpha: float, beta: float) -> tuple[float, float]:
    """Return the mean group-relative advantage of a right and of a wrong sample, before it is divided: (1 - p) J, -p J."""
    j = 1 - alpha - beta
    return (1 - p) * j, -p * j


def least_recall(mean_reward: float, penalty: float = 0.0) -> float:
    """Return the recall that a screen needs before an exploit shrinks: r > (1 - R) / (1 + penalty).

    Args:
        mean_reward: R, the mean reward of the group, in [0, 1].
        penalty: what a caught exploit costs below 0; 0: its reward becomes 0.
    """
    return (1 - mean_reward) / (1 + penalty)


def exploit_growth(recall: float, mean_reward: float) -> float:
    """Return the growth rate of an exploit whose caught episodes are left out of the gradient: never below 0.

    (1 - r)(1 - R): leaving out slows an exploit and never reverses it.
    """
    return (1 - recall) * (1 - mean_reward)
