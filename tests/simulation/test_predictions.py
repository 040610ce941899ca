"""Predictions against sums that can be worked out by hand, and against each other."""

from __future__ import annotations

import json

import pytest

from sanderling.cli import app
from sanderling.errors import ConfigError
from sanderling.simulation.config import PlanConfig, load_plan, revised
from sanderling.simulation.plan import make_plan
from sanderling.simulation.prediction import Prediction, predict
from sanderling.simulation.scripts import DrawnWorkload, Place

EVEN = {
    "workload": {
        "turns": 10,
        "prompt_tokens": 100,
        "action_tokens": 20,
        "observation_tokens": 30,
        "sandbox_s": 2.0,
        "tool_s": 3.0,
        "grade_s": 5.0,
        "slow_tasks_cv": 0.0,
        "success": 0.5,
        "success_spread": 0.0,
    },
    # 20 tokens a turn of 0.1 s each: a turn takes 2 s of sampling.
    "engine": {"slots": 64, "step_s": 0.1, "token_s": 0.0, "read_share": 0.0, "push_s": 1.0},
    "learner": {"tokens_per_s": 400.0},
    "rollout": {"groups_per_step": 4, "group_size": 4, "schedule": "continuous"},
    "rounds": 10,
    "steps": 2,
    "warmup": 1,
}
ROLLOUT_S = 2 + 10 * (2 + 3) + 5


def _plan(**overrides: object) -> PlanConfig:
    return revised(EVEN, {key.replace("__", "."): value for key, value in overrides.items()}, "a test")


def _predict(staleness: int = 0, **overrides: object) -> Prediction:
    config = _plan(**overrides)
    return predict(config, DrawnWorkload(config.workload, config.seed), staleness)


def test_a_synchronous_step_is_the_sum_of_its_parts():
    found = _predict()
    assert found.rollout_s == pytest.approx(ROLLOUT_S)
    assert found.push_s == pytest.approx(1.0)
    live = (1 - found.dead_share) * 16 * (100 + 10 * 20 + 9 * 30)
    assert found.train_s == pytest.approx(live / 400, rel=0.01)
    assert found.step_s == pytest.approx(ROLLOUT_S + found.train_s + 1.0)
    assert found.sampled_tokens == pytest.approx(16 * 200, rel=0.01)
    assert found.engine_idle_share == pytest.approx(1 - 10 * 2 / found.step_s, abs=0.01)
    assert (found.staleness_mean, found.environments_most) == (0.0, 16)
    assert found.environments_mean == pytest.approx(16 * 50 / found.step_s, rel=0.01)
    assert found.learner_idle_share == pytest.approx(ROLLOUT_S / found.step_s)


def test_lockstep_takes_the_same_where_all_turns_are_alike():
    lockstep = _predict(rollout__schedule="lockstep")
    assert lockstep.schedule == "lockstep"
    assert lockstep.rollout_s == pytest.approx(ROLLOUT_S)


def test_lockstep_waits_for_the_slowest_tool_of_each_turn():
    uneven = {"workload__tool_s": {"values": [1.0, 5.0]}}
    lockstep, continuous = _predict(rollout__schedule="lockstep", **uneven), _predict(**uneven)
    # Of 16 tools in a turn hardly ever all take 1 s, so every turn takes 5 s; by itself the unluckiest takes 7 or 8 of ten.
    assert lockstep.rollout_s == pytest.approx(2 + 10 * (2 + 5) + 5, rel=0.02)
    assert continuous.rollout_s < 0.92 * lockstep.rollout_s


def test_with_staleness_the_slower_side_sets_the_pace():
    slow_learner = _predict(staleness=1, learner__tokens_per_s=60.0, steps=4)
    assert slow_learner.step_s == pytest.approx(slow_learner.train_s + 1.0, rel=0.02)
    assert slow_learner.learner_idle_share < 0.02
    fast_learner = _predict(staleness=1, learner__tokens_per_s=1e9, steps=6, warmup=2)
    assert 2 * fast_learner.step_s == pytest.approx(ROLLOUT_S + 2 * 1.0, rel=0.05), "two steps under way at once"
    for found in (slow_learner, fast_learner):
        assert found.staleness_max == 1.0
        assert 0.0 < found.staleness_mean <= 1.0
        assert found.discarded_share == 0.0
        assert found.environments_most <= 32


def test_engine_slots_queue_the_rest():
    # 16 episodes x 20 s of sampling on 4 slots, which are never empty between the first sandbox and the last tool.
    assert _predict(engine__slots=4).rollout_s == pytest.approx(2 + 16 * 20 / 4 + 3 + 5)
    assert _predict(engine__slots=4, engine__replicas=4).rollout_s == pytest.approx(ROLLOUT_S)


