"""How good is a gradient? Its bias against the exact one, and the turns that make its noise as small as itself.

For samples g_1 ... g_U of one update each and the exact gradient G, with c = E[g].G / G.G,

    cosine            E[g].G / (|E[g]| |G|)                     1: no bias (but for scale)
    turns for SNR 1   turns per update * E|g - c G|^2 / (c^2 G.G)   the fewer the better

|E[g]|^2 is estimated without the part that noise adds, |mean g|^2 - tr(cov)/U; a mean of few noisy samples would look
biased otherwise. Intervals are 95 % of a delete-a-group jackknife; the groups are the same for all estimators of an
environment, so that ratios are paired.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sanderling.creditbench.mdp import FloatArray

BLOCKS = 24
T_QUANTILE = 2.069  # 97.5 % of Student's t with BLOCKS - 1 degrees of freedom


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number with its 95 % interval and the values without each block, (BLOCKS,), for paired comparisons."""

    value: float
    low: float
    high: float
    without: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Of one estimator in one environment."""

    cosine: Estimate | None  # None: no signal, or so noisy that the mean has no direction yet
    turns_for_snr_1: Estimate | None  # None: no signal, or the mean points away from the exact gradient
    turns_per_update: float
    updates: int
    has_signal: bool  # some update has a gradient that isn't zero

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers; intervals are [low, high]."""
        measured = {"cosine": self.cosine, "turns_for_snr_1": self.turns_for_snr_1}
        return {
            **{name: None if found is None else found.value for name, found in measured.items()},
            "interval": {name: None if found is None else [found.low, found.high] for name, found in measured.items()},
            "signal": self.has_signal,
            "turns_per_update": self.turns_per_update,
            "updates": self.updates,
        }


def measure(samples: FloatArray, exact: FloatArray, turns_per_update: FloatArray) -> Quality:
    """Return the quality of gradient samples (U, D) against the exact gradient (D,).

    Args:
        samples: one row per update; rows are dealt to blocks in order, neighbours together.
        exact: the exact gradient.
        turns_per_update: (U,) environment turns that each update took, auxiliary ones included.
    """
    sums = _Sums.of(samples, turns_per_update)
    whole = sums.total()
    turns, updates = float(turns_per_update.mean()), len(samples)
    if not np.any(samples):
        return Quality(cosine=None, turns_for_snr_1=None, turns_per_update=turns, updates=updates, has_signal=False)
    rest = [sums.without(block) for block in range(BLOCKS)]
    cosine = _jackknife(_cosine(whole, exact), np.array([_cosine(part, exact) for part in rest]))
    needed = _jackknife(_log_turns(whole, exact), np.array([_log_turns(part, exact) for part in rest]))
    return Quality(
        cosine=None if cosine is None else _within_one(cosine),
        turns_for_snr_1=None if needed is None else _exponentiated(needed),
        turns_per_update=turns,
        updates=updates,
        has_signal=True,
    )


def log_ratio(one: Estimate, other: Estimate) -> Estimate:
    """Return log(one / other) with a paired interval; both are positive and were measured on the same episodes."""
    found = _jackknife(math.log(one.value / other.value), np.log(one.without / other.without))
    if found is None:  # both come from `measure`, which lets only finite numbers through
        raise ValueError(f"a ratio of {one.value} and {other.value} has no logarithm")
    return found


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums over blocks of updates."""

    count: FloatArray  # (BLOCKS,)
    first: FloatArray  # (BLOCKS, D) of g
    square: FloatArray  # (BLOCKS,) of |g|^2
    turns: FloatArray  # (BLOCKS,)

    @classmethod
    def of(cls, samples: FloatArray, turns: FloatArray) -> _Sums:
        block = np.arange(len(samples)) * BLOCKS // len(samples)
        starts = np.searchsorted(block, np.arange(BLOCKS))
        return cls(
            np.bincount(block, minlength=BLOCKS).astype(np.float64),
            np.add.reduceat(samples, starts),
            np.add.reduceat((samples**2).sum(1), starts),
            np.add.reduceat(turns, starts),
        )

    def total(self) -> _Moments:
        return _Moments.of(self.count.sum(), self.first.sum(0), self.square.sum(), self.turns.sum())

    def without(self, block: int) -> _Moments:
        keep = np.arange(BLOCKS) != block
        return _Moments.of(
            self.count[keep].sum(), self.first[keep].sum(0), self.square[keep].sum(), self.turns[keep].sum()
        )


@dataclass(frozen=True, slots=True)
class _Moments:
    mean: FloatArray  # (D,) of g
    square: float  # E|g|^2
    length: float  # |E g|^2 without what noise adds
    turns: float

    @classmethod
    def of(cls, count: float, first: FloatArray, square: float, turns: float) -> _Moments:
        mean = first / count
        noise = max(0.0, square / count - float(mean @ mean)) / (count - 1)
        return cls(mean, square / count, float(mean @ mean) - noise, turns / count)


def _cosine(moments: _Moments, exact: FloatArray) -> float:
    if moments.length <= 0:
        return math.nan
    return float(moments.mean @ exact) / math.sqrt(moments.length * float(exact @ exact))


def _log_turns(moments: _Moments, exact: FloatArray) -> float:
    size = float(exact @ exact)
    scale = float(moments.mean @ exact) / size
    noise = moments.square - 2 * scale * float(moments.mean @ exact) + scale**2 * size
    return math.log(moments.turns * noise / (scale**2 * size)) if scale > 0 and noise > 0 else math.nan


def _jackknife(value: float, without: FloatArray) -> Estimate | None:
    """Return the estimate with its interval; None where it isn't defined on every part of the samples."""
    if not (math.isfinite(value) and np.isfinite(without).all()):
        return None
    spread = math.sqrt((BLOCKS - 1) / BLOCKS * float(((without - without.mean()) ** 2).sum()))
    return Estimate(value=value, low=value - T_QUANTILE * spread, high=value + T_QUANTILE * spread, without=without)


def _exponentiated(found: Estimate) -> Estimate:
    return Estimate(
        value=math.exp(found.value),
        low=math.exp(found.low),
        high=math.exp(found.high),
        without=np.exp(found.without),
    )


def _within_one(found: Estimate) -> Estimate:
    """Cosines end at 1; an estimate without noise's share may come out a little above."""
    clipped = [min(1.0, max(-1.0, number)) for number in (found.value, found.low, found.high)]
    return Estimate(value=clipped[0], low=clipped[1], high=clipped[2], without=found.without)
