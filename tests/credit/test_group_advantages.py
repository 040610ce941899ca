"""Hand-worked advantages of groups, from JSON trajectories through the data model."""

import json
from dataclasses import replace

import numpy as np
import pytest

from sanderling.credit import Grpo, Rloo, load_estimator
from sanderling.errors import InvariantViolation
from sanderling.testing import records
from sanderling.testing.group_files import FIXTURES, parse_group, read_group
from sanderling.types import Disposition, Gradient, Membership

FIXTURE = FIXTURES / "four_trajectories.json"


def per_trajectory(group, estimator):
    """One number per graded member; checks that all turns of a member have it."""
    credit = estimator(group)
    assert list(credit) == [m.trajectory.id for m in group.graded()]
    for m in group.graded():
        advantages = credit[m.trajectory.id]
        assert advantages.shape == (len(m.trajectory.turns),) and advantages.dtype == np.float64
        assert np.all(advantages == advantages[0])
    return [credit[m.trajectory.id][0] for m in group.graded()]


@pytest.mark.parametrize(
    ("estimator", "success", "failure"),
    [
        (load_estimator("grpo"), 1.5, -0.5),
        (load_estimator("grpo-verl"), 1.499997, -0.499999),
        (load_estimator("grpo-trl"), 1.499700, -0.499900),
        (load_estimator("grpo", {"ddof": 0}), 1.732051, -0.577350),
        (load_estimator("mean"), 0.75, -0.25),
        (load_estimator("rloo"), 1.0, -0.333333),
    ],
)
def test_fixture_g(estimator, success, failure):
    found = per_trajectory(read_group(FIXTURE), estimator)
    assert found == pytest.approx([success, failure, failure, failure], abs=1e-6)


def test_a_member_without_gradient_stays_in_the_statistics():
    group = read_group(FIXTURE)
    last = group.members[3]
    masked = replace(last, disposition=replace(last.disposition, gradient=Gradient.NONE))
    group = replace(group, members=(*group.members[:3], masked))
    assert per_trajectory(group, Grpo())[:3] == pytest.approx([1.5, -0.5, -0.5])


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        (Grpo(), [1.154701, -0.577350, -0.577350]),
        (Grpo(normalise="none"), [0.666667, -0.333333, -0.333333]),
        (Rloo(), [1.0, -0.5, -0.5]),
    ],
)
def test_an_excluded_member_leaves_the_statistics(estimator, expected):
    group = read_group(FIXTURE)
    gone = Disposition(membership=Membership.EXCLUDED, reward=0.0, gradient=Gradient.NONE, reason="overlong")
    group = replace(group, members=(*group.members[:3], replace(group.members[3], disposition=gone)))
    assert per_trajectory(group, estimator) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("rewards", "estimator", "expected"),
    [
        ([1.0] + [0.0] * 7, Grpo(normalise="none"), [0.875] + [-0.125] * 7),
        ([1.0] + [0.0] * 6, Grpo(normalise="none"), [0.857143] + [-0.142857] * 6),
        ([1.0] + [0.0] * 7, Rloo(), [1.0] + [-0.142857] * 7),
        ([1.0] + [0.0] * 7, Grpo(), [2.474874] + [-0.353553] * 7),
    ],
)
def test_one_success_in_a_group(rewards, estimator, expected):
    assert per_trajectory(records.group(rewards), estimator) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("estimator", [Grpo(), Grpo(eps=1e-6), Grpo(normalise="none"), Grpo(ddof=0), Rloo()])
@pytest.mark.parametrize("rewards", [[1.0] * 4, [0.0] * 4, [1.0], [0.35] * 8, [0.1 + 0.2, 0.3, 0.3], [1.0, None, None]])
def test_a_group_that_says_nothing_gets_exactly_zero(estimator, rewards):
    assert per_trajectory(records.group(rewards), estimator) == [0.0] * sum(r is not None for r in rewards)


@pytest.mark.parametrize("estimator", [Grpo(), Rloo()])
@pytest.mark.parametrize("rewards", [[], [None, None]])
def test_a_group_without_graded_members_gets_no_credit(estimator, rewards):
    assert estimator(records.group(rewards)) == {}


def test_rounding_residue_is_no_deviation():
    rewards = [float(np.float32(0.35))] * 7 + [0.0]
    found = per_trajectory(records.group(rewards), Rloo())
    assert found[7] == pytest.approx(-0.35, abs=1e-6)
    assert max(abs(a) for a in per_trajectory(records.group(rewards), Grpo())) < 3


def test_probe_d3_lost_and_excluded_members():
    """Advantages of three groups, centred and unscaled; faulty members get nothing and change nothing."""
    estimator = load_estimator("mean")
    a = records.group([None, 1.0, None, 0.0], id="A")
    b = records.group([0.0, 0.0, 0.0, 1.0], id="B")
    c = records.group([1.0, 3.0, 2.0, 0.0], id="C")
    placeholder = Disposition(membership=Membership.EXCLUDED, reward=0.0, gradient=Gradient.NONE, reason="placeholder")
    c = replace(c, members=(*c.members[:3], replace(c.members[3], disposition=placeholder)))
    shuffled = replace(c, members=tuple(c.members[i] for i in (3, 1, 0, 2)))
    assert {k: v[0] for k, v in estimator(a).items()} == {"A/1.0": 0.5, "A/3.0": -0.5}
    assert [v[0] for v in estimator(b).values()] == [-0.25, -0.25, -0.25, 0.75]
    assert {k: v[0] for k, v in estimator(shuffled).items()} == {"C/0.0": -1.0, "C/1.0": 1.0, "C/2.0": 0.0}


def test_the_number_of_turns_has_no_vote():
    one = records.turn()
    made = [
        records.member(records.trajectory([one] * turns, id=f"g/{i}.0"), reward)
        for i, (turns, reward) in enumerate([(2, 1.0), (1, 0.0), (2, 1.0), (1, 0.0)])
    ]
    group = replace(records.group([], id="g"), members=tuple(made))
    credit = Grpo(normalise="none")(group)
    assert [list(v) for v in credit.values()] == [[0.5, 0.5], [-0.5], [0.5, 0.5], [-0.5]]


def folded(reward_of_branch):
    content = json.loads(FIXTURE.read_text("utf-8"))
    branch = dict(content["members"][1], id="G/1.0+1", parent_id="G/1.0", forked_at=2, reward=reward_of_branch)
    content["members"].insert(2, branch)
    return parse_group(content)


def test_branches_of_an_episode_vote_once():
    credit = Grpo()(folded(0.0))
    assert credit["G/0.0"][0] == pytest.approx(1.5)
    assert list(credit["G/1.0+1"]) == list(credit["G/1.0"]) == [-0.5] * 3


def test_branches_of_an_episode_earn_the_same():
    with pytest.raises(InvariantViolation, match=r"episode 'G/1.0' have rewards \[0.0, 1.0\]"):
        Grpo()(folded(1.0))


def test_a_circle_of_parents_is_refused():
    content = json.loads(FIXTURE.read_text("utf-8"))
    content["members"][0]["parent_id"] = "G/1.0"
    content["members"][1]["parent_id"] = "G/0.0"
    with pytest.raises(InvariantViolation, match="its own ancestor"):
        Rloo()(parse_group(content))
