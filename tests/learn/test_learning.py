"""It learns: the share of wanted tokens goes from chance to most of them within some dozens of steps."""

import numpy as np
import pytest
import torch
from learning_task import rows_of, sample_groups

from sanderling.credit import load_estimator
from sanderling.learn.config import BatchConfig, LearnerConfig, OptimizerConfig
from sanderling.learn.learner import Learner
from sanderling.testing.models import tiny_llama


def learn(estimator, steps=40, **settings):
    learner = Learner(tiny_llama(seed=0), LearnerConfig(optimizer=OptimizerConfig(learning_rate=4e-3), **settings))
    generator, rewards = torch.Generator().manual_seed(0), []
    for _ in range(steps):
        groups = sample_groups(learner.model, ["a", "b", "c", "d"], generator=generator)
        rewards.append(np.mean([g.rewards().mean() for g in groups]))
        learner.step(rows_of(groups, load_estimator(estimator), learner.config.batch))
    return np.mean(rewards[:3]), np.mean(rewards[-5:])


@pytest.mark.parametrize("estimator", ["grpo", "mean", "rloo"])
def test_every_estimator_learns(estimator):
    first, last = learn(estimator)
    assert first < 0.25 and last > 0.8


@pytest.mark.parametrize(
    "batch",
    [
        BatchConfig(aggregation="sequence-mean"),
        BatchConfig(dead_groups="drop", micro_batch_tokens=40),
    ],
)
def test_every_aggregation_learns(batch):
    first, last = learn("grpo", batch=batch)
    assert first < 0.25 and last > 0.8


def test_two_epochs_learn():
    first, last = learn("grpo", steps=25, epochs_per_step=2)
    assert first < 0.25 and last > 0.8
