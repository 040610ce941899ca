"""Credit bench: how biased and how noisy is an estimator, against the exact policy gradient of small decision processes?

Walks through a process become groups of trajectories, so that the estimators of `sanderling.credit` are measured as they
are. Read in this order: `mdp`, `exact`, `environments`, `records`, `measurement`, `quality`, `learning`, `bench`.
"""

from sanderling.creditbench.bench import BenchResult, Plan, run_bench

__all__ = ["BenchResult", "Plan", "run_bench"]
