"""Hand-worked credit to six digits, from JSON trajectories through the data model."""

from dataclasses import replace

import numpy as np
import pytest

from sanderling.batch import assign_credit
from sanderling.credit import load_estimator
from sanderling.credit.token_gae import adaptive_lambda
from sanderling.errors import ConfigError
from sanderling.testing.group_files import fixture
from sanderling.types import StopReason


def credit_of(name, group="four_trajectories", **settings):
    """Credit per graded trajectory in the order of the file."""
    found = fixture(group) if isinstance(group, str) else group
    credit = assign_credit([found], load_estimator(name, settings))
    return [credit[m.trajectory.id].tolist() for m in found.graded()]


def rows(*cells):
    """Rows of numbers as they stand in a table: "1 2 3" per trajectory."""
    return [[float(x) for x in cell.split()] for cell in cells]


def check(found, expected, tolerance=1e-6):
    assert [len(r) for r in found] == [len(r) for r in expected]
    for have, want in zip(found, expected, strict=True):
        assert have == pytest.approx(want, abs=tolerance)


def test_opo():
    assert [c[0] for c in credit_of("opo")] == pytest.approx([0.809524] + [-0.190476] * 3, abs=1e-6)


@pytest.mark.parametrize("name", ["reinforce++", "reinforce++-baseline"])
def test_reinforce_pp(name):
    """21 tokens whitened; on one group the baseline form is the same."""
    found = credit_of(name)
    assert [len(c) for c in found] == [4, 6, 3, 8]
    check(found, [[2.011869] * 4, [-0.473381] * 6, [-0.473381] * 3, [-0.473381] * 8])


def test_reinforce_pp_is_whitened_over_all_groups():
    first, second = fixture("four_trajectories"), fixture("unequal_turns")
    second = replace(
        second,
        id="H",
        members=tuple(
            replace(m, trajectory=replace(m.trajectory, id=m.trajectory.id.replace("G", "H"))) for m in second.members
        ),
    )
    credit = assign_credit([first, second], load_estimator("reinforce++"))
    tokens = np.concatenate(list(credit.values()))
    assert len(tokens) == 21 + 14
    assert tokens.mean() == pytest.approx(0.0, abs=1e-12) and tokens.std(ddof=1) == pytest.approx(1.0, abs=1e-6)


def test_token_returns_count_actions_not_observations():
    check(credit_of("reinforce++", "one_observation", gamma=0.5, whiten="none"), [[0.5, 1.0]])


STEP_MEAN = rows(".722 .475 .5", "-.1805 -.475 0", "-.1805 0 -.5", "-.1805 0 -.1805")
STEP_STD = rows(
    "1.788850 .707106 .707106",
    "-.447212 -.707106 0",
    "-.447212 0 -.707106",
    "-.447212 0 -.447212",
)
GIGPO_MEAN = rows("1.472 1.225 1.25", "-.4305 -.725 -.25", "-.4305 -.25 -.75", "-.4305 -.25 -.4305")
GIGPO_STD = rows(
    "3.288847 2.207103 2.207103",
    "-.947211 -1.207105 -.499999",
    "-.947211 -.499999 -1.207105",
    "-.947211 -.499999 -.947211",
)
GIGPO_TURNS = rows(
    "3.447159 2.365414 2.365415",
    "-.999982 -1.259875 -.552770",
    "-.999982 -.552770 -1.259875",
    "-.999982 -.552770 -.999982",
)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"normalise": "none", "episode_weight": 0}, STEP_MEAN),
        ({"eps": 1e-6, "episode_weight": 0}, STEP_STD),
        ({"normalise": "none"}, GIGPO_MEAN),
        ({"eps": 1e-6}, GIGPO_STD),
    ],
)
def test_gigpo(settings, expected):
    check(credit_of("gigpo", **settings), expected, tolerance=1.5e-6)


def test_gigpo_as_the_released_code_computes_it():
    check(credit_of("gigpo-verl-agent"), GIGPO_TURNS, tolerance=1.5e-6)


def test_long_episodes_weigh_more_in_statistics_over_turns():
    by_episode = credit_of("gigpo", "unequal_turns")
    by_turn = credit_of("gigpo", "unequal_turns", statistics="turns")
    assert by_episode[0][0] == pytest.approx(0.866025, abs=1e-6)
    assert by_turn[0][0] == pytest.approx(0.834523, abs=1e-6)
    assert [len(c) for c in by_episode] == [2, 3, 3, 6]


