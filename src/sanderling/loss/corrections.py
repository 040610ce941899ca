"""Corrections for tokens that another policy sampled: older weights, or the same weights in another engine. Tensors (N,)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from sanderling.errors import ConfigError
from sanderling.loss.config import LossConfig
from sanderling.loss.tokens import TokenBatch, sequence_means, sequence_sums


def with_old_logprobs(logprobs: Tensor, batch: TokenBatch, config: LossConfig) -> TokenBatch:
    """Return the batch with the log-probabilities of the old policy, where they are interpolated (A-3PO).

    log pi_old = log pi_sampler + alpha (log pi - log pi_sampler), detached, with alpha = `old_share`. Source: arXiv
    2512.06547.
    """
    if config.old_logprobs != "interpolate":
        return batch
    if batch.old_share is None:
        raise ConfigError('old_logprobs="interpolate" needs the age of each token, and none is given')
    moved = logprobs.detach() - batch.rollout_logprobs
    return replace(batch, old_logprobs=batch.rollout_logprobs + batch.old_share * moved)


def old_share(sampled: Tensor, old: int, present: int) -> Tensor:
    """Return alpha = (old - sampled) / (present - sampled), clipped to [0, 1]; 0 where the present version sampled.

    Args:
        sampled: (N,) version of the weights that sampled each token.
        old: version at the start of the update.
        present: version that the update is making.
    """
    ahead = (present - sampled).to(torch.float32)
    share = (old - sampled).to(torch.float32) / ahead.clamp(min=1.0)
    return torch.where(ahead > 0, share.clamp(0.0, 1.0), torch.zeros_like(share))


def correction_weights(
    old_logprobs: Tensor, rollout_logprobs: Tensor, config: LossConfig, batch: TokenBatch | None = None
) -> Tensor:
    """Return the weight per token (N,) that corrects for sampling from another distribution than the proximal policy.

    w = exp(old - rollout), detached; see `LossConfig.correction`. "none" gives ones. `batch` says which tokens are one
    sequence, for levels that need it.
    """
    if config.correction == "none":
        return torch.ones_like(old_logprobs)
    log_w = (old_logprobs - rollout_logprobs).detach()
    if config.correction_level != "token":
        if batch is None:
            raise ConfigError(f"correction_level={config.correction_level!r} needs the sequences of the tokens")
        log_w = (sequence_sums if config.correction_level == "sequence" else sequence_means)(log_w, batch)
    w = torch.exp(log_w)
    if config.correction == "full":
        return w
    if config.correction == "truncate":
        return torch.clamp(w, max=config.correction_high)
    inside = (w >= config.correction_low) & (w <= config.correction_high)
    return torch.where(inside, w, torch.zeros_like(w))


def drifted(logprobs: Tensor, batch: TokenBatch, bound: float) -> Tensor:
    """Return which tokens are left out (N,): A < 0 in a sequence with mean log(sampler / policy) above the bound (OPSM,
    arXiv 2512.02556)."""
    drift = sequence_means(batch.rollout_logprobs - logprobs.detach(), batch)
    return (batch.advantages < 0) & (drift > bound)