@pytest.mark.slow
def test_failures_are_retried_and_their_tokens_lost():
    found = _predict(workload__sandbox_lost=0.02, workload__engine_error=0.01, workload__verifier_error=0.05, steps=10)
    assert found.retried == pytest.approx(16 * (1 / (0.98**10 * 0.99**10 * 0.95) - 1), rel=0.35)
    assert 0.05 < found.discarded_share < 0.35
    assert found.rollout_s > ROLLOUT_S


def test_hung_tools_are_cut_by_their_limit():
    hanging = _predict(workload__tool_hangs=0.1, workload__command_s=100.0)
    assert hanging.episodes_tools_s == pytest.approx(16 * 10 * (0.9 * 3 + 0.1 * 100), rel=0.35)
    cut = _predict(workload__tool_hangs=0.1, workload__command_s=100.0, workload__episode_s=60.0)
    assert cut.rollout_s <= 2 + 60 + 20 + 5 + 1e-3


@pytest.mark.slow
def test_few_rounds_stand_for_many_turns():
    varied = {
        "workload__turns": {"mean": 120, "cv": 0.6},
        "workload__action_tokens": {"mean": 80, "cv": 1.0},
        "workload__tool_s": {"p50": 1.0, "p99": 20.0},
        "engine__token_s": 0.01,
        "machine__cores": 8,
    }
    whole, gathered = (_predict(rounds=rounds, steps=2, warmup=0, **varied) for rounds in (10_000, 8))
    assert gathered.step_s == pytest.approx(whole.step_s, rel=0.06)
    assert gathered.episodes_tools_s == pytest.approx(whole.episodes_tools_s, rel=0.1)
    assert gathered.sampled_tokens == pytest.approx(whole.sampled_tokens, rel=0.001)
    assert gathered.trained_tokens == pytest.approx(whole.trained_tokens, rel=0.01)


def test_a_prediction_repeats_and_follows_its_seed():
    uneven = {"workload__tool_s": {"mean": 3.0, "cv": 2.0}, "steps": 2}
    first, second, other = (_predict(staleness=2, seed=seed, **uneven).as_json() for seed in (5, 5, 6))
    first.pop("wall_s"), second.pop("wall_s")
    assert first == second
    assert first["step_s"] != other["step_s"]


def test_cost_is_the_price_of_the_time():
    found = _predict(price__engine=20.0, price__learner=10.0, price__sandboxes=6.0)
    assert found.cost == pytest.approx(found.step_s / 3600 * 36.0)
    assert found.cost_per_million_trained_tokens == pytest.approx(found.cost / found.trained_tokens * 1e6)


def test_scripts_are_those_of_their_place_and_keep_their_sums():
    config = _plan(workload__turns={"mean": 900, "cv": 0.3}, workload__max_turns=1000)
    work = DrawnWorkload(config.workload, 1)
    place = Place(group=3, index=1, attempt=0)
    whole, gathered = work.script(place, None), work.script(place, 7)
    assert len(gathered.rounds) == 7 < len(whole.rounds)
    assert gathered.tokens == whole.tokens
    assert sum(r.turns for r in gathered.rounds) == len(whole.rounds)
    assert sum(r.tools_s for r in gathered.rounds) == pytest.approx(sum(r.tools_s for r in whole.rounds))
    assert work.script(Place(group=3, index=2, attempt=0), None) != whole


def test_the_verb_prints_the_plan(tmp_path, capsys):
    file = tmp_path / "plan.toml"
    file.write_text("staleness = [0, 2]\nsteps = 1\nwarmup = 0\n[rollout]\ngroups_per_step = 2\ngroup_size = 2\n")
    app(["plan", str(file), "--json", "--engine.step_s=0.01"], result_action="return_value")
    record = json.loads(capsys.readouterr().out)
    assert [p["max_staleness"] for p in record["predictions"]] == [0, 2]
    assert record["config"]["engine"]["step_s"] == 0.01
    app(["plan", str(file)], result_action="return_value")
    table = capsys.readouterr().out.splitlines()
    assert table[0].split() == ["max_staleness", "0", "max_staleness", "2"]
    assert any(line.startswith("learner idle") and line.count("%") == 2 for line in table)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[engine]\nreplcas = 2", "unknown key 'engine.replcas'; did you mean 'replicas'"),
        ("[workload]\nturns = {p50 = 3.0}", "p50 = 3.0 and p99 = None"),
        ("[workload]\nturns = {mean = 3.0, p50 = 2.0, p99 = 3.0}", "one of them only"),
        ("[engine]\nslots = 0", r"engine.slots = 0: Input should be greater than or equal to 1"),
        ("staleness = [", "is not TOML"),
    ],
)
def test_a_wrong_plan_is_refused_before_anything_runs(tmp_path, text, message):
    file = tmp_path / "plan.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_plan(file, {})


def test_a_schedule_without_staleness_refuses_it(tmp_path):
    with pytest.raises(ConfigError, match=r"staleness 1: .*lockstep"):
        _predict(staleness=1, rollout__schedule="lockstep")
    with pytest.raises(ConfigError, match="can't be read"):
        make_plan(tmp_path / "nothing.toml", {})
