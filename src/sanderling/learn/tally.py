"""What one step adds up to: sums while it runs, metrics when it is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sanderling.batch.micro import MicroBatch
from sanderling.loss.policy import LossSums
from sanderling.types import TrainingRow


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerReport:
    """What one step did.

    `metrics` always holds rows_trained, rows_skipped_zero_advantage, tokens_trained, updates and learning_rate; when an
    update was made also loss and grad_norm (before clipping), which are means over updates; entropy (nats),
    clip_fraction, approx_kl (nats), ratio_mean and, with a reference policy, kl_to_reference (nats), which are means over
    trained tokens; ratio_max; and
    advantage_mean, advantage_std, advantage_abs_mean over the tokens of the trained rows. Ratios and approx_kl
    compare with the sampler.
    """

    metrics: Mapping[str, float]
    micro_batches: int
    padding_ratio: float  # tokens computed, padding included, over tokens of the rows; 1.0 where nothing was computed


@dataclass(slots=True, kw_only=True)
class StepTally:
    """Running sums of one step over its updates and micro-batches."""

    rows_trained: int = 0
    rows_skipped_zero_advantage: int = 0
    tokens_trained: int = 0
    learning_rate: float = 0.0
    visited_tokens: int = 0  # trained tokens over all updates
    loss: float = 0.0
    entropy: float = 0.0
    kl: float = 0.0
    clipped: float = 0.0
    ratio: float = 0.0
    ratio_max: float = 0.0
    reference_kl: float = 0.0
    has_reference: bool = False
    grad_norm: float = 0.0
    real_tokens: int = 0
    padded_tokens: int = 0
    micro_batches: int = 0
    updates: int = 0

    def add(self, micro: MicroBatch, sums: LossSums) -> None:
        self.visited_tokens += sums.tokens
        self.loss += sums.loss
        self.entropy += sums.entropy
        self.kl += sums.kl
        self.clipped += sums.clipped
        self.ratio += sums.ratio
        self.ratio_max = max(self.ratio_max, sums.ratio_max)
        self.reference_kl += sums.reference_kl
        self.real_tokens += sum(micro.lengths)
        self.padded_tokens += micro.computed_tokens
        self.micro_batches += 1

    def end_update(self, *, grad_norm: float, learning_rate: float) -> None:
        self.grad_norm += grad_norm
        self.learning_rate = learning_rate
        self.updates += 1

    def report(self, live: Sequence[TrainingRow]) -> LearnerReport:
        metrics = {
            "rows_trained": self.rows_trained,
            "rows_skipped_zero_advantage": self.rows_skipped_zero_advantage,
            "tokens_trained": self.tokens_trained,
            "updates": self.updates,
            "learning_rate": self.learning_rate,
        }
        if self.updates:
            advantages = np.concatenate([row.advantages[row.loss_mask] for row in live])
            metrics |= {
                "loss": self.loss / self.updates,
                "grad_norm": self.grad_norm / self.updates,
                "entropy": self.entropy / self.visited_tokens,
                "approx_kl": self.kl / self.visited_tokens,
                "clip_fraction": self.clipped / self.visited_tokens,
                "ratio_mean": self.ratio / self.visited_tokens,
                "ratio_max": self.ratio_max,
                "advantage_mean": float(advantages.mean()),
                "advantage_std": float(advantages.std()),
                "advantage_abs_mean": float(np.abs(advantages).mean()),
            }
            if self.has_reference:
                metrics["kl_to_reference"] = self.reference_kl / self.visited_tokens
        padding = self.padded_tokens / self.real_tokens if self.real_tokens else 1.0
        return LearnerReport(metrics=metrics, micro_batches=self.micro_batches, padding_ratio=padding)
