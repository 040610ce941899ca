"""The gradient doesn't depend on how the batch is cut, ordered or padded."""

import numpy as np
import pytest
import torch
from learning_task import sample_group

from sanderling.batch import assign_credit, training_rows
from sanderling.credit import Grpo
from sanderling.learn.config import BatchConfig, LearnerConfig, LossConfig, OptimizerConfig
from sanderling.learn.learner import Learner
from sanderling.testing.models import tiny_llama

AGGREGATIONS = [
    {"aggregation": "token-mean"},
    {"aggregation": "sequence-mean"},
    {"aggregation": "sequence-sum"},
    {"aggregation": "constant", "constant_tokens": 12},
]


def groups():
    """Eight rollouts of different lengths, sampled by older weights, so that ratios differ from 1."""
    sampler, generator = tiny_llama(seed=2), torch.Generator().manual_seed(5)
    sizes = [(1, 1), (2, 3), (3, 2), (4, 3)]
    return [
        sample_group(sampler, f"g{i}", size=2, turns=t, action_tokens=a, wanted=9 + i, generator=generator)
        for i, (t, a) in enumerate(sizes)
    ]


def gradient(rows, budget, loss=None, **batch):
    """The gradient of one step: without clipping, AdamW's first mean is a tenth of it."""
    config = LearnerConfig(
        optimizer=OptimizerConfig(max_grad_norm=None),
        batch=BatchConfig(micro_batch_tokens=budget, **batch),
        loss=loss or LossConfig(),
    )
    learner = Learner(tiny_llama(seed=1), config)
    report = learner.step(rows)
    state = learner.state()["optimizer"]["state"]
    return torch.cat([state[k]["exp_avg"].flatten() for k in sorted(state)]) * 10, report


def credit_of(found):
    """Advantages that differ per rollout and turn, so that no symmetry hides a mistake."""
    noise = np.random.default_rng(0)
    return {name: a + noise.normal(size=len(a)) for name, a in assign_credit(found, Grpo()).items()}


@pytest.mark.parametrize("batch", AGGREGATIONS)
def test_one_two_or_eight_micro_batches_permuted_or_padded(batch):
    found = groups()
    rows = training_rows(found, credit_of(found), BatchConfig(**batch))
    whole, report = gradient(rows, 10_000, **batch)
    assert report.micro_batches == 1 and report.padding_ratio > 1.2 and whole.norm() > 0.05
    scale = max(1.0, float(whole.norm()))
    for budget, order in (
        (1, range(8)),
        (100, range(8)),
        (10_000, (3, 1, 7, 5, 0, 2, 6, 4)),
        (60, (3, 1, 7, 5, 0, 2, 6, 4)),
    ):
        other, report = gradient([rows[i] for i in order], budget, **batch)
        assert torch.abs(other - whole).max() < 1e-6 * scale
        assert report.micro_batches == {1: 8, 100: 2, 60: 3, 10_000: 1}[budget]


def test_entropy_bonus_is_invariant_too():
    found = groups()
    rows = training_rows(found, credit_of(found))
    loss = LossConfig(entropy_coefficient=0.1, dual_clip=3.0, old_logprobs="recompute", correction="truncate")
    whole, _ = gradient(rows, 10_000, loss)
    one_by_one, _ = gradient(rows[::-1], 1, loss)
    assert torch.abs(one_by_one - whole).max() < 1e-6 and whole.norm() > 0.01


@pytest.mark.parametrize(
    "settings",
    [
        {"surrogate": "gspo", "clip_low": 0.1, "clip_high": 0.1, "drift_bound": 0.1, "kl_coefficient": 0.1},
        {"surrogate": "k2.5", "log_ratio_penalty": 0.1},
        {"old_logprobs": "recompute", "correction": "truncate", "correction_level": "sequence"},
        {"old_logprobs": "interpolate", "correction": "full"},
    ],
)
def test_losses_of_whole_sequences_are_invariant_too(settings):
    found = groups()
    rows = training_rows(found, credit_of(found))
    loss = LossConfig(**settings)
    whole, _ = gradient(rows, 10_000, loss)
    one_by_one, _ = gradient(rows[::-1], 1, loss)
    assert torch.abs(one_by_one - whole).max() < 1e-6 and whole.norm() > 0.01


def test_a_reference_costs_nothing_before_the_first_update_and_pulls_after_it():
    found = groups()
    rows = training_rows(found, credit_of(found))
    config = LearnerConfig(loss=LossConfig(kl_coefficient=10.0), optimizer=OptimizerConfig(learning_rate=1e-2))
    learner = Learner(tiny_llama(seed=1), config)
    first = learner.step(rows).metrics["kl_to_reference"]
    second = learner.step(rows).metrics["kl_to_reference"]
    assert first == pytest.approx(0.0, abs=1e-6) and second > 1e-4


def test_observation_text_has_no_say_in_the_loss_of_earlier_tokens():
    """The ids after the last trained token change nothing; those before change the context, and nothing is trained on
    them."""
    found = groups()
    rows = training_rows(found, credit_of(found))
    whole, _ = gradient(rows, 10_000)
    for row in rows:
        row.token_ids[np.flatnonzero(row.loss_mask)[-1] + 1 :] = 0
        off = row.loss_mask == 0
        assert not row.weights[off].any() and not row.advantages[off].any()
    other, _ = gradient(rows, 10_000)
    assert torch.equal(whole, other)
