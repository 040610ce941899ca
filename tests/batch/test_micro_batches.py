"""Cutting and padding."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sanderling.batch import assign_credit, micro_batches, training_rows
from sanderling.batch.checks import check_cut, check_excluded_inert, check_row, check_token_lists, check_trained_once
from sanderling.batch.micro import is_live
from sanderling.credit import Grpo, Rloo
from sanderling.errors import InvariantViolation
from sanderling.testing import records
from sanderling.types import TrainingRow

sizes_of_rows = st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=3), min_size=1, max_size=9)


def rows_of(sizes):
    members = [
        records.member(records.trajectory([records.turn("a" * a, "o" * o) for a, o in turns], id=f"g/{i}.0"), i % 2)
        for i, turns in enumerate(sizes)
    ]
    group = replace(records.group([], id="g"), members=tuple(members))
    return training_rows([group], Grpo()(group))


@settings(max_examples=50)
@given(sizes=sizes_of_rows, budget=st.integers(1, 120))
def test_every_row_is_cut_once_within_the_budget(sizes, budget):
    rows = rows_of(sizes)
    micros = micro_batches(rows, budget)
    check_cut(rows, micros)
    for micro in micros:
        assert micro.computed_tokens <= budget or len(micro.lengths) == 1
        assert all(micro.loss_mask[i, n - 1] for i, n in enumerate(micro.lengths))  # rows end at a trained token
    assert sum(m.num_trained_tokens for m in micros) == sum(int(r.loss_mask.sum()) for r in rows)


@settings(max_examples=50)
@given(sizes=sizes_of_rows, budget=st.integers(1, 120), data=st.data())
def test_the_cut_does_not_depend_on_the_order(sizes, budget, data):
    rows = rows_of(sizes)
    shuffled = data.draw(st.permutations(rows))
    assert [m.trajectory_ids for m in micro_batches(shuffled, budget)] == [
        m.trajectory_ids for m in micro_batches(rows, budget)
    ]


def test_sorting_keeps_padding_low():
    rows = rows_of([[(n, 0)] for n in (40, 1, 38, 2, 39, 3, 1, 40)])
    micros = micro_batches(rows, 4 * 48)
    assert [len(m.lengths) for m in micros] == [4, 4]
    padded, real = sum(m.computed_tokens for m in micros), sum(sum(m.lengths) for m in micros)
    assert padded / real < 1.05


def test_a_row_that_is_too_long_stands_alone():
    micros = micro_batches(rows_of([[(50, 0)], [(3, 0)], [(3, 0)]]), 30)
    assert [m.trajectory_ids for m in micros] == [("g/0.0",), ("g/1.0", "g/2.0")]


def test_live_rows_have_an_advantage():
    group = records.group([1.0, 1.0])
    dead = training_rows([group], Grpo()(group))
    assert len(dead) == 2 and not any(is_live(row) for row in dead)
    assert all(is_live(row) for row in rows_of([[(1, 1)], [(1, 1)]]))


def changed(row: TrainingRow, **columns):
    return replace(row, **columns)


def test_checks_name_what_broke():
    group = records.group([1.0, 0.0, None])
    rows = training_rows([group], assign_credit([group], Grpo()))
    check_trained_once([group], rows)
    off = rows[0].advantages + np.float32(1.0)
    with pytest.raises(InvariantViolation, match=r"g0/0\.0: advantages isn't zero outside"):
        check_row(changed(rows[0], advantages=off))
    with pytest.raises(InvariantViolation, match=r"g0/0\.0: weights has shape"):
        check_row(changed(rows[0], weights=rows[0].weights[:-1]))
    with pytest.raises(InvariantViolation, match="more than one row"):
        check_trained_once([group], [rows[0], *rows])
    with pytest.raises(InvariantViolation, match=r"g0/1\.0: 0 tokens are trained, expected"):
        check_trained_once([group], rows[:1])
    with pytest.raises(InvariantViolation, match=r"in no group: x"):
        check_trained_once([group], [*rows, changed(rows[0], trajectory_id="x")])
    mask = rows[0].loss_mask.copy()
    mask[np.flatnonzero(mask)[0]] = False
    with pytest.raises(InvariantViolation, match=r"g0/0\.0"):
        check_trained_once([group], [changed(rows[0], loss_mask=mask), rows[1]])


def test_a_cut_that_loses_repeats_or_changes_a_row_is_found():
    rows = rows_of([[(2, 3), (4, 1)], [(2, 2)], [(1, 1)]])
    micros = micro_batches(rows, 30)
    check_cut(rows, micros)
    with pytest.raises(InvariantViolation, match="in 0 micro-batches"):
        check_cut(rows, micros[:-1])
    with pytest.raises(InvariantViolation, match="in 2 micro-batches"):
        check_cut(rows, [*micros, micros[0]])
    with pytest.raises(InvariantViolation, match="weights differs"):
        check_cut(rows, [replace(micros[0], weights=micros[0].weights * 2), *micros[1:]])


def test_token_lists_of_a_trajectory():
    good = records.trajectory([records.turn(), records.turn()])
    check_token_lists(good)
    action = good.turns[1].action
    short = replace(good.turns[1], action=replace(action, rollout_logprobs=action.rollout_logprobs[:-1]))
    with pytest.raises(InvariantViolation, match=r"trajectory g0/0\.0, turn 1: 5 ids, 4 log-probabilities, 5 versions"):
        check_token_lists(replace(good, turns=(good.turns[0], short)))
    for bad in (np.nan, -np.inf, 0.5):
        spoiled = replace(good.turns[0], action=replace(action, rollout_logprobs=np.full(5, bad, dtype=np.float32)))
        with pytest.raises(InvariantViolation, match="turn 0: log-probabilities"):
            check_token_lists(replace(good, turns=(spoiled, good.turns[1])))


def test_an_estimator_that_looks_at_excluded_members_is_found():
    group = records.group([1.0, 3.0, 2.0, None])
    for estimator in (Grpo(), Rloo()):
        check_excluded_inert([group], estimator(group), estimator)

    def by_size(seen):
        return {m.trajectory.id: np.full(2, 1.0 / len(seen.members)) for m in seen.graded()}

    with pytest.raises(InvariantViolation, match=r"invariant 5, trajectory g0/0\.0: advantages"):
        check_excluded_inert([group], by_size(group), by_size)

    def everybody(seen):
        return {m.trajectory.id: np.zeros(2) for m in seen.members}

    with pytest.raises(InvariantViolation, match=r"g0/3\.0 is excluded"):
        check_excluded_inert([group], everybody(group), everybody)
