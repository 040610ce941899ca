"""What must hold of every group baseline, whatever the rewards."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sanderling.credit import Grpo, Rloo
from sanderling.testing import records

ESTIMATORS = [Grpo(), Grpo(eps=1e-6), Grpo(ddof=0), Grpo(normalise="none"), Rloo()]
rewards_lists = st.lists(st.integers(-8, 8).map(lambda n: n / 4), min_size=2, max_size=8)


def advantages(rewards, estimator):
    return np.array([a[0] for a in estimator(records.group(rewards, turns=1)).values()])


@pytest.mark.parametrize("estimator", ESTIMATORS)
@settings(max_examples=30)
@given(rewards=rewards_lists)
def test_advantages_sum_to_zero_and_are_finite(estimator, rewards):
    found = advantages(rewards, estimator)
    assert np.all(np.isfinite(found))
    assert abs(found.sum()) < 1e-9


@pytest.mark.parametrize("estimator", ESTIMATORS)
@settings(max_examples=30)
@given(rewards=rewards_lists, shift=st.integers(-100, 100))
def test_adding_a_constant_changes_nothing(estimator, rewards, shift):
    assert advantages([r + shift for r in rewards], estimator) == pytest.approx(
        advantages(rewards, estimator), abs=1e-9
    )


@settings(max_examples=30)
@given(rewards=rewards_lists, scale=st.sampled_from([1e-3, 0.5, 3.0, 1e4]))
def test_scale(rewards, scale):
    scaled = [r * scale for r in rewards]
    assert advantages(scaled, Grpo()) == pytest.approx(advantages(rewards, Grpo()), abs=1e-9)
    for linear in (Grpo(normalise="none"), Rloo()):
        assert advantages(scaled, linear) == pytest.approx(scale * advantages(rewards, linear), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@settings(max_examples=30)
@given(data=st.data(), rewards=rewards_lists)
def test_order_of_members_and_excluded_ones_change_nothing(estimator, data, rewards):
    group = records.group([*rewards, None, None], turns=2)
    order = data.draw(st.permutations(range(len(group.members))))
    shuffled = replace(group, members=tuple(group.members[i] for i in order))
    alone = estimator(records.group(rewards, turns=2))
    found = estimator(shuffled)
    assert set(found) == set(alone)
    for name, expected in alone.items():
        assert found[name] == pytest.approx(expected, abs=1e-9)


@settings(max_examples=30)
@given(rewards=rewards_lists)
def test_rloo_is_mean_only_times_n_over_n_minus_1(rewards):
    n = len(rewards)
    assert advantages(rewards, Rloo()) == pytest.approx(
        advantages(rewards, Grpo(normalise="none")) * n / (n - 1), abs=1e-12
    )
