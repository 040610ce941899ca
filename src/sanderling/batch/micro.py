"""Rows -> padded micro-batches of bounded size. Sorting by length keeps padding low; no cut changes the loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sanderling.types import BoolArray, Float32Array, Int32Array, TrainingRow


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """Rows padded on the right to one length: all arrays are (B, L), padding is 0 in every one of them.

    Rows end at their last trained token, because nothing after it takes part in the loss of a causal model.
    """

    trajectory_ids: tuple[str, ...]  # (B,)
    row_indices: tuple[int, ...]  # (B,) place of each row in the list that was cut
    lengths: tuple[int, ...]  # (B,) tokens that are not padding
    token_ids: Int32Array
    loss_mask: BoolArray
    rollout_logprobs: Float32Array
    advantages: Float32Array
    weights: Float32Array

    @property
    def num_trained_tokens(self) -> int:
        return int(self.loss_mask.sum())

    @property
    def padded_tokens(self) -> int:
        """Rows x length, padding included: what the forward pass costs."""
        return self.token_ids.size


def is_live(row: TrainingRow) -> bool:
    """Return whether any token of the row has an advantage and a weight; if not, the policy loss has no gradient."""
    return bool(np.any((row.advantages != 0) & (row.weights != 0)))


def has_trained_tokens(row: TrainingRow) -> bool:
    """Return whether the loss mask is on anywhere."""
    return bool(row.loss_mask.any())


def micro_batches(rows: Sequence[TrainingRow], max_tokens: int) -> list[MicroBatch]:
    """Cut rows into micro-batches of at most `max_tokens` padded tokens, longest rows first.

    The cut depends on the lengths and ids of the rows only, not on their order. A row longer than `max_tokens`
    becomes a micro-batch of its own. Rows without a trained token are left out.
    """
    ends = {i: int(np.flatnonzero(row.loss_mask)[-1]) + 1 for i, row in enumerate(rows) if has_trained_tokens(row)}
    order = sorted(ends, key=lambda i: (-ends[i], rows[i].trajectory_id))
    cuts: list[list[int]] = []
    for i in order:
        if cuts and (len(cuts[-1]) + 1) * ends[cuts[-1][0]] <= max_tokens:
            cuts[-1].append(i)
        else:
            cuts.append([i])
    return [_pad(rows, indices, [ends[i] for i in indices]) for indices in cuts]


def _pad(rows: Sequence[TrainingRow], indices: Sequence[int], lengths: Sequence[int]) -> MicroBatch:
    shape = (len(indices), max(lengths))
    micro = MicroBatch(
        trajectory_ids=tuple(rows[i].trajectory_id for i in indices),
        row_indices=tuple(indices),
        lengths=tuple(lengths),
        token_ids=np.zeros(shape, dtype=np.int32),
        loss_mask=np.zeros(shape, dtype=np.bool_),
        rollout_logprobs=np.zeros(shape, dtype=np.float32),
        advantages=np.zeros(shape, dtype=np.float32),
        weights=np.zeros(shape, dtype=np.float32),
    )
    for place, (i, length) in enumerate(zip(indices, lengths, strict=True)):
        row = rows[i]
        micro.token_ids[place, :length] = row.token_ids[:length]
        micro.loss_mask[place, :length] = row.loss_mask[:length]
        micro.rollout_logprobs[place, :length] = row.rollout_logprobs[:length]
        micro.advantages[place, :length] = row.advantages[:length]
        micro.weights[place, :length] = row.weights[:length]
    return micro
