"""Walks become what the data path knows, and nothing else of the process goes with them."""

from __future__ import annotations

import numpy as np
import pytest

from sanderling.batch import BatchConfig, assign_credit, training_rows
from sanderling.batch.checks import check_token_lists
from sanderling.credit import Rloo
from sanderling.creditbench.environments import careful_or_gamble, rooms, two_keys
from sanderling.creditbench.exact import reference_policy
from sanderling.creditbench.gradients import weighted_advantages
from sanderling.creditbench.measurement import GROUP_SIZE, Place
from sanderling.creditbench.records import CutRule, Recorder, TurnPay
from sanderling.types import Gradient, StopReason


def _recorded(mdp, success=0.3, updates=3, **settings):
    place = Place(mdp=mdp, policy=reference_policy(mdp, success))
    walks = place.walks(updates, np.random.default_rng(0))
    return place, walks, Recorder(mdp=mdp, policies=place.policy[None], **settings).groups(walks, GROUP_SIZE)


def test_a_record_is_the_walk():
    place, walks, groups = _recorded(rooms())
    members = [member for group in groups for member in group.members]
    assert len(members) == len(walks)
    for i, member in enumerate(members):
        trajectory = member.trajectory
        check_token_lists(trajectory)
        assert [int(turn.action.token_ids[0]) for turn in trajectory.turns] == walks.actions[i][walks.taken[i]].tolist()
        assert member.disposition.reward == walks.rewards[i]
        assert trajectory.stop is (StopReason.MAX_TURNS if walks.cut[i] else StopReason.SUBMITTED)
        for turn, state in zip(trajectory.turns, walks.states[i], strict=False):
            assert turn.state_key == str(state)
            chance = place.policy[state, int(turn.action.token_ids[0])]
            assert turn.action.rollout_logprobs[0] == pytest.approx(np.log(chance), abs=1e-6)


def test_nothing_of_a_hidden_state_is_in_a_record():
    """In the null environment a turn's record depends on its number and its action alone, whatever was achieved."""
    _, _, groups = _recorded(two_keys("null", visible=False), success=0.5)
    seen: dict[tuple[int, str], set[tuple[str | None, str, float, float | None]]] = {}
    for group in groups:
        for member in group.members:
            for number, turn in enumerate(member.trajectory.turns):
                said = (turn.state_key, turn.observation.text, turn.reward, turn.score)
                seen.setdefault((number, turn.action.text), set()).add(said)
    assert len(seen) == 36
    assert all(len(records) == 1 for records in seen.values())


def test_a_nonce_makes_every_key_unique():
    _, walks, groups = _recorded(two_keys("nonce", visible=True, unique_keys=True))
    keys = [turn.state_key for group in groups for m in group.members for turn in m.trajectory.turns]
    assert len(set(keys)) == len(keys) == walks.taken.sum()


def test_rules_for_cut_episodes():
    for rule, graded, gradient in (
        (CutRule.TRAIN, True, Gradient.FULL),
        (CutRule.MASK, True, Gradient.NONE),
        (CutRule.DROP, False, Gradient.NONE),
    ):
        _, walks, groups = _recorded(careful_or_gamble("cut", max_turns=6), success=0.6, cut=rule)
        cut = [m for i, m in enumerate(m for g in groups for m in g.members) if walks.cut[i]]
        assert cut
        everyone = [m for group in groups for m in group.graded()]
        assert all((member in everyone) is graded for member in cut)
        assert {member.disposition.gradient for member in cut} == {gradient}


def test_turns_are_paid_or_scored_on_request():
    _, _, paid = _recorded(rooms(), pay=TurnPay.PAID)
    _, _, scored = _recorded(rooms(), pay=TurnPay.SCORED)
    first = paid[0].members[0].trajectory.turns
    assert [turn.reward for turn in first] == [pytest.approx((turn.action.text == "act 0") / 7) for turn in first]
    for turn in scored[0].members[0].trajectory.turns:
        assert turn.score == pytest.approx(int(turn.observation.text.split()[1]) / 7)
    with pytest.raises(ValueError, match="says nothing of single turns"):
        _recorded(careful_or_gamble("cut", max_turns=6), pay=TurnPay.PAID)


@pytest.mark.parametrize("aggregation", ["sequence-sum", "sequence-mean", "token-mean"])
def test_coefficients_are_those_of_training_rows(aggregation):
    _, walks, groups = _recorded(careful_or_gamble("cut", max_turns=6), success=0.6, cut=CutRule.MASK)
    batch, estimator = groups[:2], Rloo()
    found = weighted_advantages(batch, estimator, walks.states.shape[1], aggregation)
    rows = training_rows(batch, assign_credit(batch, estimator), BatchConfig(aggregation=aggregation))
    by_id = {row.trajectory_id: (row.advantages * row.weights)[row.loss_mask] for row in rows}
    assert by_id
    for row, member in zip(found, (m for g in batch for m in g.members), strict=True):
        expected = by_id.get(member.trajectory.id, np.zeros(0))
        assert row[: len(expected)] == pytest.approx(expected, abs=1e-7)
        assert not row[len(expected) :].any()
