"""Credit: how one success or failure is shared among the turns that led to it. One small file per estimator."""

from sanderling.credit.catalogue import ESTIMATORS, load_estimator
from sanderling.credit.grpo import Grpo
from sanderling.credit.protocol import Credit, CreditEstimator
from sanderling.credit.rloo import Rloo

__all__ = ["ESTIMATORS", "Credit", "CreditEstimator", "Grpo", "Rloo", "load_estimator"]
