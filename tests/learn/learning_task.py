"""Rollouts of a tiny model on a task whose answer is one token: enough to see a learner learn."""

import numpy as np
import torch

from sanderling.batch import assign_credit, training_rows
from sanderling.testing import records
from sanderling.types import Action, Group, Observation, Trajectory, Turn

PROMPT = np.array([2, 3], dtype=np.int32)
OBSERVATION = np.array([1, 9, 1], dtype=np.int32)


def sample_group(model, group_id, **settings):
    """Sample one group; see `sample_groups`."""
    return sample_groups(model, [group_id], **settings)[0]


@torch.no_grad()
def sample_groups(model, group_ids, *, wanted=7, size=8, turns=2, action_tokens=2, temperature=1.0, generator=None):
    """Sample `size` episodes per group; the reward is the share of action tokens that equal `wanted`."""
    context = torch.tensor(PROMPT).long().repeat(size * len(group_ids), 1)
    observed = torch.tensor(OBSERVATION).long().repeat(size * len(group_ids), 1)
    actions, logprobs = [], []
    for _ in range(turns):
        for _ in range(action_tokens):
            log_softmax = torch.log_softmax(model(input_ids=context).logits[:, -1] / temperature, dim=-1)
            drawn = torch.multinomial(log_softmax.exp(), 1, generator=generator)
            actions.append(drawn)
            logprobs.append(log_softmax.gather(1, drawn))
            context = torch.cat([context, drawn], dim=1)
        context = torch.cat([context, observed], dim=1)
    shape = (len(group_ids), size, turns, action_tokens)
    ids, scores = torch.cat(actions, 1).view(shape).numpy(), torch.cat(logprobs, 1).view(shape).float().numpy()
    groups = []
    for g, group_id in enumerate(group_ids):
        members = tuple(
            records.member(
                _trajectory(f"{group_id}/{i}.0", ids[g, i], scores[g, i]), float((ids[g, i] == wanted).mean())
            )
            for i in range(size)
        )
        groups.append(Group(id=group_id, task_id="toy/train/one", members=members))
    return groups


def _trajectory(name, ids, scores):
    turns = [
        Turn(
            action=Action(
                token_ids=action.astype(np.int32),
                rollout_logprobs=logprobs,
                policy_versions=np.zeros(len(action), dtype=np.int32),
                text="",
                finish_reason="stop",
            ),
            observation=Observation(token_ids=OBSERVATION, text=""),
        )
        for action, logprobs in zip(ids, scores, strict=True)
    ]
    plain = records.trajectory(turns, id=name)
    return Trajectory(
        id=name,
        task_id=plain.task_id,
        group_id=plain.group_id,
        attempt=0,
        prompt_ids=PROMPT,
        turns=tuple(turns),
        stop=plain.stop,
    )


def rows_of(groups, estimator, config=None):
    return training_rows(groups, assign_credit(groups, estimator), config)
