"""For users: conformance suites, fakes, fixtures, hypothesis strategies. Parts that need torch are imported on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sanderling.credit.protocol import CreditEstimator

__all__ = ["check_credit"]


def check_credit(estimator: CreditEstimator) -> list[str]:
    """Return what is wrong with a credit estimator, one sentence each; see `sanderling.testing.credit_check`."""
    from sanderling.testing.credit_check import find_problems

    return find_problems(estimator)
