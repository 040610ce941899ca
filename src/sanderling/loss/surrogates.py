"""Surrogates of the expected advantage, per token: pure functions of tensors (N,). What divides them stands in the weights.

Each returns the losses with their gradient, and which tokens have none left (clipped, or outside a window).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from sanderling.loss.config import LossConfig
from sanderling.loss.tokens import TokenBatch, sequence_means

Surrogated = tuple[Tensor, Tensor]


def ppo_token_losses(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, config: LossConfig) -> Tensor:
    """Return -min(ratio A, clip(ratio, 1 - low, 1 + high) A) per token, (N,), with ratio = exp(logprobs -
    old_logprobs).

    With `dual_clip` c, tokens with A < 0 lose at most -c A. Source: arXiv 1707.06347 eq. 7, 2503.14476 eq. 10,
    1912.09729 eq. 5.
    """
    ratio = torch.exp(logprobs - old_logprobs)
    clipped = torch.clamp(ratio, 1.0 - config.clip_low, 1.0 + config.clip_high)
    losses = -torch.minimum(ratio * advantages, clipped * advantages)
    if config.dual_clip is not None:
        losses = torch.where(advantages < 0, torch.minimum(losses, -config.dual_clip * advantages), losses)
    return losses


def ppo(logprobs: Tensor, batch: TokenBatch, config: LossConfig) -> Surrogated:
    """The clipped loss; see `ppo_token_losses`."""
    losses = ppo_token_losses(logprobs, batch.old_logprobs, batch.advantages, config)
    return losses, _clipped(torch.exp(logprobs - batch.old_logprobs), batch, config)


def gspo(logprobs: Tensor, batch: TokenBatch, config: LossConfig) -> Surrogated:
    """-min(s A, clip(s) A) with the ratio of the sequence s = exp(mean log rho) (arXiv 2507.18071, eqs. 5 and 7).

    Every token of a sequence has the loss of the sequence, so that weights of a sequence mean give the published form.
    """
    ratio = torch.exp(sequence_means(logprobs - batch.old_logprobs, batch))
    clipped = torch.clamp(ratio, 1.0 - config.clip_low, 1.0 + config.clip_high)
    return -torch.minimum(ratio * batch.advantages, clipped * batch.advantages), _clipped(ratio, batch, config)


def cispo(logprobs: Tensor, batch: TokenBatch, config: LossConfig) -> Surrogated:
    """-sg(min(rho, 1 + clip_high)) A log pi (arXiv 2506.13585, eqs. 4 and 5, without a lower bound)."""
    capped = torch.clamp(torch.exp(logprobs - batch.old_logprobs), max=1.0 + config.clip_high).detach()
    return -capped * batch.advantages * logprobs, torch.zeros_like(capped, dtype=torch.bool)


def dis(logprobs: Tensor, batch: TokenBatch, config: LossConfig) -> Surrogated:
    """-sg(f(r)) A log pi with f(r) = r for ratio_low < r < ratio_high and 0 outside (double-sided importance sampling,
    arXiv 2602.15763; arXiv 2607.07508)."""
    ratio = torch.exp(logprobs - batch.rollout_logprobs).detach()
    outside = (ratio <= config.ratio_low) | (ratio >= config.ratio_high)
    kept = torch.where(outside, torch.zeros_like(ratio), ratio)
    return -kept * batch.advantages * logprobs, outside


def k25(logprobs: Tensor, batch: TokenBatch, config: LossConfig) -> Surrogated:
    """-clip(r, ratio_low, ratio_high) A: no gradient outside the window, whatever the sign of A (arXiv 2602.02276)."""
    ratio = torch.exp(logprobs - batch.rollout_logprobs)
    outside = (ratio < config.ratio_low) | (ratio > config.ratio_high)
    return -torch.clamp(ratio, config.ratio_low, config.ratio_high) * batch.advantages, outside


def dppo_tv(logprobs: Tensor, batch: TokenBatch, config: LossConfig) -> Surrogated:
    """-sg(r) A log pi, off where pi - pi_sampler has passed the bound in the direction of A (arXiv 2602.04879)."""
    now = logprobs.detach()
    moved = torch.exp(now) - torch.exp(batch.rollout_logprobs)
    bound = config.probability_bound
    outside = ((batch.advantages > 0) & (moved > bound)) | ((batch.advantages < 0) & (moved < -bound))
    ratio = torch.exp(now - batch.rollout_logprobs)
    kept = torch.where(outside, torch.zeros_like(ratio), ratio)
    return -kept * batch.advantages * logprobs, outside


SURROGATES: Mapping[str, Callable[[Tensor, TokenBatch, LossConfig], Surrogated]] = {
    "ppo": ppo,
    "gspo": gspo,
    "cispo": cispo,
    "dis": dis,
    "k2.5": k25,
    "dppo-tv": dppo_tv,
}


def _clipped(ratio: Tensor, batch: TokenBatch, config: LossConfig) -> Tensor:
    up, down = batch.advantages > 0, batch.advantages < 0
    clipped = (up & (ratio > 1.0 + config.clip_high)) | (down & (ratio < 1.0 - config.clip_low))
    if config.dual_clip is not None:
        clipped |= down & (ratio > config.dual_clip)
    return clipped
