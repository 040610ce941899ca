"""p(tau) = .5 * .9 * .2 * 1 = .09, and the gradient sees only .5 and .2.

A model of four logits, one per position, gives the policy's probability of each token; the observation's own
probability under the policy is .9 as well, so that a leak of it would show.
"""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from sanderling.batch import BatchConfig, training_rows
from sanderling.loss.config import LossConfig
from sanderling.loss.logprobs import token_scores
from sanderling.loss.policy import TokenBatch, policy_loss
from sanderling.testing.group_files import parse_group

PROBABILITIES = {"a1": 0.5, "o1": 0.9, "a2": 0.2}  # of token 1 at each position


class OneLogitPerPosition(nn.Module):
    """The next token is 1 with probability sigmoid(theta[t])."""

    def __init__(self):
        super().__init__()
        self.theta = nn.Parameter(torch.tensor([math.log(p / (1 - p)) for p in PROBABILITIES.values()]).double())

    def forward(self, input_ids, use_cache):
        return SimpleNamespace(logits=torch.stack([torch.zeros(3).double(), self.theta], dim=-1)[None])


def example_row(advantage):
    action = {"token_ids": [1], "policy_versions": [0]}
    group = parse_group(
        {
            "id": "g",
            "task_id": "t",
            "members": [
                {
                    "id": "g/0.0",
                    "prompt_ids": [0],
                    "stop": "submitted",
                    "reward": 1.0,
                    "turns": [
                        {"action": action | {"rollout_logprobs": [math.log(0.5)]}, "observation": {"token_ids": [1]}},
                        {"action": action | {"rollout_logprobs": [math.log(0.2)]}, "observation": {"token_ids": []}},
                    ],
                }
            ],
        }
    )
    credit = {"g/0.0": torch.full((2,), advantage).double().numpy()}
    return training_rows([group], credit, BatchConfig(aggregation="sequence-sum"))[0]


@pytest.fixture
def model():
    return OneLogitPerPosition()


def test_log_probability_of_the_policy_part(model):
    row = example_row(0.75)
    scores = token_scores(model, torch.tensor(row.token_ids)[None].long(), torch.tensor(row.loss_mask)[None])
    assert scores.logprobs.tolist() == pytest.approx([math.log(0.5), math.log(0.2)])
    policy, environment = float(scores.logprobs.detach().sum()), math.log(0.9) + math.log(1.0)
    assert policy == pytest.approx(-2.302585, abs=1e-6)
    assert environment == pytest.approx(-0.105361, abs=1e-6)
    assert math.exp(policy + environment) == pytest.approx(0.09)
    (gradient,) = torch.autograd.grad(scores.logprobs.sum(), model.theta)
    assert gradient.tolist() == pytest.approx([0.5, 0.0, 0.8])


def test_gradient_of_the_loss(model):
    row = example_row(0.75)
    mask = row.loss_mask
    scores = token_scores(model, torch.tensor(row.token_ids)[None].long(), torch.tensor(mask)[None])
    rollout = torch.tensor(row.rollout_logprobs[mask]).double()
    batch = TokenBatch(
        old_logprobs=rollout,
        rollout_logprobs=rollout,
        advantages=torch.tensor(row.advantages[mask]),
        weights=torch.tensor(row.weights[mask]),
    )
    loss, _ = policy_loss(scores.logprobs, None, batch, LossConfig())
    (gradient,) = torch.autograd.grad(loss, model.theta)
    assert (-gradient).tolist() == pytest.approx([0.375, 0.0, 0.6], abs=1e-6)  # the leak would be .75 * (1 - .9) = .075
