"""Hand-worked policy losses on fixture G, from JSON trajectories through credit, rows and micro-batches."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sanderling.batch import BatchConfig, micro_batches, training_rows
from sanderling.credit import Grpo
from sanderling.errors import ConfigError
from sanderling.loss.config import LossConfig
from sanderling.loss.policy import TokenBatch, kl_k3, policy_loss, ppo_token_losses
from sanderling.testing.group_files import FIXTURES, parse_group
from sanderling.types import Gradient

CONTENT = json.loads((FIXTURES / "four_trajectories.json").read_text("utf-8"))
NEW_OVER_OLD, OLD_OVER_ROLLOUT = CONTENT["new_over_old"], CONTENT["old_over_rollout"]
EDGE = 1e-6  # the fixture has weights of exactly .5 and 2, which float32 log-probabilities only reach up to rounding
PPO = LossConfig()
DUAL = LossConfig(dual_clip=3.0)


def fixture(*, masked=(), folded=False):
    """Fixture G; `masked` members get no gradient, `folded` puts the last turn of T2 (2 of 6 tokens) into a branch."""
    content = json.loads(json.dumps(CONTENT))
    if folded:
        second = content["members"][1]
        second["turns"][2]["action"] = {k: v[:2] for k, v in second["turns"][2]["action"].items()}
        second["turns"][1]["action"]["token_ids"] += [5]
        second["turns"][1]["action"]["rollout_logprobs"] += second["turns"][1]["action"]["rollout_logprobs"][:1]
        second["turns"][1]["action"]["policy_versions"] += [0]
        branch = dict(second, id="G/1.0+1", parent_id="G/1.0", forked_at=2, prompt_ids=[2])
        content["members"].insert(2, branch)
        second["turns"] = second["turns"][:2]  # the parent ends where the context was folded
    group = parse_group(content)
    members = [
        replace(m, disposition=replace(m.disposition, gradient=Gradient.NONE)) if m.trajectory.id in masked else m
        for m in group.members
    ]
    return replace(group, members=tuple(members))


def columns(rows, ratios):
    """The trained tokens' numbers in `ratios`, by row; a branch goes on where its parent ended."""
    used: dict[str, int] = {}
    out = []
    for row in rows:
        name = row.trajectory_id.partition("+")[0]
        start = used.get(name, 0)
        used[name] = start + int(row.loss_mask.sum())
        out += ratios[name][start : used[name]]
    return torch.tensor(out, dtype=torch.float64)


TOKEN_MEAN = BatchConfig(aggregation="token-mean")


def token_batch(rows, *, on_policy=False):
    rho, w = columns(rows, NEW_OVER_OLD), columns(rows, OLD_OVER_ROLLOUT)
    flat = {
        name: torch.tensor(np.concatenate([getattr(r, name)[r.loss_mask] for r in rows])).double()
        for name in ("rollout_logprobs", "advantages", "weights")
    }
    old = flat["rollout_logprobs"] + torch.log(w)
    new = (old if on_policy else old + torch.log(rho)).requires_grad_()
    return new, TokenBatch(old_logprobs=old, **flat)


def loss_of(group, config=PPO, *, on_policy=False, **batch_settings):
    rows = training_rows([group], Grpo()(group), BatchConfig(**{"aggregation": "token-mean", **batch_settings}))
    new, batch = token_batch(rows, on_policy=on_policy)
    return float(policy_loss(new, None, batch, config)[0].detach())


def by_member(values, group):
    cuts = np.cumsum([m.trajectory.num_action_tokens for m in group.members])[:-1]
    return [part.tolist() for part in np.split(np.asarray(values), cuts)]


