"""Predicted against real: a recorded run of a few steps predicts itself and the same training under another schedule.

    python benchmarks/plan_validation.py --out DIR [--steps 4] [--staleness 0 1] [--config FILE ...] [--keep]

Trains for real, once for each bound of staleness, on this machine (the default environment and policy, few evaluation
tasks). Then `sanderling plan` is made of each run, and what it predicts for every bound is compared with the real run of that
bound: step time, waiting for episodes, learning, staleness, tokens. The first step is left out: it starts cold. The runs use
the same seed, so they meet the same tasks; the actions differ once weights differ. Wall-clock seconds: the machine should
have nothing else to do, and `load` says how busy it was. --keep uses runs that are there already.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from sanderling.rollout.config import RolloutConfig
from sanderling.simulation.calibration import Calibrated, calibrated
from sanderling.simulation.learner import KeptRecords
from sanderling.simulation.prediction import Simulation
from sanderling.simulation.recorded import RecordedRun, read_run
from sanderling.simulation.virtual_time import simulate
from sanderling.types import StepReport

TIMES = ("step_s", "rollout_s", "train_s")
METRICS = ("staleness_mean", "action_tokens_mean")
FIRST = 2  # step


def train(run: Path, steps: int, staleness: int, configs: list[str]) -> None:
    """Train in a process of its own."""
    command = [
        *(sys.executable, "-m", "sanderling.cli", "train", *configs, "--run", str(run), "--json", f"--steps={steps}"),
        *("--evaluation.tasks=4", f"--rollout.max_staleness={staleness}", f"--checkpoint.every={steps}"),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def means(reports: list[StepReport] | tuple[StepReport, ...]) -> dict[str, float]:
    """Return the means over the steps that count."""
    counted = [report for report in reports if report.step >= FIRST]
    found = {name: float(np.mean([report.timing[name] for report in counted])) for name in TIMES}
    for name in METRICS:
        found[name] = float(np.mean([r.metrics[name] for r in counted if name in r.metrics] or [0.0]))
    return found


def predicted(plan: Calibrated, run: RecordedRun, staleness: int) -> dict[str, float]:
    """Return the same means of the simulation of a bound."""
    rollout = RolloutConfig.model_validate(plan.config.rollout.model_dump() | {"max_staleness": staleness})
    records = KeptRecords(plan.config.learner)
    simulation = Simulation(plan.config.model_copy(update={"rollout": rollout}), plan.workload, records)
    simulate(simulation.run(run.batch, ends=True))
    return means(records.reports)


def compare(real: dict[str, float], guess: dict[str, float]) -> dict[str, Any]:
    errors = {name: round(guess[name] / real[name] - 1, 3) for name in real if real[name] > 0}
    rounded = {name: (round(real[name], 3), round(guess[name], 3)) for name in real}
    return {"real_and_predicted": rounded, "relative_error": errors}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--staleness", type=int, nargs="+", default=[0, 1])
    parser.add_argument(
        "--config", nargs="*", default=[], help="TOML files of the runs, such as one with smaller groups"
    )
    parser.add_argument("--keep", action="store_true")
    asked = parser.parse_args()
    loads = {}
    for bound in asked.staleness:
        run = asked.out / f"staleness-{bound}"
        if not (asked.keep and run.exists()):
            train(run, asked.steps, bound, asked.config)
            loads[bound] = round(os.getloadavg()[0], 2)
    runs = {bound: read_run(asked.out / f"staleness-{bound}") for bound in asked.staleness}
    record: dict[str, Any] = {"steps": asked.steps, "first_step": FIRST, "cores": os.cpu_count(), "load": loads}
    for source, run in runs.items():
        plan = calibrated(run)
        for bound, other in runs.items():
            key = f"planned_from_staleness_{source}_for_{bound}"
            record[key] = compare(means(other.reports), predicted(plan, run, bound))
    print(json.dumps(record))


if __name__ == "__main__":
    main()
