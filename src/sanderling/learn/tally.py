"""What one step adds up to: sums while it runs, metrics and counts when it is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sanderling.batch.micro import MicroBatch
from sanderling.loss.policy import LossSums


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerReport:
    """Metrics and counts of one step.

    Metrics (absent when no update was made, but for learning_rate): `loss` and `grad_norm` (before clipping), means
    over updates; `entropy` (nats), `approx_kl` (k3 estimate of KL(old || new), nats, measured before each update) and
    `clip_fraction`, means over trained tokens; `ratio_max`; `padding_ratio`, padded over real tokens; `learning_rate`.

    Counts: rows, live_rows, skipped_zero_advantage, skipped_untrained, trained_tokens (live rows, one pass),
    micro_batches, updates.
    """

    metrics: Mapping[str, float]
    counts: Mapping[str, int]


@dataclass(slots=True, kw_only=True)
class StepTally:
    """Running sums of one step over its updates and micro-batches."""

    rows: int
    skipped_untrained: int = 0
    skipped_zero_advantage: int = 0
    learning_rate: float = 0.0
    tokens: int = 0  # trained, over all updates
    loss: float = 0.0
    entropy: float = 0.0
    kl: float = 0.0
    clipped: float = 0.0
    ratio_max: float = 0.0
    grad_norm: float = 0.0
    real_tokens: int = 0
    padded_tokens: int = 0
    micro_batches: int = 0
    row_visits: int = 0
    updates: int = 0

    def add(self, micro: MicroBatch, sums: LossSums) -> None:
        self.tokens += sums.tokens
        self.loss += sums.loss
        self.entropy += sums.entropy
        self.kl += sums.kl
        self.clipped += sums.clipped
        self.ratio_max = max(self.ratio_max, sums.ratio_max)
        self.real_tokens += sum(micro.lengths)
        self.padded_tokens += micro.padded_tokens
        self.micro_batches += 1
        self.row_visits += len(micro.lengths)

    def end_update(self, *, grad_norm: float, learning_rate: float) -> None:
        self.grad_norm += grad_norm
        self.learning_rate = learning_rate
        self.updates += 1

    def report(self) -> LearnerReport:
        live = self.rows - self.skipped_untrained - self.skipped_zero_advantage
        passes = self.row_visits // live if live else 0
        counts = {
            "rows": self.rows,
            "live_rows": live,
            "skipped_zero_advantage": self.skipped_zero_advantage,
            "skipped_untrained": self.skipped_untrained,
            "trained_tokens": self.tokens // passes if passes else 0,
            "micro_batches": self.micro_batches,
            "updates": self.updates,
        }
        metrics = {"learning_rate": self.learning_rate}
        if self.updates:
            metrics |= {
                "loss": self.loss / self.updates,
                "grad_norm": self.grad_norm / self.updates,
                "entropy": self.entropy / self.tokens,
                "approx_kl": self.kl / self.tokens,
                "clip_fraction": self.clipped / self.tokens,
                "ratio_max": self.ratio_max,
                "padding_ratio": self.padded_tokens / self.real_tokens,
            }
        return LearnerReport(metrics=metrics, counts=counts)
