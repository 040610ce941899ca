"""The speeds of a recorded run's machine, found by simulating the run until its episodes take as long as they did.

Recorded seconds hold the waiting for cores and siblings, which another schedule would change. The work in them doesn't
change. So each speed is corrected by how far the simulated sum is off the recorded one, and the run is simulated again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sanderling.simulation.config import PlanConfig, revised
from sanderling.simulation.prediction import EPISODE_TIMES, Prediction, predict
from sanderling.simulation.recorded import RecordedRun, RecordedWorkload, Scales

ROUNDS = 10
CLOSE = 0.01  # a sum that is off by less than this share is right


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """A plan that repeats a run, and how well it does."""

    config: PlanConfig
    workload: RecordedWorkload
    repeated: Prediction  # the run's own setting, simulated
    recorded: Mapping[str, float]  # what the run itself says, by the same names

    @property
    def largest_error(self) -> float:
        """The largest relative error of the step time and of the times that were fitted."""
        return max(abs(_ratio(self.recorded[name], getattr(self.repeated, name)) - 1) for name in self.recorded)


def calibrated(run: RecordedRun) -> Calibrated:
    """Return the plan of a run with the speeds under which its simulation takes what the run took."""
    names = (*EPISODE_TIMES, "train_s")
    recorded = {name: run.mean(name) for name in names}
    factors = dict.fromkeys(names, 1.0)
    best: tuple[float, PlanConfig, RecordedWorkload, Prediction] | None = None
    for _ in range(ROUNDS):
        config = revised(_settings(run.settings(), factors), {}, "the recorded run")
        workload = run.workload.scaled(
            Scales(
                sandbox=factors["episodes_sandbox_s"],
                tools=factors["episodes_tools_s"],
                grade=factors["episodes_grade_s"],
            )
        )
        repeated = predict(config, workload, run.config.rollout.max_staleness, batch=run.batch, ends=True)
        ratios = {name: _ratio(recorded[name], getattr(repeated, name)) for name in names}
        off = max(abs(ratio - 1) for ratio in ratios.values())
        if best is None or off < best[0]:
            best = (off, config, workload, repeated)
        if off < CLOSE:
            break
        factors = {name: factors[name] * ratios[name] for name in names}
    assert best is not None
    _, config, workload, repeated = best
    times = recorded | {"step_s": run.mean("step_s"), "rollout_s": run.mean("rollout_s")}
    return Calibrated(config=config, workload=workload, repeated=repeated, recorded=times)


def _settings(settings: dict[str, Any], factors: Mapping[str, float]) -> dict[str, Any]:
    engine, learner = settings["engine"], settings["learner"]
    slower = factors["episodes_sample_s"]
    engine |= {name: engine[name] * slower for name in ("step_s", "token_s", "call_s")}
    learner |= {"tokens_per_s": learner["tokens_per_s"] / factors["train_s"]}
    return settings


def _ratio(wanted: float, got: float) -> float:
    return wanted / got if wanted > 0 and got > 0 else 1.0
