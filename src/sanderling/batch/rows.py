"""Groups and their credit -> training rows. From here on there are token arrays only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sanderling.batch.config import BatchConfig
from sanderling.batch.weights import token_weights
from sanderling.credit.protocol import AcrossGroups, Credit, CreditEstimator
from sanderling.errors import InvariantViolation
from sanderling.types import Group, TrainingRow, Trajectory


def assign_credit(groups: Sequence[Group], estimator: CreditEstimator) -> dict[str, NDArray[np.float64]]:
    """Call the estimator on each group, and across them where it asks for that; return all credit by trajectory id."""
    credit: dict[str, NDArray[np.float64]] = {}
    for group in groups:
        credit.update(estimator(group))
    return dict(estimator.across_groups(groups, credit)) if isinstance(estimator, AcrossGroups) else credit


def training_rows(groups: Sequence[Group], credit: Credit, config: BatchConfig | None = None) -> list[TrainingRow]:
    """Return one row per trajectory that is trained, in the order of the groups.

    A token is trained when it belongs to an action of a member whose gradient is FULL, in a turn of its own (turns
    shared with a parent branch are trained there). It gets its own advantage or that of its turn. Prompt and
    observations stand in `token_ids` only: mask, log-probabilities, versions, advantages and weights are 0 there,
    because only action tokens are ever written into those arrays.

    Raises:
        InvariantViolation: the credit of a trajectory is missing, has the wrong length or isn't finite, or its prompt
            is empty (the first token of a row has no prediction).
    """
    weights = token_weights(groups, credit, config or BatchConfig())
    return [
        _row(member.trajectory, token_advantages(member.trajectory, credit), weights[member.trajectory.id])
        for group in groups
        for member in group.members
        if member.trajectory.id in weights
    ]


def token_advantages(trajectory: Trajectory, credit: Credit) -> NDArray[np.float64]:
    """Return the advantages of all action tokens of a trajectory, (n_action_tokens,).

    Raises:
        InvariantViolation: there is no credit, it is neither one number per turn nor one per action token, or not finite.
    """
    advantages = credit.get(trajectory.id)
    if advantages is None:
        raise InvariantViolation(f"trajectory {trajectory.id!r} is trained, but the estimator gave it no credit")
    counts = [len(turn.action.token_ids) for turn in trajectory.turns]
    if advantages.shape not in ((len(counts),), (sum(counts),)):
        raise InvariantViolation(
            f"trajectory {trajectory.id!r} has {len(counts)} turns of {sum(counts)} action tokens, its credit has shape "
            f"{advantages.shape}; an estimator returns one advantage per turn, or one per action token"
        )
    if not np.isfinite(advantages).all():
        raise InvariantViolation(f"trajectory {trajectory.id!r} has advantages {advantages}; expected finite numbers")
    return np.repeat(advantages, counts) if advantages.shape == (len(counts),) else advantages


def _row(trajectory: Trajectory, advantages: NDArray[np.float64], weight: float) -> TrainingRow:
    if len(trajectory.prompt_ids) == 0:
        raise InvariantViolation(
            f"trajectory {trajectory.id!r} has an empty prompt; its first action token can't be trained"
        )
    token_ids = trajectory.token_ids()
    length = len(token_ids)
    row = TrainingRow(
        trajectory_id=trajectory.id,
        token_ids=token_ids,
        loss_mask=np.zeros(length, dtype=np.bool_),
        turn_of_token=np.full(length, -1, dtype=np.int32),
        rollout_logprobs=np.zeros(length, dtype=np.float32),
        policy_versions=np.zeros(length, dtype=np.int32),
        advantages=np.zeros(length, dtype=np.float32),
        weights=np.zeros(length, dtype=np.float32),
    )
    start, done = len(trajectory.prompt_ids), 0
    for index, turn in enumerate(trajectory.turns):
        action = slice(start, start + len(turn.action.token_ids))
        start = action.stop + len(turn.observation.token_ids)
        row.turn_of_token[action.start : start] = index
        own = slice(done, done + len(turn.action.token_ids))
        done = own.stop
        if index < (trajectory.forked_at or 0):
            continue
        row.loss_mask[action] = True
        row.rollout_logprobs[action] = turn.action.rollout_logprobs
        row.policy_versions[action] = turn.action.policy_versions
        row.advantages[action] = advantages[own]
        row.weights[action] = weight
    return row