def test_per_token_losses_and_gradients():
    group = fixture()
    rows = training_rows([group], Grpo()(group))
    new, batch = token_batch(rows)
    losses = ppo_token_losses(new, batch.old_logprobs, batch.advantages, PPO)
    t1, t2, t3, t4 = by_member(losses.detach(), group)
    assert t1 == pytest.approx([-1.5, -1.65, -1.92, -1.05])
    assert t2 == pytest.approx([0.5, 0.45, 0.65, 0.4, 2.0, 0.5])
    assert t3 == pytest.approx([0.5, 0.5, 0.6]) and t4 == pytest.approx([0.5] * 8)
    (gradient,) = torch.autograd.grad(losses.sum(), new)
    t1, t2, t3, _ = by_member(gradient, group)
    assert t1 == pytest.approx([-1.5, -1.65, 0.0, -1.05])
    assert t2 == pytest.approx([0.5, 0.45, 0.65, 0.0, 2.0, 0.5])
    assert t3 == pytest.approx([0.5, 0.5, 0.6])


def test_dual_clip_bounds_only_negative_advantages():
    group = fixture()
    new, batch = token_batch(training_rows([group], Grpo()(group), TOKEN_MEAN))
    losses = ppo_token_losses(new, batch.old_logprobs, batch.advantages, DUAL)
    t1, t2, _, _ = by_member(losses.detach(), group)
    assert t1 == pytest.approx([-1.5, -1.65, -1.92, -1.05])
    assert t2 == pytest.approx([0.5, 0.45, 0.65, 0.4, 1.5, 0.5])


MODES = [
    {"aggregation": "token-mean"},
    {"aggregation": "sequence-mean"},
    {"aggregation": "sequence-sum"},
    {"aggregation": "constant", "constant_tokens": 8},
]


@pytest.mark.parametrize(
    ("mode", "off_policy", "on_policy"),
    list(zip(MODES, (0.189524, 0.063333, 0.995, 0.124375), (0.119048, 0.0, 0.625, 0.078125), strict=True)),
)
def test_aggregation(mode, off_policy, on_policy):
    assert loss_of(fixture(), **mode) == pytest.approx(off_policy, abs=1e-6)
    assert loss_of(fixture(), on_policy=True, **mode) == pytest.approx(on_policy, abs=1e-6)


def test_aggregation_with_dual_clip():
    assert loss_of(fixture(), DUAL) == pytest.approx(0.165714, abs=1e-6)


@pytest.mark.parametrize(
    ("mode", "members", "trained"),
    list(
        zip(MODES, (-0.001538, -0.061667, -0.005, -0.000625), (-0.001538, -0.082222, -0.006667, -0.000833), strict=True)
    ),
)
def test_aggregation_with_a_masked_member(mode, members, trained):
    """The masked member stays among the rollouts that are divided by ("members"), or leaves them ("trained", as
    verl)."""
    group = fixture(masked=["G/3.0"])
    assert loss_of(group, **mode) == pytest.approx(members, abs=1e-6)
    assert loss_of(group, count="trained", **mode) == pytest.approx(trained, abs=1e-6)


@pytest.mark.parametrize(("mode", "expected"), list(zip(MODES, (0.189524, 0.063333, 0.995, 0.124375), strict=True)))
def test_branches_of_an_episode_weigh_as_the_episode(mode, expected):
    """T2 cut into 4 + 2 tokens; a mean over five rows would give 0.250667."""
    group = fixture(folded=True)
    assert len(training_rows([group], Grpo()(group), TOKEN_MEAN)) == 5
    assert loss_of(group, **mode) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("budget", [1, 24, 40, 10_000])
@pytest.mark.parametrize(("mode", "expected"), list(zip(MODES, (0.189524, 0.063333, 0.995, 0.124375), strict=True)))
def test_gradient_accumulation_adds_up(mode, expected, budget):
    """Micro-batch losses are summed, never averaged: means of means would give 0.173545 or 0.063333 for the token
    mean."""
    group = fixture()
    rows = training_rows([group], Grpo()(group), BatchConfig(**mode))
    total = 0.0
    for micro in micro_batches(rows, budget):
        new, batch = token_batch([rows[i] for i in micro.row_indices])
        batch = replace(batch, weights=torch.tensor(micro.weights[micro.loss_mask]).double())
        total += float(policy_loss(new, None, batch, PPO)[0].detach())
    assert total == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 0.189524),
        ({"correction": "truncate", "correction_high": float("inf")}, 0.129762),  # decoupled PPO
        ({"correction": "truncate", "correction_high": 2.0}, 0.151667),
        ({"correction": "mask", "correction_low": 0.5 - EDGE, "correction_high": 2.0 + EDGE}, 0.277381),
        ({"correction": "mask", "correction_low": 0.5 - EDGE, "correction_high": 5.0}, 0.120238),
    ],
)
def test_corrections_for_the_sampler(settings, expected):
    assert loss_of(fixture(), LossConfig(old_logprobs="recompute", **settings)) == pytest.approx(expected, abs=1e-6)


