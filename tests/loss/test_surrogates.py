"""Hand-worked surrogates and corrections to six digits, from JSON trajectories through credit and rows."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from sanderling.batch import BatchConfig, training_rows
from sanderling.credit import Grpo
from sanderling.errors import ConfigError
from sanderling.loss.config import LossConfig
from sanderling.loss.corrections import correction_weights, drifted, old_share
from sanderling.loss.kl import kl_k1, kl_k2, kl_k3, kl_unbiased
from sanderling.loss.policy import TokenBatch, policy_loss
from sanderling.loss.surrogates import SURROGATES
from sanderling.loss.tokens import sequence_means, sequence_sums
from sanderling.testing.group_files import FIXTURES, fixture

EDGE = 1e-6  # the fixture has ratios on the very bounds, which float32 log-probabilities only reach up to rounding
TOKEN_MEAN = BatchConfig(aggregation="token-mean")


def read(name):
    return json.loads((FIXTURES / f"{name}.json").read_text("utf-8"))


def tokens(name="four_trajectories", batch=TOKEN_MEAN):
    """The tokens of a fixture in float64: log-probabilities of the policy, the columns, and how many each row has."""
    content, group = read(name), fixture(name)
    rows = training_rows([group], Grpo()(group), batch)
    flat = {
        key: torch.tensor(np.concatenate([getattr(r, key)[r.loss_mask] for r in rows])).double()
        for key in ("rollout_logprobs", "advantages", "weights")
    }

    def column(key):
        return torch.tensor([x for r in rows for x in content[key][r.trajectory_id]], dtype=torch.float64)

    counts = [int(r.loss_mask.sum()) for r in rows]
    old = flat["rollout_logprobs"] + (torch.log(column("old_over_rollout")) if "old_over_rollout" in content else 0.0)
    if "new_over_old" in content:
        new = old + torch.log(column("new_over_old"))
    else:
        new = flat["rollout_logprobs"] + torch.log(column("new_over_rollout"))
    sequences = torch.repeat_interleave(torch.arange(len(rows)), torch.tensor(counts))
    return new.requires_grad_(), TokenBatch(old_logprobs=old, sequences=sequences, **flat), counts


def coefficients(config):
    """d loss / d log pi of each token of T1, T2 and T3, before aggregation."""
    new, batch, counts = tokens()
    losses, _ = SURROGATES[config.surrogate](new, batch, config)
    losses = losses + config.log_ratio_penalty * (new - batch.rollout_logprobs) ** 2
    (gradient,) = torch.autograd.grad(losses.sum(), new)
    return [part.tolist() for part in torch.split(gradient, counts)][:3]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ["-1.5 -1.65 0 -1.05", ".5 .45 .65 0 2 .5", ".5 .5 .6"]),
        ({"surrogate": "cispo"}, ["-1.5 -1.65 -1.92 -1.05", ".5 .45 .64 .35 .64 .5", ".5 .5 .6"]),
        (
            {"surrogate": "cispo", "clip_high": 4.0},
            ["-1.5 -1.65 -2.25 -1.05", ".5 .45 .65 .35 2 .5", ".5 .5 .6"],
        ),
        (
            {"surrogate": "dis", "ratio_low": 0.7, "ratio_high": 6.0},
            ["-1.5 -1.65 -5.625 0", ".5 .45 .65 .7 2 0", ".5 .5 .6"],
        ),
        (
            {"surrogate": "dis", "ratio_high": 4.0 - EDGE},
            ["-1.5 -1.65 -5.625 -.525", ".5 .45 .65 .7 0 .2", ".5 .5 .6"],
        ),
        (
            {"surrogate": "k2.5", "ratio_low": 0.75, "ratio_high": 1.35, "log_ratio_penalty": 0.04},
            [
                "-1.5 -1.642375 .105740 -.083986",
                ".5 .441571 .670989 .026918 .110904 -.073303",
                ".5 .5 .614586",
            ],
        ),
        ({"surrogate": "dppo-tv"}, ["-1.5 -1.65 0 -.525", ".5 .45 .65 .7 2 .2", ".5 .5 .6"]),
        ({"surrogate": "gspo", "clip_low": 3e-4, "clip_high": 4e-4}, ["0 0 0 0", ".609341 " * 6, ".531329 " * 3]),
    ],
)
def test_gradient_of_each_token(settings, expected):
    found = coefficients(LossConfig(**settings))
    for have, want in zip(found, expected, strict=True):
        assert have == pytest.approx([float(x) for x in want.split()], abs=1e-6)


def test_gspo_clips_the_ratio_of_a_sequence():
    new, batch, counts = tokens()
    ratio = torch.exp(sequence_means(new - batch.old_logprobs, batch)).detach()
    firsts = [part[0].item() for part in torch.split(ratio, counts)]
    assert firsts == pytest.approx([1.036682, 1.218683, 1.062659, 1.0], abs=1e-6)
    sequence_mean = BatchConfig(aggregation="sequence-mean")
    new, batch, _ = tokens(batch=sequence_mean)
    config = LossConfig(surrogate="gspo", clip_low=3e-4, clip_high=4e-4)
    by_hand = (-1.5 * 1.0004 + 0.5 * (1.218683 + 1.062659 + 1.0)) / 4
    loss, sums = policy_loss(new, None, batch, config)
    assert float(loss.detach()) == pytest.approx(by_hand, abs=1e-6)
    assert sums.clipped == 4


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"correction": "full"}, 0.129762),
        ({"correction": "truncate"}, 0.151667),
        ({"correction": "mask", "correction_low": 0.5 - EDGE, "correction_high": 2.0 + EDGE}, 0.277381),
        ({"correction": "mask", "correction_low": 0.5 - EDGE, "correction_high": 5.0}, 0.120238),
        ({"correction": "truncate", "correction_level": "sequence"}, 0.264286),
    ],
)
def test_corrections(settings, expected):
    new, batch, _ = tokens()
    loss, _ = policy_loss(new, None, batch, LossConfig(old_logprobs="recompute", **settings))
    assert float(loss.detach()) == pytest.approx(expected, abs=1e-6)


def test_each_token_of_decoupled_ppo():
    new, batch, counts = tokens()
    config = LossConfig(old_logprobs="recompute", correction="full")
    losses, _ = SURROGATES["ppo"](new, batch, config)
    found = (losses * correction_weights(batch.old_logprobs, batch.rollout_logprobs, config)).detach()
    t1, t2, t3, t4 = (part.tolist() for part in torch.split(found, counts))
    assert t1 == pytest.approx([-1.5, -1.65, -4.8, -0.525], abs=1e-6)
    assert t2 == pytest.approx([0.5, 0.45, 0.65, 0.8, 2.0, 0.2], abs=1e-6)
    assert t3 == pytest.approx([0.5, 0.5, 0.6], abs=1e-6) and t4 == pytest.approx([0.5] * 7 + [1.5], abs=1e-6)


def test_weights_of_a_sequence_and_effective_sample_size():
    _, batch, counts = tokens()
    log_w = batch.old_logprobs - batch.rollout_logprobs
    products = [torch.exp(part)[0].item() for part in torch.split(sequence_sums(log_w, batch), counts)]
    means = [torch.exp(part)[0].item() for part in torch.split(sequence_means(log_w, batch), counts)]
    assert products == pytest.approx([1.25, 0.8, 1.0, 3.0], abs=1e-6)
    assert means == pytest.approx([1.057371, 0.963492, 1.0, 1.147203], abs=1e-6)
    geometric = LossConfig(old_logprobs="recompute", correction="full", correction_level="geometric")
    assert correction_weights(batch.old_logprobs, batch.rollout_logprobs, geometric, batch)[0].item() == pytest.approx(
        1.057371, abs=1e-6
    )
    w = torch.exp(log_w).clamp(max=2.0)
    assert float(w.sum() ** 2 / (w**2).sum() / len(w)) == pytest.approx(0.878983, abs=1e-6)


def test_stale_failures_are_left_out_and_stale_successes_are_not():
    new, batch, counts = tokens("stale_sequences")
    drift = [part[0].item() for part in torch.split(sequence_means(batch.rollout_logprobs - new, batch), counts)]
    assert drift == pytest.approx([0.474280, 0.002513, 0.693147, 0.693147], abs=1e-6)
    kept = [not part[0].item() for part in torch.split(drifted(new, batch, 0.05), counts)]
    assert kept == [False, True, False, True]
    config = LossConfig(surrogate="dis", drift_bound=0.05)
    loss, sums = policy_loss(new, None, batch, config)
    (gradient,) = torch.autograd.grad(loss, new)
    assert [bool(part.any()) for part in torch.split(gradient, counts)] == kept and sums.clipped == 8


def test_the_fixture_of_four_keeps_all():
    new, batch, counts = tokens()
    drift = [part[0].item() for part in torch.split(sequence_means(batch.rollout_logprobs - new, batch), counts)]
    assert drift == pytest.approx([-0.091811, -0.160580, -0.060774, -0.137327], abs=1e-6)
    assert not drifted(new, batch, 0.05).any()


def test_second_moment_of_the_log_ratio():
    new, batch, counts = tokens()
    squares = ((new - batch.rollout_logprobs) ** 2)[: sum(counts[:3])]
    assert float(squares.mean().detach()) == pytest.approx(0.449695, abs=1e-6)


def test_interpolated_old_policy():
    share = old_share(torch.tensor([5, 7, 8]), old=7, present=8)
    assert share.tolist() == pytest.approx([0.666667, 0.0, 0.0], abs=1e-6)
    sampled, new = torch.log(torch.tensor([0.1])), torch.log(torch.tensor([0.2])).requires_grad_()
    batch = TokenBatch(
        old_logprobs=sampled,
        rollout_logprobs=sampled,
        advantages=torch.ones(1),
        weights=torch.ones(1),
        old_share=share[:1],
    )
    config = LossConfig(old_logprobs="interpolate", correction="full", clip_high=1.0)
    loss, _ = policy_loss(new, None, batch, config)
    old, w, rho = 0.158740, 1.587401, 1.259921
    assert math.exp(math.log(0.1) + 2 / 3 * math.log(2)) == pytest.approx(old, abs=1e-6)
    assert float(loss.detach()) == pytest.approx(-w * rho, abs=1e-5)
    (gradient,) = torch.autograd.grad(loss, new)
    assert float(gradient) == pytest.approx(-w * rho, abs=1e-5)  # the old policy carries no gradient
    with pytest.raises(ConfigError, match="age of each token"):
        policy_loss(new, None, replace(batch, old_share=None), config)


def test_a_rollout_of_two_versions_has_the_ratio_of_each():
    group, content = fixture("two_versions"), read("two_versions")
    (row,) = training_rows([group], {"G/0.0": np.array([1.0])})
    ratios = np.exp(np.array(content["new_logprobs"]) - row.rollout_logprobs[row.loss_mask])
    assert ratios.tolist() == pytest.approx([1.2, 1.2, 0.95, 0.95, 0.95], abs=1e-6)
    assert ratios.prod() == pytest.approx(1.234620, abs=1e-6)
    assert row.policy_versions[row.loss_mask].tolist() == [5, 5, 6, 6, 6]


def test_kl_estimators():
    """Exact expectations over four outcomes: values, and gradients with respect to the logits of p."""
    logits = torch.tensor([0.3, -0.2, 0.9, 0.0], dtype=torch.float64, requires_grad=True)
    log_q = torch.log_softmax(torch.tensor([0.1, 0.5, -0.4, 0.2], dtype=torch.float64), 0)
    log_s = torch.log_softmax(torch.tensor([1.0, -1.0, 0.3, 0.1], dtype=torch.float64), 0)  # another sampler
    log_p = torch.log_softmax(logits, 0)
    p, q, s = log_p.detach().exp(), log_q.exp(), log_s.exp()
    forward = (log_p.exp() * (log_p - log_q)).sum()
    (right,) = torch.autograd.grad(forward, logits, retain_graph=True)
    (reverse,) = torch.autograd.grad(-(q * log_p).sum(), logits, retain_graph=True)

    def gradient(weights, estimate):
        return torch.autograd.grad((weights * estimate).sum(), logits, retain_graph=True)[0]

    value = forward.item()
    assert (p * kl_k1(log_p, log_q)).sum().item() == pytest.approx(value)
    assert (p * kl_k3(log_p, log_q)).sum().item() == pytest.approx(value)
    assert (s * kl_unbiased(log_p, log_q, log_s)).sum().item() == pytest.approx(value)
    assert gradient(p, kl_k1(log_p, log_q)).abs().max() < 1e-12
    assert torch.allclose(gradient(p, kl_k2(log_p, log_q)), right)
    assert torch.allclose(gradient(p, kl_k3(log_p, log_q)), reverse)
    assert torch.allclose(gradient(s, kl_unbiased(log_p, log_q, log_s)), right)
    assert not torch.allclose(gradient(s, kl_k3(log_p, log_q)), right, rtol=0.1)


def test_kl_penalty_and_log_ratio_penalty_are_added():
    new, batch, _ = tokens()
    reference = batch.rollout_logprobs - 0.3
    plain, without = policy_loss(new, None, batch, LossConfig())
    config = LossConfig(kl_coefficient=0.1, kl_estimator="k3")
    loss, sums = policy_loss(new, None, replace(batch, reference_logprobs=reference), config)
    expected = kl_k3(new, reference).detach()
    assert float((loss - plain).detach()) == pytest.approx(0.1 * float(expected.mean()), rel=1e-6)
    assert sums.reference_kl == pytest.approx(float(expected.sum()), rel=1e-6) and without.reference_kl == 0.0
    with pytest.raises(ConfigError, match=r"kl_coefficient=0\.1 needs"):
        policy_loss(new, None, batch, config)
    pulled, _ = policy_loss(new, None, batch, LossConfig(log_ratio_penalty=0.5))
    squares = (new - batch.rollout_logprobs).detach() ** 2
    assert float((pulled - plain).detach()) == pytest.approx(0.5 * float(squares.mean()), rel=1e-6)


def test_limits_of_the_corrections():
    """With the sampler's own policy as the old one, decoupled PPO is PPO; with w below the cap, TIS is decoupled."""
    new, batch, _ = tokens()
    same = replace(batch, old_logprobs=batch.rollout_logprobs)
    plain, _ = policy_loss(new, None, same, LossConfig())
    decoupled, _ = policy_loss(new, None, same, LossConfig(old_logprobs="recompute", correction="full"))
    assert torch.equal(plain, decoupled)
    full, _ = policy_loss(new, None, batch, LossConfig(old_logprobs="recompute", correction="full"))
    capped, _ = policy_loss(
        new, None, batch, LossConfig(old_logprobs="recompute", correction="truncate", correction_high=3.1)
    )
    assert torch.equal(full, capped)


