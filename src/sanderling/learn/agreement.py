"""Do sampler and trainer compute the same thing? Measured on a few rows of a step, before its update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sanderling.errors import InvariantViolation
from sanderling.learn.protocol import Trainer
from sanderling.types import TrainingRow

SAMPLE = 4  # rows compared per step: a forward pass of a few per cent of the step's training


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """|trainer's - sampler's log-probability| over the compared tokens, in nats."""

    max: float
    mean: float
    tokens: int
    trajectory_id: str  # where it is largest


def measure_gap(learner: Trainer, rows: Sequence[TrainingRow], tolerance: float, worst: float = 1.0) -> Gap | None:
    """Compare a few rows that the current weights sampled; None where there is none.

    Raises:
        InvariantViolation: the gap is larger than `tolerance` on average, or larger than `worst` times that on a token; the
            importance ratio would not mean what it says.
    """
    fresh = [row for row in rows if row.loss_mask.any() and _all_of(row, learner.policy_version)]
    sample = fresh[:: max(1, len(fresh) // SAMPLE)][:SAMPLE]
    if not sample:
        return None
    largest, where, total, tokens = 0.0, "", 0.0, 0
    for row, logprobs in zip(sample, learner.logprobs(sample), strict=True):
        gaps = np.abs(logprobs[row.loss_mask] - row.rollout_logprobs[row.loss_mask])
        if gaps.max() >= largest:
            largest, where = float(gaps.max()), row.trajectory_id
        total += float(gaps.sum())
        tokens += len(gaps)
    if largest > worst * tolerance or total / tokens > tolerance:
        raise InvariantViolation(
            f"trajectory {where}: under the same weights sampler and trainer disagree by up to {largest:.2e} nats, on average "
            f"{total / tokens:.2e}; at most {worst * tolerance:.0e} and {tolerance:.0e} were expected; look for a stale KV "
            "cache, another dtype, or weights that were not pushed"
        )
    return Gap(max=largest, mean=total / tokens, tokens=tokens, trajectory_id=where)


def _all_of(row: TrainingRow, version: int) -> bool:
    return bool((row.policy_versions[row.loss_mask] == version).all())
