"""Values from what goes on from a state, and what is made of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sanderling.batch.checks import check_excluded_inert
from sanderling.credit.catalogue import load_estimator
from sanderling.credit.fork_values import with_fork_values
from sanderling.credit.measurement import agreement, ceiling
from sanderling.testing import records
from sanderling.types import Branching, Disposition, Gradient, Group, Membership

VINE = load_estimator("vine")


def _fork(parent, turn: int, number: int, reward: float, membership: Membership = Membership.PROBE):
    row = replace(
        parent.trajectory,
        id=f"{parent.trajectory.id}~{turn}.{number}.0",
        parent_id=parent.trajectory.id,
        forked_at=turn,
        branching=Branching.FORK,
    )
    gradient = Gradient.FULL if membership is Membership.MEMBER else Gradient.NONE
    fate = Disposition(membership=membership, reward=reward, gradient=gradient, reason="submitted")
    return replace(parent, trajectory=row, disposition=fate)


def _probed(rewards, probes, turns: int) -> Group:
    """A group whose first member has the probes {turn: rewards}."""
    group = records.group(rewards, turns=turns)
    first = group.members[0]
    forks = [_fork(first, turn, n, r) for turn, found in probes.items() for n, r in enumerate(found)]
    return replace(group, members=(*group.members, *forks))


def test_the_worked_example_of_vineppo():
    """V = 1/3, 2/3, 1 and then R = 1: advantages 1/3, 1/3, 0, which add up to R - V(s_1)."""
    group = with_fork_values(_probed([1.0], {0: [1, 0, 0], 1: [1, 1, 0], 2: [1, 1, 1]}, turns=3))
    values = group.members[0].values
    assert values is not None and values.at_turns == pytest.approx([1 / 3, 2 / 3, 1])
    assert VINE(group)["g0/0.0"] == pytest.approx([1 / 3, 1 / 3, 0])


def test_siblings_are_continuations_from_the_start():
    group = with_fork_values(_probed([1.0, 0.0, 0.0, 1.0], {1: [1, 0]}, turns=2))
    assert VINE(group)["g0/0.0"] == pytest.approx([0.5 - 1 / 3, 0.5])
    assert set(VINE(group)) == {"g0/0.0", "g0/1.0", "g0/2.0", "g0/3.0"}, "no probe gets credit"


@settings(max_examples=40)
@given(data=st.data())
def test_advantages_add_up_to_what_was_earned_beyond_the_start(data: st.DataObject):
    turns = data.draw(st.integers(1, 5))
    known = data.draw(st.lists(st.integers(0, turns - 1), unique=True, min_size=1))
    reward, other = data.draw(st.sampled_from([0.0, 1.0])), data.draw(st.sampled_from([0.0, 1.0]))
    probes = {turn: data.draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=3)) for turn in known}
    group = with_fork_values(_probed([reward, other], probes, turns))
    found = VINE(group)["g0/0.0"]
    start = np.mean(probes[0]) if 0 in probes else other
    assert found.sum() == pytest.approx(reward - start)
    values = group.members[0].values
    assert values is not None
    for turn in known:
        assert values.at_turns[turn] == pytest.approx(np.mean(probes[turn]))
    assert np.all((values.at_turns >= -1e-12) & (values.at_turns <= 1 + 1e-12)), (
        "a gap is filled between its neighbours"
    )


def test_turns_that_are_paid_are_no_loss_of_value():
    first = records.group([1.0], turns=3).members[0]
    paid = tuple(replace(turn, reward=0.5) for turn in first.trajectory.turns)
    first = replace(first, trajectory=replace(first.trajectory, turns=paid))
    forks = [_fork(first, 1, 0, 1.0)]
    group = with_fork_values(Group(id="g0", task_id="t", members=(first, *forks)))
    values = group.members[0].values
    assert values is not None and values.at_turns == pytest.approx([0.0, 2.0, 1.5])


def test_without_probes_nothing_is_touched():
    group = records.group([1.0, 0.0])
    assert with_fork_values(group) is group
    tree = replace(group, members=(*group.members, _fork(group.members[0], 1, 0, 1.0, Membership.MEMBER)))
    assert with_fork_values(tree) is tree


def test_probes_are_not_what_the_invariant_forbids():
    group = with_fork_values(_probed([1.0, 0.0, None], {1: [1, 0]}, turns=2))
    check_excluded_inert([group], VINE(group), VINE)


def test_agreement_of_a_known_mixture():
    random = np.random.default_rng(0)
    truth = random.normal(size=4000)
    tasks = [f"t{i // 10}" for i in range(4000)]
    found = agreement(tasks, 0.6 * truth + 0.8 * random.normal(size=4000), truth)
    assert found.correlation is not None and found.signs is not None
    assert found.correlation.low is not None and found.correlation.high is not None
    assert (
        found.correlation.low < 0.6 < found.correlation.high and found.correlation.high - found.correlation.low < 0.06
    )
    assert found.signs.value == pytest.approx(1 - np.arccos(0.6) / np.pi, abs=0.02)  # of two normals
    assert found.correlation.value == pytest.approx(
        np.corrcoef(0.6 * truth + 0.8 * np.random.default_rng(0).normal(size=8000)[4000:], truth)[0, 1], abs=1e-9
    )


def test_agreement_where_there_is_nothing_to_compare():
    flat = agreement(["a", "b"], np.zeros(2), np.array([1.0, -1.0]))
    assert (flat.correlation, flat.signs, flat.decided) == (None, None, 0)
    one = agreement(["a"] * 3, np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0]))
    assert one.correlation is not None and (one.correlation.value, one.correlation.low) == (pytest.approx(1.0), None)
    same = agreement(["a", "b", "b"], np.array([0.1 + 0.2] * 3), np.array([1.0, 2.0, 3.0]))
    assert same.correlation is None


def test_turns_of_one_task_are_no_independent_evidence():
    random = np.random.default_rng(1)
    level = np.repeat(random.normal(size=(8, 2)), 200, axis=0)
    tasks = [f"t{i // 200}" for i in range(1600)]
    clustered = agreement(tasks, level[:, 0], level[:, 1]).correlation
    naive = agreement([str(i) for i in range(1600)], level[:, 0], level[:, 1]).correlation
    assert clustered is not None and naive is not None
    width = [(one.high or 0) - (one.low or 0) for one in (clustered, naive)]
    assert width[0] > 5 * width[1]


def test_ceiling():
    assert ceiling(1.0) == 1.0 and ceiling(-0.2) == ceiling(0.0) == 0.0
    assert ceiling(0.5) == pytest.approx(np.sqrt(2 / 3))
