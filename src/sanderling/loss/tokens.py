"""The columns of a micro-batch's trained tokens, and sums over the sequences that they belong to."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sanderling.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBatch:
    """Trained tokens of one micro-batch, (N,) each."""

    old_logprobs: Tensor  # of the policy at the start of the update, or of the sampler
    rollout_logprobs: Tensor  # of the sampler
    advantages: Tensor
    weights: Tensor
    sequences: Tensor | None = None  # int64, which row each token belongs to; a row is whole in one micro-batch
    old_share: Tensor | None = (
        None  # in [0, 1], how far the old policy was on the way from the sampler to the present one
    )
    reference_logprobs: Tensor | None = None  # of the policy that the run started with


def sequence_means(values: Tensor, batch: TokenBatch) -> Tensor:
    """Return the mean of `values` over the sequence of each token, (N,), with gradient."""
    sums, counts, sequences = _sums(values, batch)
    return (sums / counts)[sequences]


def sequence_sums(values: Tensor, batch: TokenBatch) -> Tensor:
    """Return the sum of `values` over the sequence of each token, (N,), with gradient."""
    sums, _, sequences = _sums(values, batch)
    return sums[sequences]


def _sums(values: Tensor, batch: TokenBatch) -> tuple[Tensor, Tensor, Tensor]:
    if batch.sequences is None:
        raise ConfigError("this loss looks at whole sequences, and the tokens don't say which one they belong to")
    size = int(batch.sequences.max()) + 1 if batch.sequences.numel() else 0
    empty = torch.zeros(size, dtype=values.dtype, device=values.device)
    sums = empty.index_add(0, batch.sequences, values)
    counts = empty.index_add(0, batch.sequences, torch.ones_like(values))
    return sums, counts.clamp(min=1.0), batch.sequences
