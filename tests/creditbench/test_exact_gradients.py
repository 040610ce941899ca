"""Dynamic programming says what sampling and finite differences say."""

from __future__ import annotations

import numpy as np
import pytest

from sanderling.creditbench.environments import ENVIRONMENTS, careful_or_gamble, rooms
from sanderling.creditbench.exact import policy_gradient, reference_policy, success, successes
from sanderling.creditbench.mdp import softmax
from sanderling.creditbench.sampling import sample


@pytest.mark.parametrize("mdp", [rooms(), careful_or_gamble("cut", max_turns=6)], ids=lambda mdp: mdp.name)
def test_the_gradient_is_that_of_finite_differences(mdp):
    logits = np.random.default_rng(0).normal(size=(mdp.num_views, mdp.num_actions))
    exact, step = policy_gradient(mdp, softmax(logits)), 1e-5
    for place in np.ndindex(logits.shape):
        moved = np.zeros_like(logits)
        moved[place] = step
        difference = (success(mdp, softmax(logits + moved)) - success(mdp, softmax(logits - moved))) / (2 * step)
        assert exact[place] == pytest.approx(difference, abs=1e-9)


@pytest.mark.parametrize("name", [name for name in ENVIRONMENTS if name != "truncation"])
def test_walks_succeed_as_often_as_they_should(name):
    mdp = ENVIRONMENTS[name].build()
    policy = reference_policy(mdp, ENVIRONMENTS[name].success)
    starts = np.zeros(4000, dtype=np.int64)
    walks = sample(mdp, policy[None], np.zeros_like(starts), starts, np.random.default_rng(1))
    assert walks.rewards.mean() == pytest.approx(success(mdp, policy), abs=4 * 0.5 / np.sqrt(4000))
    assert (walks.cut == ~mdp.terminal[walks.ends]).all()


def test_chances_add_up_and_ends_are_ends():
    for environment in ENVIRONMENTS.values():
        mdp = environment.build()
        assert mdp.transitions.sum(-1) == pytest.approx(1.0)
        for end in np.flatnonzero(mdp.terminal):
            assert (mdp.transitions[end, :, end] == 1.0).all()
        assert mdp.terminal[mdp.goal]


def test_many_policies_at_once_are_many_policies():
    mdp = rooms()
    policies = softmax(np.random.default_rng(2).normal(size=(3, mdp.num_views, mdp.num_actions)))
    assert successes(mdp, policies) == pytest.approx([success(mdp, policy) for policy in policies])


def test_a_success_out_of_reach_is_an_error():
    with pytest.raises(ValueError, match=r"expected at least 0\.99"):
        reference_policy(careful_or_gamble("cut", max_turns=6), 0.99, limit=20)
