"""Rows -> micro-batches of bounded size: padded, or laid out one behind the other. No cut changes the loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sanderling.batch.config import Layout
from sanderling.batch.layout import FlatLayout, packed_layout, shared_layout, surely_shared
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
    policy_versions: Int32Array
    advantages: Float32Array
    weights: Float32Array
    flat: FlatLayout | None = None  # how the rows lie in the forward pass; None: padded, as they lie here

    @property
    def num_trained_tokens(self) -> int:
        return int(self.loss_mask.sum())

    @property
    def computed_tokens(self) -> int:
        """Tokens that the forward pass costs: rows x length, padding included, or those of the flat sequence."""
        return self.token_ids.size if self.flat is None else len(self.flat.token_ids)


def is_live(row: TrainingRow) -> bool:
    """Return whether any token of the row has an advantage and a weight; if not, the policy loss has no gradient."""
    return bool(np.any((row.advantages != 0) & (row.weights != 0)))


def has_trained_tokens(row: TrainingRow) -> bool:
    """Return whether the loss mask is on anywhere."""
    return bool(row.loss_mask.any())


def micro_batches(rows: Sequence[TrainingRow], max_tokens: int, layout: Layout = "padded") -> list[MicroBatch]:
    """Cut rows into micro-batches of at most `max_tokens` computed tokens.

    The cut depends on the lengths and ids of the rows only, not on their order. A row longer than `max_tokens`
    becomes a micro-batch of its own. Rows without a trained token are left out. Padded and packed rows are taken
    longest first; with a shared layout, rows that begin alike stand together.
    """
    ends = {i: int(np.flatnonzero(row.loss_mask)[-1]) + 1 for i, row in enumerate(rows) if has_trained_tokens(row)}
    if layout == "shared":
        order = sorted(ends, key=lambda i: (_digits(rows[i].token_ids[: ends[i]]), rows[i].trajectory_id))
    else:
        order = sorted(ends, key=lambda i: (-ends[i], rows[i].trajectory_id))
    cuts: list[list[int]] = []
    filled = 0
    for i in order:
        cost = _added_cost(rows, ends, cuts[-1], i, layout) if cuts else 0
        if cuts and filled + cost <= max_tokens:
            cuts[-1].append(i)
            filled += cost
        else:
            cuts.append([i])
            filled = ends[i]
    return [_micro(rows, indices, [ends[i] for i in indices], layout) for indices in cuts]


def _digits(token_ids: Int32Array) -> bytes:
    """Return bytes in whose order ids are in numerical order, so that rows that begin alike are neighbours."""
    return token_ids.astype(">u4").tobytes()


def _added_cost(rows: Sequence[TrainingRow], ends: dict[int, int], cut: Sequence[int], i: int, layout: Layout) -> int:
    """Return the computed tokens that row i would add to a cut."""
    match layout:
        case "padded":
            return ends[cut[0]]  # the longest row of the cut
        case "packed":
            return ends[i]
        case "shared":
            last = rows[cut[-1]].token_ids[: ends[cut[-1]] - 1]
            return ends[i] - surely_shared(last, rows[i].token_ids[: ends[i] - 1])


def _micro(rows: Sequence[TrainingRow], indices: Sequence[int], lengths: Sequence[int], layout: Layout) -> MicroBatch:
    micro = _pad(rows, indices, lengths)
    if layout == "padded":
        return micro
    # The last token of a row is only predicted, never read.
    sequences = [rows[i].token_ids[: length - 1] for i, length in zip(indices, lengths, strict=True)]
    place = packed_layout if layout == "packed" else shared_layout
    return replace(micro, flat=place(sequences, [micro.loss_mask[k, 1:n] for k, n in enumerate(lengths)]))


def _pad(rows: Sequence[TrainingRow], indices: Sequence[int], lengths: Sequence[int]) -> MicroBatch:
    shape = (len(indices), max(lengths))
    micro = MicroBatch(
        trajectory_ids=tuple(rows[i].trajectory_id for i in indices),
        row_indices=tuple(indices),
        lengths=tuple(lengths),
        token_ids=np.zeros(shape, dtype=np.int32),
        loss_mask=np.zeros(shape, dtype=np.bool_),
        rollout_logprobs=np.zeros(shape, dtype=np.float32),
        policy_versions=np.zeros(shape, dtype=np.int32),
        advantages=np.zeros(shape, dtype=np.float32),
        weights=np.zeros(shape, dtype=np.float32),
    )
    for place, (i, length) in enumerate(zip(indices, lengths, strict=True)):
        row = rows[i]
        micro.token_ids[place, :length] = row.token_ids[:length]
        micro.loss_mask[place, :length] = row.loss_mask[:length]
        micro.rollout_logprobs[place, :length] = row.rollout_logprobs[:length]
        micro.policy_versions[place, :length] = row.policy_versions[:length]
        micro.advantages[place, :length] = row.advantages[:length]
        micro.weights[place, :length] = row.weights[:length]
    return micro
