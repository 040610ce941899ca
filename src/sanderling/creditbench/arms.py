"""What is compared: an estimator with its settings, and what it is told besides the outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sanderling.creditbench.gradients import Aggregation
from sanderling.creditbench.records import CutRule, TurnPay
from sanderling.creditbench.values import ValueSource

EXACT = "exact"  # the estimator that isn't one: it knows the process


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One column of the table."""

    estimator: str  # as `credit.estimator` names it, or `EXACT`
    note: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    aggregation: Aggregation = "sequence-sum"
    values: ValueSource = ValueSource.NONE
    pay: TurnPay = TurnPay.NONE
    cut: CutRule = CutRule.TRAIN

    @property
    def told_more(self) -> bool:
        """It is told what siblings and outcomes don't say: turn rewards of the environment, or the process itself."""
        return self.pay is TurnPay.PAID or self.estimator == EXACT or self.values is ValueSource.CONTINUATIONS
