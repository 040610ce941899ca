"""A run recorded on a machine whose speeds are known: planning from the record has to find them again."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanderling.batch.config import BatchConfig
from sanderling.config import Config
from sanderling.errors import ConfigError
from sanderling.rollout.config import RolloutConfig
from sanderling.simulation.calibration import calibrated
from sanderling.simulation.config import PlanConfig, revised
from sanderling.simulation.learner import KeptRecords
from sanderling.simulation.plan import make_plan
from sanderling.simulation.prediction import Simulation, predict
from sanderling.simulation.recorded import read_run
from sanderling.simulation.scripts import DrawnWorkload
from sanderling.simulation.virtual_time import simulate
from sanderling.store.run_folder import RunFolder

MACHINE = {
    "workload": {
        "turns": {"mean": 8, "cv": 0.6},
        "prompt_tokens": 60,
        "action_tokens": {"mean": 6, "cv": 0.8},
        "observation_tokens": {"mean": 20, "cv": 0.5},
        "sandbox_s": 0.01,
        "tool_s": {"mean": 0.03, "cv": 1.0},
        "grade_s": 0.1,
        "success": 0.5,
        "success_spread": 0.1,
    },
    "engine": {"slots": 64, "step_s": 0.004, "token_s": 0.0006, "read_share": 0.1, "push_s": 0.02},
    "learner": {"tokens_per_s": 2000.0, "store_s": 0.0005},
    "machine": {"placement": "together", "cores": 2},
    "rollout": {"groups_per_step": 4, "group_size": 8},
    "steps": 3,
    "warmup": 0,
}


class _OnDisk(KeptRecords):
    """Keeps the records in a run folder as well, as a run does."""

    folder: RunFolder

    def append_metrics(self, report):
        super().append_metrics(report)
        self.folder.append_metrics(report)

    def write_rollouts(self, step, groups, *, tasks=None, advantages=None):
        self.folder.write_rollouts(step, groups, tasks=tasks, advantages=advantages)
        super().write_rollouts(step, groups, tasks=tasks, advantages=advantages)


def _record(path: Path, staleness: int) -> PlanConfig:
    """Simulate a run into a run folder; return what it was made of."""
    plan = revised(MACHINE, {"rollout.max_staleness": staleness}, "a test")
    records = _OnDisk(plan.learner)
    settings = Config(steps=plan.steps, rollout=RolloutConfig.model_validate(plan.rollout.model_dump()))
    with RunFolder.at(path, settings.to_toml(), {"cores": 2}) as records.folder:
        simulation = Simulation(plan, DrawnWorkload(plan.workload, plan.seed), records)
        simulate(simulation.run(BatchConfig(), ends=True))
    return plan


@pytest.mark.parametrize("recorded", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_record_of_one_schedule_predicts_the_other(tmp_path, recorded):
    machine = _record(tmp_path / "run", recorded)
    run = read_run(tmp_path / "run")
    found = calibrated(run)
    assert found.largest_error < 0.05
    other = 1 - recorded
    truth = predict(machine, DrawnWorkload(machine.workload, machine.seed), other, ends=True)
    planned = predict(found.config, found.workload, other, batch=run.batch, ends=True)
    assert planned.step_s == pytest.approx(truth.step_s, rel=0.08)
    assert planned.rollout_s == pytest.approx(truth.rollout_s, rel=0.12)
    assert planned.sampled_tokens == pytest.approx(truth.sampled_tokens, rel=0.01)
    assert abs(truth.step_s / predict(machine, run.workload, recorded, ends=True).step_s - 1) > 0.1, "they differ"


@pytest.mark.slow
def test_a_plan_of_a_run_compares_its_own_setting_with_others(tmp_path):
    _record(tmp_path / "run", 0)
    made = make_plan(tmp_path / "run", {"staleness": [0, 3], "learner.tokens_per_s": 1e9})
    assert [p.max_staleness for p in made.predictions] == [0, 3]
    assert made.predictions[0].train_s < 0.01, "an override comes after what was found"
    assert made.repeated is not None
    assert made.repeated.recorded["step_s"] == pytest.approx(made.repeated.repeated.step_s, rel=0.05)
    assert made.lines()[-1].startswith("The run itself: ")


def test_a_folder_that_is_no_finished_step_is_refused(tmp_path):
    with RunFolder.at(tmp_path / "run", Config().to_toml(), {}):
        pass
    with pytest.raises(ConfigError, match="no finished step"):
        read_run(tmp_path / "run")
