"""Probe D2: advantages skip observations. Probe D3: members that were lost or excluded."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from sanderling.batch.config import BatchConfig
from sanderling.batch.rows import assign_credit, training_rows
from sanderling.credit.catalogue import load_estimator
from sanderling.testing.group_files import parse_group
from sanderling.types import Disposition, Gradient, Group, Membership


def _turn(action: list[int], observation: list[int], reward: float = 0.0) -> dict:
    sampled = {"token_ids": action, "rollout_logprobs": [-0.5] * len(action), "policy_versions": [0] * len(action)}
    return {"action": sampled, "observation": {"token_ids": observation}, "reward": reward}


def _group(turns: list[dict], values: list[float], reward: float) -> Group:
    starts = np.cumsum([0, *[len(turn["action"]["token_ids"]) for turn in turns]])[:-1]
    known = {"at_turns": [values[start] for start in starts], "at_tokens": values}
    member = {"id": "g/0.0", "prompt_ids": [1], "stop": "submitted", "reward": reward, "turns": turns, "values": known}
    return parse_group({"id": "g", "task_id": "t", "members": [member]})


@pytest.mark.parametrize("observation", [[7, 7, 7], [8], []])
def test_probe_d2_advantages_skip_observations(observation):
    """Whatever was observed, and a value model has no number there at all: .514, .460, .400 on the three action tokens."""
    group = _group([_turn([3, 4], observation), _turn([5], [])], [0.4, 0.5, 0.6], reward=1.0)
    estimator = load_estimator("token-gae", {"gamma": 1.0, "lam": 0.9})
    credit = assign_credit([group], estimator)
    (row,) = training_rows([group], credit)
    length = len(observation)
    assert row.loss_mask.tolist() == [False, True, True, *[False] * length, True]
    assert row.advantages == pytest.approx([0, 0.514, 0.46, *[0] * length, 0.4], abs=1e-6)
    assert estimator.targets(group, 0.9)["g/0.0"] == pytest.approx([0.914, 0.96, 1.0])


def test_probe_d2_a_reward_that_comes_with_an_observation_belongs_to_the_action_before():
    group = _group([_turn([3, 4], [7, 7], reward=1.0)], [0.0, 0.0], reward=0.0)
    credit = assign_credit([group], load_estimator("token-gae", {"gamma": 0.99, "lam": 0.95}))
    (row,) = training_rows([group], credit)
    assert row.advantages == pytest.approx([0, 0.9405, 1.0, 0, 0], abs=1e-6)


def _member(name: str, reward: float | None) -> dict:
    return {
        "id": name,
        "prompt_ids": [1],
        "stop": "submitted" if reward is not None else "sandbox_lost",
        "reward": reward,
        "turns": [_turn([3, 4], [7])],
    }


@pytest.mark.parametrize("shuffle", range(4))
def test_probe_d3_lost_and_excluded_members(shuffle):
    rewards = {"A": [1.0, 0.0, None, None], "B": [0.0, 0.0, 0.0, 1.0], "C": [1.0, 3.0, 2.0, 0.0]}
    expected = {"A": [0.5, -0.5], "B": [-0.25, -0.25, -0.25, 0.75], "C": [-1.0, 1.0, 0.0]}
    groups = []
    for name, own in rewards.items():
        members = [_member(f"{name}/{i}.0", reward) for i, reward in enumerate(own)]
        random.Random(shuffle).shuffle(members)
        groups.append(parse_group({"id": name, "task_id": name, "members": members}))
    placeholder = Disposition(membership=Membership.EXCLUDED, reward=0.0, gradient=Gradient.NONE, reason="placeholder")
    groups[2] = replace(
        groups[2],
        members=tuple(
            replace(m, disposition=placeholder) if m.trajectory.id == "C/3.0" else m for m in groups[2].members
        ),
    )
    random.Random(shuffle).shuffle(groups)
    credit = assign_credit(groups, load_estimator("mean"))
    assert credit.keys() == {f"{name}/{i}.0" for name, own in expected.items() for i in range(len(own))}
    for name, own in expected.items():
        assert [credit[f"{name}/{i}.0"][0] for i in range(len(own))] == pytest.approx(own)
    rows = training_rows(groups, credit, BatchConfig(aggregation="token-mean"))
    weights = {row.trajectory_id: row.weights[row.loss_mask].tolist() for row in rows}
    assert weights.keys() == credit.keys(), "no row, so no part in the numerator"
    assert all(weight == pytest.approx([1 / 18] * 2) for weight in weights.values()), "nor in the denominator"
