"""The check finds nothing in what ships, and says what is wrong with what is broken."""

import numpy as np
import pytest

from sanderling.credit import ESTIMATORS, load_estimator
from sanderling.testing import check_credit


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_what_ships_is_fine(name):
    assert check_credit(load_estimator(name)) == []


def full(value):
    return lambda group: {m.trajectory.id: np.full(len(m.trajectory.turns), float(value)) for m in group.graded()}


def right(group):
    rewards = group.rewards()
    baseline = rewards.mean() if len(rewards) else 0.0
    return {m.trajectory.id: np.full(len(m.trajectory.turns), m.disposition.reward - baseline) for m in group.graded()}


def everybody(group):
    rewards = [m.disposition.reward or 0.0 for m in group.members]
    mean = float(np.mean(rewards)) if rewards else 0.0
    return {k: v - mean for k, v in right(group).items()}


def over_deviation(group):
    deviation = group.rewards().std() if group.graded() else 1.0
    with np.errstate(all="ignore"):
        return {k: v / deviation for k, v in right(group).items()}


def by_place(group):
    return {k: v * (i + 1) for i, (k, v) in enumerate(right(group).items())}


def drawn():
    generator = np.random.default_rng(0)
    return lambda group: {k: v + generator.normal() for k, v in right(group).items()}


def writes(group):
    for m in group.graded():
        for turn in m.trajectory.turns:
            turn.action.rollout_logprobs[:] = 0.0
    return right(group)


class Needy:
    needs = ("state keys",)

    def __call__(self, group):
        return right(group)


@pytest.mark.parametrize(
    ("estimator", "sentence"),
    [
        (3, "it is a int, which can't be called"),
        (full(1.0), "Other rewards at the end give the same credit"),
        (everybody, "An excluded member changes the credit of the others"),
        (over_deviation, "expected finite numbers (does it divide by a deviation of 0?)"),
        (by_place, "depends on the order of the members"),
        (drawn(), "Called twice with the same group it gives different credit"),
        (writes, "It changes its input (record.members[0].trajectory.turns[0].action.rollout_logprobs"),
        (Needy(), "It needs 'state keys', which is no Signal"),
        (lambda group: {}, "gives no credit to 'G/0.0'"),
        (
            lambda group: {k: v[:0] for k, v in right(group).items()},
            "has shape (0,); expected (3,), one number per turn",
        ),
        (lambda group: {k: v.tolist() for k, v in right(group).items()}, "is a list; expected a numpy array"),
        (lambda group: {**right(group), "other": np.zeros(1)}, "gives credit to 'other'"),
        (lambda group: {k: v.astype(int) for k, v in right(group).items()}, "has dtype int64"),
        (lambda group: group.members[3] and right(group), "raises IndexError: tuple index out of range."),
    ],
)
def test_what_is_wrong_is_said(estimator, sentence):
    assert any(sentence in problem for problem in check_credit(estimator)), check_credit(estimator)


def test_a_right_one_passes():
    assert check_credit(right) == []
