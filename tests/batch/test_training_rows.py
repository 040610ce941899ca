"""What is trained: action tokens of trained members, and nothing else."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sanderling.batch import BatchConfig, assign_credit, training_rows
from sanderling.batch.checks import check_row, check_trained_once
from sanderling.credit import Grpo
from sanderling.errors import InvariantViolation
from sanderling.testing import records
from sanderling.testing.group_files import FIXTURES, parse_group, read_group
from sanderling.types import Gradient

FIXTURE = FIXTURES / "four_trajectories.json"


def rows_of(group, credit=None, config=None):
    return training_rows([group], credit or Grpo()(group), config)


def test_a_row_mirrors_its_trajectory():
    group = read_group(FIXTURE)
    row = rows_of(group, config=BatchConfig(aggregation="token-mean"))[
        1
    ]  # prompt of 3, then actions of 1, 2, 3 tokens with observations of 2, 1, 0
    assert row.trajectory_id == "G/1.0"
    assert row.token_ids.tolist() == group.members[1].trajectory.token_ids().tolist()
    assert row.loss_mask.tolist() == [bool(int(x)) for x in "000100110111"]
    assert row.turn_of_token.tolist() == [-1, -1, -1, 0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert row.advantages.tolist() == [-0.5 * m for m in row.loss_mask]
    assert row.weights[row.loss_mask] == pytest.approx(1 / 21)
    assert row.rollout_logprobs[row.loss_mask] == pytest.approx(np.log(0.1))


def test_each_turn_gets_its_own_advantage():
    """Response lengths 2, 5 and 1: the scalar of a turn lands on its tokens, wherever they sit."""
    turns = [records.turn("a", "x" * 9), records.turn("bcde", "y"), records.turn("", "zz")]
    group = replace(records.group([], id="g"), members=(records.member(records.trajectory(turns, id="g/0.0")),))
    row = rows_of(group, {"g/0.0": np.array([0.75, -0.25, 0.5])})[0]
    assert row.advantages[row.loss_mask].tolist() == [0.75] * 2 + [-0.25] * 5 + [0.5]
    assert row.turn_of_token[row.loss_mask].tolist() == [0] * 2 + [1] * 5 + [2]


def test_only_members_with_gradient_have_rows():
    group = records.group([1.0, 0.0, None, 0.0])
    silent = replace(
        group.members[1], disposition=replace(group.members[1].disposition, gradient=Gradient.NONE, reason="max_turns")
    )
    group = replace(group, members=(group.members[0], silent, *group.members[2:]))
    assert [r.trajectory_id for r in rows_of(group)] == ["g0/0.0", "g0/3.0"]


def test_turns_shared_with_a_parent_are_trained_there():
    content = json.loads(FIXTURE.read_text("utf-8"))
    branch = dict(content["members"][1], id="G/1.0+1", parent_id="G/1.0", forked_at=2)
    content["members"].insert(2, branch)
    group = parse_group(content)
    rows = {r.trajectory_id: r for r in rows_of(group)}
    assert rows["G/1.0"].loss_mask.sum() == 6
    assert rows["G/1.0+1"].loss_mask.tolist() == [False] * 9 + [True] * 3
    check_trained_once([group], list(rows.values()))


@pytest.mark.parametrize(
    ("credit", "message"),
    [
        ({}, "gave it no credit"),
        ({"g/0.0": np.zeros(3)}, "has 1 turns of 5 action tokens, its credit has shape"),
        ({"g/0.0": np.array([np.nan])}, "finite"),
    ],
)
def test_credit_that_does_not_fit_names_the_trajectory(credit, message):
    made = records.member(records.trajectory([records.turn()], id="g/0.0"))
    group = replace(records.group([], id="g"), members=(made,))
    with pytest.raises(InvariantViolation, match=f"'g/0.0'.*{message}"):
        training_rows([group], credit)


def test_an_empty_prompt_is_refused():
    made = records.member(records.trajectory([records.turn()], id="g/0.0", prompt=""))
    with pytest.raises(InvariantViolation, match="empty prompt"):
        rows_of(replace(records.group([], id="g"), members=(made,)), {"g/0.0": np.ones(1)})


def test_nothing_to_train_gives_no_rows():
    assert training_rows([], {}) == []
    assert rows_of(records.group([None, None])) == []
    empty = replace(records.group([], id="g"), members=(records.member(records.trajectory([], id="g/0.0")),))
    assert rows_of(empty, {"g/0.0": np.zeros(0)}) == []


@st.composite
def shaped_groups(draw):
    made = []
    for g in range(draw(st.integers(1, 3))):
        members = []
        for i in range(draw(st.integers(1, 4))):
            sizes = draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=4))
            steps = [records.turn("a" * a, "o" * o) for a, o in sizes]
            reward = draw(st.sampled_from([None, 0.0, 1.0]))
            gradient = draw(st.sampled_from(list(Gradient)))
            members.append(records.member(records.trajectory(steps, id=f"g{g}/{i}.0"), reward, gradient=gradient))
        made.append(replace(records.group([], id=f"g{g}"), members=tuple(members)))
    return made


@settings(max_examples=50)
@given(groups=shaped_groups(), aggregation=st.sampled_from(["token-mean", "sequence-mean", "sequence-sum", "constant"]))
def test_rows_are_zero_off_the_mask_and_train_each_token_once(groups, aggregation):
    config = BatchConfig(aggregation=aggregation, constant_tokens=40 if aggregation == "constant" else None)
    rows = training_rows(groups, assign_credit(groups, Grpo()), config)
    check_trained_once(groups, rows)
    for row in rows:
        check_row(row)
        assert np.all(row.weights[row.loss_mask] > 0)
    if aggregation == "token-mean" and rows:
        assert sum(float(r.weights.sum()) for r in rows) == pytest.approx(1.0, rel=1e-5)
