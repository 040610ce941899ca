"""Arms with one budget: what is counted, what is compared, and that a comparison goes on where it stopped."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from letter_runs import LETTERS

from sanderling.cli import app
from sanderling.errors import CheckpointError, ConfigError
from sanderling.jobs.comparison import compare
from sanderling.jobs.comparison_config import load_comparison
from sanderling.jobs.spending import Accounts
from sanderling.report.comparison import ArmResult, Comparison, RunCurve, document, draw
from sanderling.store.estimators import paired_interval
from sanderling.store.reader import RunReader

RECIPES = Path(__file__).parents[2] / "recipes"


def _nested(flat):
    nested: dict = {}
    for dotted, value in flat.items():
        place = nested
        *path, last = dotted.split(".")
        for key in path:
            place = place.setdefault(key, {})
        place[last] = value
    return nested


@pytest.fixture
def comparison(tiny_policy, tmp_path):
    """Return a function that writes a comparison of letter runs and loads it."""

    def write(**changes):
        small = {"policy": str(tiny_policy), "steps": 50, "evaluation.tasks": 8, "rollout.groups_per_step": 4}
        settings = {
            "seeds": [0],
            "reference": "rloo",
            "budget": {"turns": 500},
            "train": _nested(LETTERS | small),
            "arms": {"rloo": {"credit": {"estimator": "rloo"}}, "mean": {"credit": {"estimator": "mean"}}},
        } | changes
        file = tmp_path / "comparison.toml"
        file.write_text(tomli_w.dumps(settings), "utf-8")
        return load_comparison(file)

    return write


def _run(config, out):
    return asyncio.run(compare(config, out, stream=io.StringIO()))


@pytest.mark.slow
def test_arms_spend_one_budget_and_go_on_where_they_stopped(comparison, tmp_path):
    found = _run(comparison(), tmp_path / "out")
    told = found.as_json()
    for arm in ("rloo", "mean"):
        reader = RunReader(tmp_path / "out" / "runs" / arm / "seed=0")
        turns = [sum(len(m.trajectory.turns) for m in reader.rollouts(step).members()) for step in reader.steps()]
        assert sum(turns) >= 500 > sum(turns[:-1])
        ledger = told["arms"][arm]["ledger"]
        assert ledger["turns"] == sum(turns)
        assert ledger["episodes"] == 64 * len(turns)
        assert 0 < ledger["trained_tokens"] <= ledger["sampled_tokens"]
        (curve,) = told["arms"][arm]["curve"]
        assert curve["turns"] == [0, sum(turns)]
    assert told["arms"]["rloo"]["paired_difference"] == 0.0
    assert told["arms"]["mean"]["paired_seeds"] == [0]
    again = _run(comparison(), tmp_path / "out")
    first = RunReader(tmp_path / "out" / "runs" / "mean" / "seed=0").events()
    assert [event["kind"] for event in first].count("finished") == 1
    assert [event["kind"] for event in first].count("resumed") == 0
    assert again.as_json() == told
    assert json.loads((tmp_path / "out" / "comparison.json").read_text()) == again.as_json()
    with pytest.raises(ConfigError, match=r"other settings: rollout\.group_size"):
        _run(comparison(train=_changed(comparison(), 8)), tmp_path / "out")


def _changed(config, group_size):
    return {**config.train, "rollout": {**config.train["rollout"], "group_size": group_size}}


@pytest.mark.slow
def test_a_spent_budget_ends_a_run_and_more_of_it_continues(letters, tmp_path):
    from letter_runs import run_training

    result = run_training(letters(turn_budget=200), tmp_path / "run")
    spent = Accounts(run=RunReader(tmp_path / "run"))
    assert result.steps < 8
    assert spent.up_to(result.steps).turns >= 200 > spent.up_to(result.steps - 1).turns
    with pytest.raises(CheckpointError, match="is finished"):
        run_training(letters(turn_budget=200), tmp_path / "run", resume=True)
    assert run_training(letters(turn_budget=400), tmp_path / "run", resume=True).steps > result.steps


@pytest.mark.slow
def test_each_arm_is_tuned_alike(comparison, tmp_path):
    tuning = {"values": [1e-5, 3e-3], "seeds": [9], "turns": 500}
    found = _run(comparison(tuning=tuning, budget={"turns": 1000}), tmp_path / "out")
    for arm in found.arms.values():
        assert set(arm.trials) == {"1e-05", "0.003"}
        assert arm.tuned in (1e-5, 3e-3)
        assert arm.tuned_at_edge
    more = _run(comparison(tuning=tuning, budget={"turns": 1000}, seeds=[0, 1]), tmp_path / "out").as_json()
    assert more["arms"]["mean"]["paired_seeds"] == [0, 1]
    assert more["arms"]["mean"]["area"][0] == found.as_json()["arms"]["mean"]["area"][0]
    assert None not in more["arms"]["mean"]["interval"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reference": "ppo"}, "reference = 'ppo' is no arm"),
        ({"arms": {"rloo": {}, "b": {"policy": "x"}}}, "arm 'b' sets policy, which all arms share"),
        ({"arms": {"rloo": {}, "b": {"credit": {"estimater": "x"}}}}, "did you mean 'estimator'"),
        ({"tuning": {"values": [1e-3, 1e-4], "seeds": [0], "turns": 5}}, "tuned on and reported"),
        ({"train": {"seed": 3}}, "sets seed, which the comparison sets"),
        ({"bugdet": {}}, "bugdet"),
    ],
)
def test_what_would_be_no_comparison_is_refused(comparison, changes, message):
    with pytest.raises(ConfigError, match=message):
        comparison(**changes)


@pytest.mark.parametrize("name", ["credit-compare", "masking-ablation"])
def test_recipes_are_comparisons(name, capsys):
    config = load_comparison(RECIPES / f"{name}.toml")
    for arm in config.arms:
        assert config.run(arm, seed=7, turns=5, tuned=1e-3).seed == 7
    app(
        ["credit", "compare", str(RECIPES / f"{name}.toml"), "--dry-run"],
        exit_on_error=False,
        result_action="return_value",
    )
    assert f"{len(config.arms)} arms x {len(config.seeds)} seeds" in capsys.readouterr().out


def test_the_ablation_differs_in_one_setting():
    config = load_comparison(RECIPES / "masking-ablation.toml")
    masked, unmasked = (config.run(arm, seed=0, turns=5).model_dump() for arm in ("masked", "unmasked"))
    assert masked["batch"].pop("observations") == "masked"
    assert unmasked["batch"].pop("observations") == "trained"
    assert {**masked, "name": ""} == {**unmasked, "name": ""}


@pytest.mark.slow
def test_the_ablation_trains_more_tokens_in_a_run(letters, tmp_path):
    from letter_runs import run_training

    trained = {}
    for observations in ("masked", "trained"):
        run_training(letters(batch__observations=observations), tmp_path / observations)
        reports = RunReader(tmp_path / observations).reports()
        first = next(report for report in reports if report.counts["updates"])  # until it both are the same run
        trained[observations] = first.metrics["tokens_trained"]
    assert trained["trained"] > trained["masked"] > 0


def _curve(seed, *points):
    return RunCurve(seed=seed, turns=(0, 50, 120), solve_rates=points, account={"turns": 120})


def test_areas_stop_at_the_budget_and_differences_are_paired():
    arms = {
        "a": ArmResult(runs=(_curve(0, 0.0, 0.5, 0.9), _curve(1, 0.2, 0.5, 0.9))),
        "b": ArmResult(runs=(_curve(1, 0.2, 0.7, 0.9), _curve(0, 0.0, 0.6, 0.9), _curve(2, 0.0, 0.0, 0.0))),
    }
    found = Comparison(name="c", reference="a", budget=100, arms=arms)
    at_100 = 0.5 + 0.4 * 50 / 70
    assert arms["a"].runs[0].area(100) == pytest.approx((25 * 0.5 + 25 * (0.5 + at_100)) / 100)
    difference, seeds = found.paired("b")
    assert seeds == [0, 1]
    areas = [arms["b"].runs[1].area(100) - arms["a"].runs[0].area(100)]
    areas.append(arms["b"].runs[0].area(100) - arms["a"].runs[1].area(100))
    assert difference == pytest.approx(paired_interval(areas))
    page = document(found)
    assert "| b | 3 |" in page
    assert draw(found).count("<path") == 4


def test_a_paired_interval_is_that_of_students_t():
    """Student's own sleep data: mean 1.58, 95 % interval 0.70 to 2.46."""
    extra = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    assert paired_interval(extra) == pytest.approx((1.58, 0.7001, 2.4599), abs=1e-3)
    assert paired_interval([0.5]) == (0.5, -np.inf, np.inf)
    with pytest.raises(ValueError, match="no pairs"):
        paired_interval([])
