"""The masking ablation: what it adds to a row, and that nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from learning_task import OBSERVATION, sample_groups

from sanderling.batch import BatchConfig, assign_credit, training_rows
from sanderling.credit import Rloo
from sanderling.learn.config import LearnerConfig
from sanderling.learn.learner import Learner
from sanderling.learn.observations import with_observations
from sanderling.testing.models import tiny_llama


@pytest.fixture(scope="module")
def step():
    """Return a learner and the rows of two groups that its model sampled."""
    learner = Learner(tiny_llama(seed=1), LearnerConfig())
    groups = sample_groups(learner.model, ["a", "b"], generator=torch.Generator().manual_seed(1))
    return learner, training_rows(groups, assign_credit(groups, Rloo()), BatchConfig())


def test_only_the_observations_join(step):
    learner, rows = step
    for before, after in zip(rows, with_observations(rows, learner.logprobs, 0), strict=True):
        added = after.loss_mask & ~before.loss_mask
        assert added.sum() == 2 * len(OBSERVATION)
        assert not after.loss_mask[before.turn_of_token < 0].any()
        for name in ("advantages", "weights", "rollout_logprobs", "policy_versions", "loss_mask"):
            assert np.array_equal(getattr(after, name)[before.loss_mask], getattr(before, name)[before.loss_mask])
        for turn in (0, 1):
            action = before.loss_mask & (before.turn_of_token == turn)
            observed = added & (before.turn_of_token == turn)
            assert set(after.advantages[observed]) == set(before.advantages[action])
            assert set(after.weights[observed]) == set(before.weights[action])


def test_their_ratio_begins_at_one(step):
    learner, rows = step
    opened = with_observations(rows, learner.logprobs, 0)
    for row, scored in zip(opened, learner.logprobs(opened), strict=True):
        assert row.rollout_logprobs == pytest.approx(scored, abs=1e-5)


def test_the_update_is_another_one(step):
    _, rows = step
    moved = []
    for opened in (False, True):
        learner = Learner(tiny_llama(seed=1), LearnerConfig())
        learner.step(with_observations(rows, learner.logprobs, 0) if opened else rows)
        moved.append(torch.cat([tensor.flatten() for tensor in learner.weights().values()]))
    assert not torch.allclose(moved[0], moved[1])