def test_discounting_can_reverse_a_preference():
    assert pytest.approx(0.496375) == 0.95**2 * 0.55 and pytest.approx(0.405270, abs=1e-6) == 0.95**12 * 0.75


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"zeros": "dropped"}, [0.444444, -0.555556, 0.25, 0.25]),
        ({}, [0.444444, -0.555556, 0.055556, 0.055556]),
        ({"history": 0}, [0.25, -0.75, 0.25, 0.25]),
    ],
)
def test_hgpo_at_the_third_turn(settings, expected):
    found = credit_of("hgpo", "state_histories", gamma=1.0, **settings)
    assert [c[2] for c in found] == pytest.approx(expected, abs=1e-6)


def test_released_hgpo_adds_its_epsilon():
    found = credit_of("hgpo-released", "state_histories", gamma=1.0)
    assert [c[2] for c in found] == pytest.approx([0.444444, -0.555556, 0.25, 0.25], abs=1e-6)


def test_group_value_gae():
    expected = rows(".383562 .2375 .5", ".045125 -.475 0", "-.067687 .2375 -.5", "-.139775 .085737 -.1805")
    check(credit_of("group-value-gae"), expected, tolerance=1.5e-6)


def test_tree_grpo():
    found = credit_of("tree-grpo", "two_trees")
    assert [c[2] for c in found] == pytest.approx([2.207106, -1.207106, -0.5, -0.5], abs=1e-6)
    # The first turn is that of both leaves of its tree, and trained once, in the row of the first.
    assert [c[0] for c in found] == pytest.approx([0.5, 0.5, -0.5, -0.5], abs=1e-6)


def test_tree_values():
    """Behind the first turn of the first tree are rewards 1 and 0, beside it 0 and 0."""
    found = credit_of("tree-value", "two_trees")
    check(found, rows(".5 1 1", ".5 -1 -1", "-.5 0 0", "-.5 0 0"))
    check(
        credit_of("tree-value", "two_trees", baseline="all"), rows(".25 .5 .5", ".25 -.5 -.5", "-.25 0 0", "-.25 0 0")
    )
    assert [c[1] for c in credit_of("tree-value", "two_trees", baseline="all", against="both")] == pytest.approx(
        [1.25, -0.75, -0.25, -0.25]
    )


def test_values_from_forks():
    """VinePPO: V = 1/3, 2/3, 1, then reward 1."""
    check(credit_of("turn-gae", "fork_values", lam=0.0), rows(".333333 .333333 0"))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"lam": 0.5, "at_budget": "terminal"},
            rows(".25 .30 .20", "-.125 -.45 -.30", "-.20 -.20 -.40", "-.175 -.15 -.50"),
        ),
        ({"lam": 0.5}, rows(".25 .30 .20", "-.125 -.45 -.30", "-.20 -.20 -.40", "-.0625 .075 -.05")),
        (
            {"gamma": 0.95, "lam": 0.9, "at_budget": "terminal"},
            rows(".353005 .331 .2", "-.418633 -.5715 -.3", "-.429510 -.362 -.4", "-.421388 -.3525 -.5"),
        ),
        (
            {"gamma": 0.95, "lam": 0.9},
            rows(".353005 .331 .2", "-.418633 -.5715 -.3", "-.429510 -.362 -.4", "-.108874 .013012 -.0725"),
        ),
    ],
)
def test_turn_gae(settings, expected):
    check(credit_of("turn-gae", **settings), expected)


@pytest.mark.parametrize(("at_budget", "last"), [("terminal", ".325 .25 0"), ("bootstrap", ".4375 .475 .45")])
def test_targets_of_a_turn_critic(at_budget, last):
    group = fixture("four_trajectories")
    estimator = load_estimator("turn-gae", {"at_budget": at_budget})
    targets = list(estimator.targets(group, 0.5).values())
    check(targets, rows(".75 .90 1", ".375 .15 0", ".30 .20 0", last))


def test_rewards_of_several_turns_and_a_bootstrapped_end():
    check(credit_of("turn-gae", "turn_kernel", lam=0.5)[:1], [[2.0, 2.0]])
    check(credit_of("turn-gae", "turn_kernel", gamma=0.5, lam=0.25)[1:], [[3.75, 6.0]])


