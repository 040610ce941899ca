"""Before anything is learnt: sampler and trainer must give the same tokens the same log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sanderling.engine.agreement import Agreement, OnMismatch, Sample, check_at_startup
from sanderling.learn.learner import Learner
from sanderling.rollout.episode import Stage
from sanderling.types import Task, TrainingRow


async def check_startup(
    stage: Stage, learner: Learner, tasks: Sequence[Task], *, tolerance: float, worst: float, on_mismatch: OnMismatch
) -> Agreement:
    """Sample the first action of a few tasks and score it with the trainer, under the same weights.

    Raises:
        ConfigError: they disagree by more than `tolerance` nats on average, or more than `worst` times that on a token,
            and `on_mismatch` is REFUSE.
        EngineError: the engine failed.
    """
    contexts = [stage.codec.encode_prompt(stage.environment.harness.prompt(task)) for task in tasks]
    limit = min(task.limits.max_action_tokens for task in tasks)
    params = replace(stage.sampling, max_tokens=limit, stop_token_ids=stage.codec.stop_token_ids)

    def score(samples: Sequence[Sample]) -> list[NDArray[np.float32]]:
        rows = [_row(sample) for sample in samples]
        return [logprobs[row.loss_mask] for row, logprobs in zip(rows, learner.logprobs(rows), strict=True)]

    return await check_at_startup(
        stage.engine, contexts, params, score, on_mismatch=on_mismatch, tolerance=tolerance, worst=worst
    )


def _row(sample: Sample) -> TrainingRow:
    prompt, action = len(sample.context_ids), len(sample.action.token_ids)
    mask = np.arange(prompt + action) >= prompt
    nothing = np.zeros(prompt + action, dtype=np.float32)
    return TrainingRow(
        trajectory_id="start-up check",
        token_ids=np.concatenate([sample.context_ids, sample.action.token_ids]),
        loss_mask=mask,
        turn_of_token=np.where(mask, 0, -1).astype(np.int32),
        rollout_logprobs=nothing,
        policy_versions=np.zeros(prompt + action, dtype=np.int32),
        advantages=nothing,
        weights=nothing,
    )
