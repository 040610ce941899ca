"""What becomes of an episode that a limit cut, or that grew too long: each setting by hand."""

import pytest

from sanderling.learn.measure import disposition_counts, solve_counts
from sanderling.rollout.config import RolloutConfig
from sanderling.rollout.disposition import dispose, overlong_penalty
from sanderling.testing import records
from sanderling.types import Graded, Gradient, Group, Member, Membership, StopReason


def fate(stop, reward=0.0, **settings):
    trajectory = records.trajectory([records.turn()], stop=stop)
    return dispose(trajectory, Graded(reward=reward), RolloutConfig(**settings))


@pytest.mark.parametrize(
    ("settings", "membership", "reward", "gradient"),
    [
        ({}, Membership.MEMBER, 0.5, Gradient.FULL),
        ({"truncated_gradient": "mask"}, Membership.MEMBER, 0.5, Gradient.NONE),
        ({"truncated_membership": "drop"}, Membership.EXCLUDED, 0.5, Gradient.NONE),
        ({"truncated_penalty": 0.2}, Membership.MEMBER, 0.3, Gradient.FULL),
        ({"truncated_penalty": 0.2, "truncated_gradient": "mask"}, Membership.MEMBER, 0.3, Gradient.NONE),
    ],
)
def test_an_episode_cut_by_a_limit(settings, membership, reward, gradient):
    found = fate(StopReason.MAX_TURNS, 0.5, **settings)
    assert (found.membership, found.gradient) == (membership, gradient)
    assert found.reward == pytest.approx(reward)


def test_settings_for_limits_leave_other_ends_alone():
    settings = {"truncated_membership": "drop", "truncated_penalty": 0.2}
    for stop in (StopReason.SUBMITTED, StopReason.GAVE_UP):
        found = fate(stop, 0.5, **settings)
        assert (found.membership, found.reward, found.gradient) == (Membership.MEMBER, 0.5, Gradient.FULL)
    slow = fate(StopReason.TIMEOUT, 0.5, **settings)  # the policy chose what took so long
    assert (slow.membership, slow.gradient) == (Membership.MEMBER, Gradient.FULL)
    assert slow.reward == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("tokens", "limit", "buffer", "penalty"),
    [
        (4, 8, 4, 0.0),
        (6, 8, 4, -0.5),
        (3, 8, 4, 0.0),
        (8, 8, 4, -1.0),
        (16384, 20480, 4096, 0.0),
        (17408, 20480, 4096, -0.25),
        (20480, 20480, 4096, -1.0),
        (20481, 20480, 4096, -1.0),
    ],
)
def test_soft_punishment_of_length(tokens, limit, buffer, penalty):
    assert overlong_penalty(tokens, limit, buffer) == pytest.approx(penalty)


def test_length_is_that_of_the_whole_episode():
    config = RolloutConfig(overlong_tokens=8, overlong_buffer=4)
    row = records.trajectory([records.turn("xxx")])  # 4 action tokens with its end
    assert dispose(row, Graded(reward=1.0), config).reward == 1.0
    assert dispose(row, Graded(reward=1.0), config, action_tokens=6).reward == 0.5


def members(config):
    made = []
    for i, (stop, reward) in enumerate(
        [(StopReason.SUBMITTED, 1.0), (StopReason.MAX_TURNS, 1.0), (StopReason.GAVE_UP, 0.0)]
    ):
        trajectory = records.trajectory([records.turn()], id=f"g0/{i}.0", stop=stop)
        verdict = Graded(reward=reward)
        made.append(Member(trajectory=trajectory, verdict=verdict, disposition=dispose(trajectory, verdict, config)))
    return Group(id="g0", task_id="t", members=tuple(made))


def test_dropped_episodes_are_counted_with_their_reason():
    group = members(RolloutConfig(truncated_membership="drop"))
    counts = disposition_counts([group], [])
    assert counts == {"trained": 0, "dropped_max_turns": 1, "dropped_zero_advantage": 2}
    assert sum(counts.values()) == 3


def test_a_penalty_changes_no_measurement():
    shaped = RolloutConfig(truncated_membership="drop", truncated_penalty=0.1, overlong_tokens=4, overlong_buffer=4)
    assert solve_counts([members(RolloutConfig(truncated_penalty=0.1))]) == (2, 3)
    plain = shaped.for_evaluation()
    assert solve_counts([members(plain)]) == (2, 3)
    assert [m.disposition.reward for m in members(plain).members] == [1.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"truncated_membership": "drop", "truncated_gradient": "mask"}, "has no effect with truncated_membership"),
        ({"overlong_tokens": 100, "overlong_buffer": 200}, "longer than overlong_tokens"),
        ({"overlong_buffer": 200}, "has no effect without overlong_tokens"),
    ],
)
def test_settings_that_cannot_act_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        RolloutConfig(**settings)