def test_token_gae_skips_observations():
    check(credit_of("token-gae", "token_layout", lam=0.5), [[0.15, 0.2, 0.3, 0.2]])
    group = fixture("token_layout")
    (member,) = group.members
    first = replace(member.trajectory.turns[0], reward=0.2)  # paid with the observation, so it is the turn's
    paid = replace(member, trajectory=replace(member.trajectory, turns=(first, *member.trajectory.turns[1:])))
    check(credit_of("token-gae", replace(group, members=(paid,)), lam=0.5), [[0.25, 0.4, 0.3, 0.2]])


def test_bilevel_gae():
    found = credit_of("bilevel-gae", "token_layout", lam=0.5)
    check(found, [[0.120562, 0.141125, 0.255, 0.2]], tolerance=1.5e-6)


def test_rows_of_an_episode_in_token_gae():
    joint = rows(".475120 .4168 .352", ".28 .2")
    check(credit_of("token-gae", "two_rows", lam=0.9), joint)
    check(credit_of("compaction-gae", "two_rows", lam=0.9), rows(".416340 .372600 .324000", ".28 .2"))


def test_lambda_grows_with_the_episode():
    assert [adaptive_lambda(n) for n in (5, 21, 100)] == pytest.approx([0.866667, 0.968254, 0.993333], abs=1e-6)
    by_hand = credit_of("token-gae", "token_layout", lam=adaptive_lambda(4))
    assert credit_of("sao", "token_layout") == by_hand


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        (
            "mt-grpo",
            {},
            rows("2.366025 3 1.5", ".366025 -1 -.5", "-1.366025 -1 -.5", "-1.366025 -1 -.5"),
        ),
        (
            "turn-return",
            {},
            rows("1.485221 1.5 1.5", "-.297044 -.5 -.5", "-.594089 -.5 -.5", "-.594089 -.5 -.5"),
        ),
        (
            "igpo",
            {},
            rows(
                "3.483153 3.250943 3.018732",
                "-.696631 -.928841 -.464420",
                "-1.393261 -.928841 -.464420",
                "-1.393261 -.928841 -.464420",
            ),
        ),
        ("merged-rewards", {}, [[1.485221] * 3, [-0.297044] * 3, [-0.594089] * 3, [-0.594089] * 3]),
    ],
)
def test_turn_rewards(name, settings, expected):
    check(credit_of(name, "turn_rewards", **settings), expected)


def test_a_baseline_per_turn_before_the_sum_pays_for_going_on():
    biased = credit_of("turn-accumulated", "variable_turns", normalise="none")
    right = credit_of("turn-return", "variable_turns", normalise="none")
    check(biased, rows("0", "0", "0 0", "0 0"))
    check(right, rows("-.1", "-.1", ".1 0", ".1 0"))


def test_decay():
    found = credit_of("decayed", normalise="none")
    assert (np.array(found[0]) / 0.75).tolist() == pytest.approx([0.9025, 0.95, 1.0])


def test_bounded_scores():
    found = credit_of("bounded-scores", "turn_scores", normalise="none")
    assert found[1] == pytest.approx([-0.1875, -0.3125, -0.25], abs=1e-6)


def test_truncation_needs_a_value_where_it_is_bootstrapped():
    group = fixture("four_trajectories")
    last = group.members[3]
    group = replace(group, members=(*group.members[:3], replace(last, values=replace(last.values, at_end=None))))
    with pytest.raises(ConfigError, match=r"'G/3\.0' was cut by max_turns"):
        credit_of("turn-gae", group)
    check(
        credit_of("turn-gae", group, lam=0.5, at_budget="terminal")[3:],
        rows("-.175 -.15 -.50"),
    )


def test_an_end_of_its_own_reads_no_value_behind_it():
    group = fixture("four_trajectories")
    ended = replace(group.members[3].trajectory, stop=StopReason.SUBMITTED)
    group = replace(group, members=(*group.members[:3], replace(group.members[3], trajectory=ended)))
    check(credit_of("turn-gae", group, lam=0.5)[3:], rows("-.175 -.15 -.50"))


@pytest.mark.parametrize("name", ["gigpo", "hgpo", "group-value-gae"])
def test_state_groups_need_state_keys(name):
    with pytest.raises(ConfigError, match="has a state key"):
        credit_of(name, "two_rows")


@pytest.mark.parametrize("name", ["turn-gae", "token-gae", "bilevel-gae"])
def test_a_critic_needs_values(name):
    with pytest.raises(ConfigError, match="value"):
        credit_of(name, "turn_rewards")
    if name != "turn-gae":
        with pytest.raises(ConfigError, match="values of turns only"):
            credit_of(name, "fork_values")