def test_correction_weights_carry_no_gradient():
    config = LossConfig(old_logprobs="recompute", correction="truncate")
    group = fixture()
    new, batch = token_batch(training_rows([group], Grpo()(group), TOKEN_MEAN))
    old = batch.old_logprobs.clone().requires_grad_()
    loss, _ = policy_loss(new, None, replace(batch, old_logprobs=old.detach()), config)
    assert torch.autograd.grad(loss, new)[0].abs().sum() > 0 and old.grad is None


def test_kl_k3():
    ratios = torch.tensor([1.0, 1.1, 3.75, 0.35])  # of the first to the second distribution
    assert kl_k3(torch.log(ratios), torch.zeros(4)).tolist() == pytest.approx(
        [0, 0.004401, 0.588423, 0.807321], abs=1e-6
    )


def test_sums_for_the_metrics():
    group = fixture()
    new, batch = token_batch(training_rows([group], Grpo()(group), TOKEN_MEAN))
    loss, sums = policy_loss(new, torch.full((21,), 0.5), batch, PPO)
    ratios = [a * b for name in NEW_OVER_OLD for a, b in zip(NEW_OVER_OLD[name], OLD_OVER_ROLLOUT[name], strict=True)]
    assert sums.tokens == 21 and sums.loss == pytest.approx(float(loss.detach()))
    assert sums.clipped == 2  # T1's 1.5 with A > 0 and T2's .7 with A < 0; T1's .7 and T2's 4 keep their gradient
    assert sums.ratio_max == pytest.approx(4.0) and sums.ratio == pytest.approx(sum(ratios), rel=1e-6)
    assert sums.entropy == pytest.approx(10.5)
    assert sums.kl == pytest.approx(sum(r - 1 - np.log(r) for r in ratios), rel=1e-6)
    assert policy_loss(new, None, batch, DUAL)[1].clipped == 3


def test_entropy_bonus():
    group = fixture()
    new, batch = token_batch(training_rows([group], Grpo()(group), TOKEN_MEAN))
    entropy = torch.linspace(0.1, 1.0, 21, dtype=torch.float64)
    plain = policy_loss(new, entropy, batch, PPO)[0]
    bonus = policy_loss(new, entropy, batch, LossConfig(entropy_coefficient=0.01))[0]
    assert float((plain - bonus).detach()) == pytest.approx(0.01 * float(entropy.mean()), rel=1e-6)
    with pytest.raises(ConfigError, match=r"entropy_coefficient=0.01"):
        policy_loss(new, None, batch, LossConfig(entropy_coefficient=0.01))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"correction": "truncate"}, 'old_logprobs="recompute"'),
        ({"clip_low": 1.0}, "clip_low"),
        ({"dual_clip": 1.0}, "dual_clip"),
        ({"clip": 0.2}, "clip"),
    ],
)
def test_settings_that_cannot_act_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        LossConfig(**settings)


numbers = st.floats(-3, 3)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=8), st.floats(0, 0.9), st.floats(0, 2))
def test_the_clipped_loss_is_pessimistic_and_exact_on_policy(pairs, low, high):
    log_ratio, advantages = torch.tensor(pairs, dtype=torch.float64).T
    config = LossConfig(clip_low=low, clip_high=high)
    old = torch.full_like(log_ratio, -1.0)
    losses = ppo_token_losses(old + log_ratio, old, advantages, config)
    assert torch.all(losses >= -torch.exp(log_ratio) * advantages - 1e-12)
    assert torch.equal(ppo_token_losses(old, old, advantages, config), -advantages)
