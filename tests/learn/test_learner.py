"""One step: what moves, what doesn't, and what is reported."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from learning_task import rows_of, sample_group

from sanderling.credit import Grpo
from sanderling.errors import LearnerError
from sanderling.learn.config import BatchConfig, LearnerConfig, LossConfig, OptimizerConfig
from sanderling.learn.learner import Learner
from sanderling.testing.models import tiny_llama


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def weights_of(learner):
    return {name: tensor.clone() for name, tensor in learner.weights().items()}


def unchanged(learner, before):
    return all(torch.equal(before[name], tensor) for name, tensor in learner.weights().items())


@pytest.fixture
def model():
    return tiny_llama(seed=1)


@pytest.fixture
def rows(model):
    return rows_of([sample_group(model, f"g{i}", generator=generator(i)) for i in range(2)], Grpo())


def test_a_step_moves_the_policy_towards_what_paid(model, rows):
    learner = Learner(model, LearnerConfig(optimizer=OptimizerConfig(learning_rate=1e-3)))
    before = learner.logprobs(rows)
    report = learner.step(rows)
    moved = [after - old for after, old in zip(learner.logprobs(rows), before, strict=True)]
    assert sum(float((m * row.advantages).sum()) for m, row in zip(moved, rows, strict=True)) > 0
    assert learner.policy_version == 1 and report.metrics["updates"] == 1
    assert report.metrics["rows_trained"] + report.metrics["rows_skipped_zero_advantage"] == len(rows)
    assert report.metrics["tokens_trained"] == 4 * report.metrics["rows_trained"]
    assert report.metrics["loss"] == pytest.approx(0.0, abs=1e-6)  # on policy, advantages sum to zero
    assert report.metrics["ratio_max"] == pytest.approx(1.0, abs=1e-5)
    assert report.metrics["approx_kl"] == pytest.approx(0.0, abs=1e-9)
    assert 0.0 < report.metrics["entropy"] < np.log(16) and report.metrics["grad_norm"] > 0


def test_logprobs_agree_with_the_sampler(model, rows):
    for row, found in zip(rows, Learner(model).logprobs(rows), strict=True):
        assert np.abs(found - row.rollout_logprobs).max() < 2e-5
        assert not found[~row.loss_mask].any()


def test_logprobs_at_the_samplers_temperature(model):
    made = rows_of([sample_group(model, "g", temperature=0.6, generator=generator())], Grpo())
    gaps = {}
    for temperature in (0.6, 1.0):
        found = Learner(model, LearnerConfig(temperature=temperature)).logprobs(made)
        gaps[temperature] = max(np.abs(a - row.rollout_logprobs).max() for a, row in zip(found, made, strict=True))
    assert gaps[0.6] < 2e-5 and gaps[1.0] > 0.05


def test_clip_fraction_and_kl_of_a_stale_batch(model, rows):
    stale = [replace(row, rollout_logprobs=row.rollout_logprobs - np.float32(0.3) * row.loss_mask) for row in rows]
    report = Learner(model).step(stale)
    up = np.concatenate([r.advantages[r.loss_mask] for r in stale if r.advantages.any()]) > 0
    assert report.metrics["clip_fraction"] == pytest.approx(up.mean())  # ratio e^.3 = 1.35 > 1.28
    assert report.metrics["ratio_mean"] == pytest.approx(np.exp(0.3), rel=1e-4)
    assert report.metrics["approx_kl"] == pytest.approx(np.exp(0.3) - 1.3, rel=1e-3)


def test_recomputed_old_logprobs_centre_the_clip(model, rows):
    stale = [replace(row, rollout_logprobs=row.rollout_logprobs - np.float32(0.3) * row.loss_mask) for row in rows]
    report = Learner(model, LearnerConfig(loss=LossConfig(old_logprobs="recompute"))).step(stale)
    assert report.metrics["clip_fraction"] == 0.0
    assert report.metrics["ratio_mean"] == pytest.approx(np.exp(0.3), rel=1e-4)


@pytest.mark.parametrize("make", ["no rows", "dead rows", "masked rows"])
def test_a_step_without_a_gradient_changes_nothing(model, rows, make):
    learner = Learner(model, LearnerConfig(optimizer=OptimizerConfig(weight_decay=0.1, warmup_updates=5)))
    learner.step(rows)  # so that there is momentum to misuse
    before, rate = weights_of(learner), learner.step([]).metrics["learning_rate"]
    nothing = {
        "no rows": [],
        "dead rows": [replace(r, advantages=np.zeros_like(r.advantages)) for r in rows],
        "masked rows": [replace(r, loss_mask=np.zeros_like(r.loss_mask)) for r in rows],
    }[make]
    report = learner.step(nothing)
    assert unchanged(learner, before) and learner.policy_version == 1
    assert report.metrics["updates"] == 0 and report.metrics["learning_rate"] == rate
    assert report.metrics["rows_skipped_zero_advantage"] == (len(rows) if make == "dead rows" else 0)
    assert "loss" not in report.metrics and report.padding_ratio == 1.0


def test_skipping_dead_rows_changes_no_gradient(rows):
    """An entropy bonus too small to matter keeps all rows in; the update is the same as without the dead ones."""
    dead = [replace(r, trajectory_id=r.trajectory_id + "x", advantages=np.zeros_like(r.advantages)) for r in rows]
    found = []
    for coefficient in (0.0, 1e-20):
        learner = Learner(tiny_llama(seed=1).double(), LearnerConfig(loss=LossConfig(entropy_coefficient=coefficient)))
        report = learner.step([*rows, *dead])
        found.append((weights_of(learner), report.metrics["rows_trained"]))
    assert found[1][1] > found[0][1]
    assert all(torch.allclose(found[0][0][name], found[1][0][name], atol=1e-12) for name in found[0][0])


@pytest.mark.parametrize(
    ("column", "value"),
    [("advantages", np.nan), ("rollout_logprobs", np.nan), ("rollout_logprobs", -np.inf), ("advantages", np.inf)],
)
def test_a_loss_that_is_not_finite_changes_nothing(model, rows, column, value):
    learner = Learner(model)
    learner.step(rows)
    before, state = weights_of(learner), learner.state()
    spoiled = getattr(rows[3], column).copy()
    spoiled[np.flatnonzero(rows[3].loss_mask)[0]] = value
    with pytest.raises(LearnerError, match="no update was made"):
        learner.step([*rows[:3], replace(rows[3], **{column: spoiled}), *rows[4:]])
    assert unchanged(learner, before) and learner.policy_version == state["policy_version"]
    assert all(p.grad is None for p in learner.model.parameters())
    assert learner.step(rows).metrics["updates"] == 1


def test_the_error_names_the_trajectory(model, rows):
    spoiled = replace(rows[3], advantages=rows[3].advantages * np.float32(np.nan))
    with pytest.raises(LearnerError, match=rows[3].trajectory_id):
        Learner(model, LearnerConfig(batch=BatchConfig(micro_batch_tokens=1))).step([*rows[:3], spoiled])


def test_gradients_are_clipped_and_reported_before(model, rows):
    free = Learner(tiny_llama(seed=1), LearnerConfig(optimizer=OptimizerConfig(max_grad_norm=None))).step(rows)
    clipped = Learner(model, LearnerConfig(optimizer=OptimizerConfig(max_grad_norm=1e-3)))
    report = clipped.step(rows)
    assert report.metrics["grad_norm"] == pytest.approx(free.metrics["grad_norm"], rel=1e-5)
    second = sum(float(v["exp_avg"].square().sum()) for v in clipped.state()["optimizer"]["state"].values())
    # beta1 is .9, so after one update the mean holds a tenth of the clipped gradient
    assert second**0.5 == pytest.approx(0.1 * 1e-3, rel=1e-3)


def test_warm_up(model, rows):
    learner = Learner(model, LearnerConfig(optimizer=OptimizerConfig(learning_rate=1e-4, warmup_updates=4)))
    rates = [learner.step(rows).metrics["learning_rate"] for _ in range(6)]
    assert rates == pytest.approx([0.25e-4, 0.5e-4, 0.75e-4, 1e-4, 1e-4, 1e-4])


def test_epochs_and_minibatches(model, rows):
    settings = {"epochs_per_step": 2, "minibatches_per_step": 3, "optimizer": OptimizerConfig(learning_rate=1e-4)}
    learner = Learner(model, LearnerConfig(**settings))
    report = learner.step(rows)
    assert learner.config.updates_per_step == 6 == report.metrics["updates"] == learner.policy_version
    assert report.metrics["tokens_trained"] == 4 * report.metrics["rows_trained"]
    assert report.metrics["ratio_max"] > 1.0001  # later updates are off policy
    again = Learner(tiny_llama(seed=1), LearnerConfig(**settings))
    again.step(list(reversed(rows))[::-1])
    assert unchanged(again, weights_of(learner))


def test_minibatches_of_one_step_add_up_to_the_whole(rows):
    """With a vanishing learning rate the mean of the minibatches' losses is the whole batch's loss, and so its
    gradient."""
    stale = [replace(r, rollout_logprobs=r.rollout_logprobs - np.float32(0.1) * r.loss_mask) for r in rows]
    still = OptimizerConfig(learning_rate=1e-12, max_grad_norm=None)
    whole = Learner(tiny_llama(seed=1), LearnerConfig(optimizer=still)).step(stale).metrics["loss"]
    parts = Learner(tiny_llama(seed=1), LearnerConfig(optimizer=still, minibatches_per_step=4)).step(stale)
    assert parts.metrics["loss"] == pytest.approx(whole, abs=1e-6) and parts.metrics["updates"] == 4


def test_bfloat16_arithmetic_keeps_float32_weights(model, rows):
    learner = Learner(model, LearnerConfig(compute_dtype="bfloat16"))
    report = learner.step(rows)
    assert {t.dtype for t in learner.weights().values()} == {torch.float32}
    assert report.metrics["ratio_max"] == pytest.approx(1.0, abs=0.1)


def test_weights_have_hugging_face_names(model):
    exported = Learner(model).weights()
    assert exported.keys() == model.state_dict().keys() and "model.layers.0.self_attn.q_proj.weight" in exported
    assert not any(t.requires_grad for t in exported.values())
