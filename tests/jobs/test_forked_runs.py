"""Whole runs that fork: trees, values, and the measurement of credit on what they recorded."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from letter_runs import LETTERS, run_training

from sanderling.cli import app
from sanderling.config import load_config
from sanderling.errors import ConfigError
from sanderling.store.reader import RunReader
from sanderling.testing.letters import ANSWER, letter_environment
from sanderling.types import Branching, Membership, Submission

SMALL = {
    "environment": f"{__file__}:coin",
    "steps": 2,
    "rollout__groups_per_step": 2,
    "rollout__group_size": 4,
    "evaluation__tasks": 2,
}


ARMS = {
    "tree": {"rollout.forks.continuations": 2, "credit.estimator": "tree-value"},
    "value": {
        "rollout.forks.continuations": 3,
        "rollout.forks.use": "value",
        "rollout.forks.turns": "every",
        "credit.estimator": "vine",
        "engine.prompts": "shared",
    },
}


@pytest.fixture(scope="module")
def runs(tiny_policy, tmp_path_factory):
    """Return a function that makes a run with trees or with values, once for each name."""
    small = {key.replace("__", "."): value for key, value in SMALL.items()}

    @cache
    def run(name: str) -> Path:
        folder = tmp_path_factory.mktemp("runs") / name
        settings = {**LETTERS, "policy": str(tiny_policy), **small, **ARMS[name.removesuffix("-again")]}
        run_training(load_config([], settings), folder)
        return folder

    return run


def test_a_run_with_trees_trains_the_forks(runs):
    reader = RunReader(runs("tree"))
    (first, _) = reader.reports()
    assert first.counts["forks"] == 2 * 8 and first.counts["submitted"] == 3 * 8
    assert first.counts["fork_turns"] == 16, "each fork is before the second of two turns"
    assert first.counts["trained"] + sum(v for k, v in first.counts.items() if k.startswith("dropped_")) == 24
    members = list(reader.rollouts(1).members())
    forks = [m for m in members if m.trajectory.branching is Branching.FORK]
    assert len(forks) == 16 and {m.disposition.membership for m in forks} == {Membership.MEMBER}
    by_id = {m.trajectory.id: m.trajectory for m in members}
    for fork in (m.trajectory for m in forks):
        shared = [replace(t, turns=t.turns[:1]).token_ids() for t in (fork, by_id[fork.parent_id])]
        assert np.array_equal(*shared)


def test_a_run_with_values_trains_none_of_the_probes(runs):
    reader = RunReader(runs("value"))
    for report in reader.reports():
        assert report.counts["dropped_probe"] == report.counts["forks"] == 3 * 8
    rollouts = reader.rollouts(1)
    probes = [m for m in rollouts.members() if m.trajectory.branching is Branching.FORK]
    assert {m.disposition.membership for m in probes} == {Membership.PROBE}
    for group in rollouts.groups:
        for member in group.graded():
            own = [p.disposition.reward for p in probes if p.trajectory.parent_id == member.trajectory.id]
            last = rollouts.advantages[member.trajectory.id][1]
            assert last == pytest.approx(member.disposition.reward - np.mean(own), abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tree", "value"])
def test_a_run_with_forks_repeats_to_the_bit(runs, name):
    one, other = (RunReader(runs(name + twin)) for twin in ("", "-again"))
    timeless = [[(r.metrics, r.counts) for r in reader.reports()] for reader in (one, other)]
    assert timeless[0] == timeless[1]
    tokens = [
        {m.trajectory.id: m.trajectory.token_ids().tolist() for m in r.rollouts(2).members()} for r in (one, other)
    ]
    assert tokens[0] == tokens[1]


def test_credit_is_measured_on_a_record(runs, capsys):
    args = ["credit", "measure", str(runs("tree")), "--episodes", "99", "--continuations", "8", "--json"]
    app(args, exit_on_error=False, result_action="return_value")
    first = json.loads(capsys.readouterr().out)
    assert (first["source"], first["policy_version"], first["episodes"]) == ("step=000001", 0, 8)
    assert first["cost"]["measured_turns"] == 16 and first["cost"]["forks"] == 8 * 16
    assert first["cost"]["fork_turns"] == 8 * (2 + 1) * 8 and first["cost"]["replayed_turns"] == 8
    for name in ("rloo", "grpo", "gigpo", "tree-value", "reinforce", "vine"):
        line = first["estimators"][name]
        assert line["turns"] == 16
        for number in (line["correlation"], line["sign_agreement"]):
            assert number["low"] <= number["value"] <= number["high"]
    assert first["estimators"]["vine"]["auxiliary_turns"] == 96
    assert first["estimators"]["vine"]["correlation"] == first["reference"]["halves"]["correlation"]
    assert first["estimators"]["rloo"]["auxiliary_turns"] == 0
    assert "values" in first["refused"]["turn-gae"], "what can't act says why"
    app(args, exit_on_error=False, result_action="return_value")
    again = json.loads(capsys.readouterr().out)
    for one in (first, again):
        del one["cost"]["wall_s"]
    assert first == again


def test_what_can_not_be_measured_is_refused(runs, capsys):
    def measure(*more: str) -> None:
        app(["credit", "measure", str(runs("tree")), *more], exit_on_error=False, result_action="return_value")

    with pytest.raises(ConfigError, match=r"no rollouts 'step=9'; it has step=000001, step=000002, eval="):
        measure("--source", "step=9")
    with pytest.raises(ConfigError, match="at least 2 continuations"):
        measure("--continuations", "1")
    with pytest.raises(ConfigError, match="negative control"):
        measure("--control=shuffled_rewards")
    with pytest.raises(ConfigError, match=r"version 1 of the policy, and .* keeps \[2\]"):
        measure("--source", "step=000002")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rollout__forks__use": "value"}, "nothing is forked"),
        ({"rollout__forks__use": "value", "rollout__forks__continuations": 2}, "set turns = 'every'"),
    ],
)
def test_fork_settings_that_can_not_act_are_refused_when_read(letters, changes, words):
    with pytest.raises(ConfigError, match=words):
        letters(**changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"credit__estimator": "rloo"}, "doesn't read"),
        ({"credit__estimator": "vine", "control": "shuffled_rewards"}, "something could be learnt"),
        ({"credit__estimator": "vine", "environment": f"{__file__}:unforkable"}, "has no method fork"),
    ],
)
def test_forks_that_would_do_nothing_leave_no_folder(letters, tmp_path, changes, words):
    value = {"rollout__forks__use": "value", "rollout__forks__turns": "every", "rollout__forks__continuations": 2}
    with pytest.raises(ConfigError, match=words):
        run_training(letters(**value, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def coin():
    """Letters that pay every other answer, so that rewards of an untrained policy vary."""

    class _Verifier(type(letter_environment().verifier)):
        async def grade(self, task, submission, backend, seed):
            even = sum(submission.files.get(ANSWER, b"")) % 2 == 0
            return await super().grade(task, Submission(files={ANSWER: b"e" if even else b"x"}), backend, seed)

    return replace(letter_environment(), verifier=_Verifier())


def unforkable():
    environment = letter_environment()

    class _Bare:
        def __init__(self, inner):
            self.act = inner.act

    class _Harness(type(environment.harness)):
        def start(self, task, sandbox):
            return _Bare(super().start(task, sandbox))

    return replace(environment, harness=_Harness())


@pytest.mark.slow
def test_unique_states_are_pointed_out_once_where_credit_is_by_states(letters, tmp_path):
    run_training(letters(**SMALL, credit__estimator="gigpo"), tmp_path / "met")
    shares = [report.metrics["state_singleton_share"] for report in RunReader(tmp_path / "met").reports()]
    events = [event for event in RunReader(tmp_path / "met").events() if event["kind"] == "states_unique"]
    assert max(shares) < 0.7 and not events, "all siblings read the same: they meet"
    unique = letters(
        **{**SMALL, "environment": f"{__file__}:never_the_same"}, credit__estimator="gigpo", limits__max_turns=5
    )
    run_training(unique, tmp_path / "alone")
    (event,) = [event for event in RunReader(tmp_path / "alone").events() if event["kind"] == "states_unique"]
    assert event["step"] == 1 and event["state_singleton_share"] >= 0.7


def never_the_same():
    """Letters whose first answer is another one each time: a nonce in every state but the first."""
    environment = letter_environment()
    count = iter(range(10_000))

    class _Conversation:
        def __init__(self, inner):
            self._inner = inner
            self._turns = 0

        async def act(self, text):
            self._turns += 1
            if self._turns < 4:
                return replace(await _go_on(), text=f"go on {next(count)}")
            self._inner._turns = 1
            return await self._inner.act(text)

    async def _go_on():
        from sanderling.harness.protocol import Reply

        return Reply(text="")

    class _Harness(type(environment.harness)):
        def start(self, task, sandbox):
            return _Conversation(super().start(task, sandbox))

    return replace(environment, harness=_Harness())
