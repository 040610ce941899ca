"""Learners of one process and of several on the same policy and rows."""

import copy

import torch

from sanderling.learn.config import BatchConfig, LearnerConfig, LossConfig, OptimizerConfig
from sanderling.learn.learner import Learner
from sanderling.learn.rank_messages import ModelSource


def learner_of(folder, processes, *, layout="padded", loss=None, **settings):
    """Every process computes with one thread, so that a sum is rounded alike wherever it is made."""
    config = LearnerConfig(
        optimizer=OptimizerConfig(learning_rate=1e-3, max_grad_norm=None),
        batch=BatchConfig(layout=layout),
        loss=loss or LossConfig(),
        processes=processes,
        threads=processes,
        **settings,
    )
    source = ModelSource(folder=folder)  # in the dtype of its weights
    return Learner(source.load(), config, source=source)


def gradient_of(learner):
    """The gradient of the first update, (P,): without clipping, AdamW's first mean is a tenth of it."""
    state = learner.state()["optimizer"]["state"]
    return torch.cat([state[k]["exp_avg"].flatten() for k in sorted(state)]) * 10


def weights_of(learner):
    return torch.cat([tensor.detach().flatten() for tensor in learner.weights().values()]).clone()


def standing(learner):
    """What a checkpoint would hold."""
    return copy.deepcopy((learner.state(), {name: t.detach().clone() for name, t in learner.weights().items()}))


def reset(learner, held):
    state, weights = copy.deepcopy(held)
    learner.load_state(state, weights)
