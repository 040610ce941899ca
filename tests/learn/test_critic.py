"""The value model: where it looks, what it learns, and what it leaves alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sanderling.batch import training_rows
from sanderling.credit import Reinforce, TokenGae, TurnGae
from sanderling.learn.critic import Critic, _lesson, _places
from sanderling.learn.critic_config import CriticConfig
from sanderling.learn.learner import Learner
from sanderling.testing import records
from sanderling.testing.models import tiny_llama
from sanderling.types import Branching, StopReason


def model():
    return tiny_llama(vocab_size=257, seed=1)


def single(name, letter, reward, *, turns=2, stop=StopReason.SUBMITTED):
    """A group of one episode whose first observation tells how it will end."""
    steps = [records.turn("look", letter), *[records.turn("do", "ok") for _ in range(turns - 1)]]
    made = records.member(records.trajectory(steps, id=f"{name}/0.0", stop=stop), reward)
    return replace(records.group([], id=name), members=(made,))


def groups(count=8):
    return [single(f"g{i}", "yes" if i % 2 else "no.", float(i % 2), turns=2 + i % 3) for i in range(count)]


def critic(policy=None, **settings):
    return Critic(policy or model(), CriticConfig(**{"model": "separate", **settings}))


def test_values_begin_at_zero_and_stand_at_action_tokens():
    made = groups(2)
    valued = critic().valued(made)
    for before, after in zip(made, valued, strict=True):
        (member,) = after.members
        trajectory = before.members[0].trajectory
        assert member.trajectory is trajectory
        assert member.values.at_tokens.shape == (trajectory.num_action_tokens,)
        assert member.values.at_turns.shape == (len(trajectory.turns),)
        assert not member.values.at_tokens.any() and member.values.at_end == 0.0


def test_places_are_those_that_predict_trained_tokens():
    made = groups(3)
    for row in training_rows(made, {m.trajectory.id: Reinforce()(g)[m.trajectory.id] for g in made for m in g.members}):
        (trajectory,) = (g.members[0].trajectory for g in made if g.members[0].trajectory.id == row.trajectory_id)
        places = _places(trajectory)
        assert (places.tokens + 1).tolist() == np.flatnonzero(row.loss_mask).tolist()
        first = [int(np.flatnonzero(row.turn_of_token == k)[0]) for k in range(len(trajectory.turns))]
        assert (places.tokens[places.turns] + 1).tolist() == first


@pytest.mark.parametrize("estimator", [TurnGae(), TokenGae()])
def test_single_episodes_teach_what_the_observation_tells(estimator):
    """Before the first observation nothing is known, behind it everything."""
    made, values = groups(), critic(learning_rate=3e-3, updates_per_step=5)
    for _ in range(12):
        report = values.step(values.valued(made), estimator)
    assert set(report) == {
        "critic_loss",
        "value_mean",
        "value_target_mean",
        "value_bias",
        "value_explained_variance",
    }
    assert report["value_target_mean"] == pytest.approx(0.5, abs=0.05)
    assert report["value_explained_variance"] > 0.4
    known = [g.members[0].values.at_turns for g in values.valued(made)]
    assert abs(known[0][0] - known[1][0]) < 0.05
    assert min(v[1] for v in known[1::2]) > max(v[1] for v in known[::2]) + 0.5


def test_a_head_leaves_the_policy_alone():
    policy = model()
    before = {name: p.clone() for name, p in policy.named_parameters()}
    head = critic(policy, model="head", learning_rate=1e-2)
    made = groups()
    report = head.step(head.valued(made), TurnGae())
    assert report["critic_loss"] == pytest.approx(0.5, abs=0.1)
    assert any(head.valued(made)[1].members[0].values.at_turns)
    assert all(torch.equal(before[name], p) for name, p in policy.named_parameters())
    assert all(p.requires_grad and p.grad is None for p in policy.parameters())


def test_attention_stays_as_it_was():
    values = critic(train="no-attention")
    before = {name: p.clone() for name, p in values._trunk.named_parameters()}
    made = groups()
    for _ in range(2):  # the first update moves the head alone, which begins at 0
        values.step(values.valued(made), TurnGae())
    moved = {name for name, p in values._trunk.named_parameters() if not torch.equal(before[name], p)}
    assert moved and not [name for name in moved if "attn" in name]


def test_the_cut_does_not_matter_and_a_state_restores():
    made, states = groups(), []
    for budget in (1, 10_000):
        values = critic(micro_batch_tokens=budget, learning_rate=1e-3)
        values.step(values.valued(made), TokenGae())
        states.append(values)
    one, other = ([g.members[0].values.at_tokens for g in v.valued(made)] for v in states)
    for a, b in zip(one, other, strict=True):
        assert a == pytest.approx(b, abs=1e-5) and a.any()
    restored = critic(model())
    restored.load_state(states[0].state())
    for a, g in zip(one, restored.valued(made), strict=True):
        assert np.array_equal(a, g.members[0].values.at_tokens)


def test_what_stands_behind_a_limit_is_a_target():
    (group,) = [single("g0", "no.", 0.0, stop=StopReason.MAX_TURNS)]
    values = critic(learning_rate=1e-2)
    values.step([replace(g, members=g.members) for g in values.valued([single("g1", "no.", 1.0)])], TurnGae())
    (valued,) = values.valued([group])
    end = valued.members[0].values.at_end
    assert end != 0.0
    assert TurnGae().targets(valued, 1.0)["g0/0.0"].tolist() == pytest.approx([end, end])
    assert TurnGae(at_budget="terminal").targets(valued, 1.0)["g0/0.0"].tolist() == pytest.approx([0.0, 0.0])


def test_turns_shared_with_a_parent_are_taught_once():
    (group,) = critic().valued([single("g0", "yes", 1.0, turns=3)])
    root = group.members[0]
    fork = replace(root.trajectory, id="g0/0.0~1.0.0", parent_id="g0/0.0", forked_at=2, branching=Branching.FORK)
    targets = {fork.id: np.array([1.0, 2.0, 3.0])}
    assert _lesson(replace(root, trajectory=fork), targets).targets.tolist() == [3.0]
    counts = [len(turn.action.token_ids) for turn in fork.turns]
    by_token = {fork.id: np.arange(float(sum(counts)))}
    assert _lesson(replace(root, trajectory=fork), by_token).targets.tolist() == list(by_token[fork.id][-counts[2] :])


def test_a_learner_keeps_it_in_its_checkpoint():
    policy = model()
    learner = Learner(policy, critic=critic(policy, model="head", learning_rate=1e-2))
    learner.critic.step(learner.critic.valued(groups()), TurnGae())
    state = learner.state()
    fresh = model()
    other = Learner(fresh, critic=critic(fresh, model="head"))
    other.load_state(state, learner.weights())
    assert torch.equal(other.critic._head.weight, learner.critic._head.weight)
    assert other.critic._head.weight.any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rate": 0.1}, 'learning_rate have no effect with model = "none"'),
        ({"model": "head", "train": "head"}, "train = 'head' has no effect"),
    ],
)
def test_settings_that_cannot_act_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        CriticConfig(**settings)
