"""The masking ablation: a gradient on what the world wrote, to see what leaving it out is worth.

The rows of a step are made and checked as ever; then each observation of a trained turn joins the loss with the advantage and
the weight of the action before it. Nobody sampled its tokens: the probability that the ratio is taken to is the trainer's own
at the start of the step, so that the ratio begins at 1 as it does for actions. The gradient of the actions stays what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from sanderling.types import Float32Array, TrainingRow

Score = Callable[[Sequence[TrainingRow]], Sequence[Float32Array]]


def with_observations(rows: Sequence[TrainingRow], score: Score, policy_version: int) -> list[TrainingRow]:
    """Return the rows with their observations trained.

    Args:
        rows: as `batch.training_rows` makes them, with action tokens in the mask.
        score: log-probabilities of a row's masked tokens under the present weights, as `Learner.logprobs` has them.
        policy_version: of those weights.
    """
    open_rows = [_unmasked(row, policy_version) for row in rows]
    scored = score([row for row in open_rows if row.loss_mask.any()])
    found = iter(scored)
    return [
        _with_logprobs(row, before, next(found)) if row.loss_mask.any() else row
        for row, before in zip(open_rows, rows, strict=True)
    ]


def _unmasked(row: TrainingRow, policy_version: int) -> TrainingRow:
    """Let every token behind the first trained action of a turn have what that turn's last action token has."""
    mask = row.loss_mask.copy()
    advantages, weights, versions = row.advantages.copy(), row.weights.copy(), row.policy_versions.copy()
    for turn in np.unique(row.turn_of_token[row.loss_mask]):
        places = np.flatnonzero(row.turn_of_token == turn)
        last = places[row.loss_mask[places]][-1]
        observed = places[places > last]
        mask[observed] = True
        advantages[observed], weights[observed], versions[observed] = (
            row.advantages[last],
            row.weights[last],
            policy_version,
        )
    return replace(row, loss_mask=mask, advantages=advantages, weights=weights, policy_versions=versions)


def _with_logprobs(row: TrainingRow, before: TrainingRow, logprobs: Float32Array) -> TrainingRow:
    return replace(row, rollout_logprobs=np.where(before.loss_mask, before.rollout_logprobs, logprobs))