@pytest.mark.parametrize("surrogate", sorted(SURROGATES))
def test_on_policy_every_surrogate_is_the_policy_gradient(surrogate):
    new, batch, _ = tokens()
    same = replace(batch, old_logprobs=new.detach(), rollout_logprobs=new.detach())
    losses, removed = SURROGATES[surrogate](new, same, LossConfig(surrogate=surrogate))
    (gradient,) = torch.autograd.grad(losses.sum(), new)
    assert gradient.tolist() == pytest.approx((-same.advantages).tolist(), abs=1e-9)
    assert not removed.any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"surrogate": "dis", "clip_low": 0.1}, "clip_low=0.1 has no effect with surrogate='dis'"),
        ({"surrogate": "cispo", "dual_clip": 3.0}, "dual_clip=3.0 has no effect"),
        ({"ratio_high": 5.0}, "ratio_high=5.0 has no effect with surrogate='ppo'"),
        ({"surrogate": "dis", "old_logprobs": "recompute"}, "whose ratio is to the sampler"),
        ({"correction_level": "sequence"}, "has no effect with correction"),
        ({"correction_high": 3.0}, "correction_high=3.0 has no effect with correction='none'"),
        ({"kl_estimator": "k2"}, "kl_estimator='k2' has no effect"),
    ],
)
def test_settings_that_cannot_act_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        LossConfig(**settings)


def test_whole_sequences_need_their_tokens():
    new, batch, _ = tokens()
    with pytest.raises(ConfigError, match="whole sequences"):
        policy_loss(new, None, replace(batch, sequences=None), LossConfig(surrogate="gspo"))
