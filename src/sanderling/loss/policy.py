"""The policy loss: pure functions of tensors (N,), one entry per trained token.

Off the mask there is nothing: callers pass trained tokens only, so no placeholder can leak in. The loss is a plain sum,
because `weights` carry every denominator.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sanderling.errors import ConfigError
from sanderling.loss.config import LossConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBatch:
    """Trained tokens of one micro-batch, (N,) each."""

    old_logprobs: Tensor  # of the policy at the start of the update, or of the sampler
    rollout_logprobs: Tensor  # of the sampler
    advantages: Tensor
    weights: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSums:
    """What one micro-batch adds to the step; detached sums over its tokens, so that micro-batches simply add up."""

    tokens: int
    loss: float
    entropy: float  # nats
    kl: float  # k3 estimate of KL(sampler || policy), nats
    clipped: float  # tokens whose gradient the clip removed
    ratio: float  # to the sampler
    ratio_max: float


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


def correction_weights(old_logprobs: Tensor, rollout_logprobs: Tensor, config: LossConfig) -> Tensor:
    """Return the weight per token (N,) that corrects for sampling from another distribution than the proximal policy.

    w = exp(old - rollout), detached; see `LossConfig.correction`. "none" gives ones.
    """
    if config.correction == "none":
        return torch.ones_like(old_logprobs)
    w = torch.exp(old_logprobs - rollout_logprobs).detach()
    if config.correction == "truncate":
        return torch.clamp(w, max=config.correction_high)
    inside = (w >= config.correction_low) & (w <= config.correction_high)
    return torch.where(inside, w, torch.zeros_like(w))


def kl_k3(logprobs: Tensor, other_logprobs: Tensor) -> Tensor:
    """Estimate KL(p || q) per token (N,) from samples of p: q/p - 1 - log(q/p), never negative, unbiased.

    `logprobs` are those of p (which sampled the tokens), `other_logprobs` those of q.
    """
    log_ratio = other_logprobs - logprobs
    return torch.expm1(log_ratio) - log_ratio


def policy_loss(
    logprobs: Tensor, entropy: Tensor | None, batch: TokenBatch, config: LossConfig
) -> tuple[Tensor, LossSums]:
    """Return the loss of some tokens (a scalar with gradient) and the sums for the metrics.

    Args:
        logprobs: (N,) log-probabilities of the sampled tokens under the current weights, with gradient.
        entropy: (N,) entropy of the distribution at those tokens in nats; None when it was not computed.
        batch: the other columns of the same tokens.
        config: bounds and further terms.

    Raises:
        ConfigError: an entropy bonus is configured and no entropy was given.
    """
    losses = ppo_token_losses(logprobs, batch.old_logprobs, batch.advantages, config)
    losses = losses * correction_weights(batch.old_logprobs, batch.rollout_logprobs, config)
    if config.has_other_terms:
        if entropy is None:
            raise ConfigError(
                f"entropy_coefficient={config.entropy_coefficient} needs the entropy of each token, got None"
            )
        losses = losses - config.entropy_coefficient * entropy
    loss = torch.sum(losses * batch.weights)
    return loss, _sums(loss, logprobs, entropy, batch, config)


@torch.no_grad()
def _sums(loss: Tensor, logprobs: Tensor, entropy: Tensor | None, batch: TokenBatch, config: LossConfig) -> LossSums:
    ratio = torch.exp(logprobs - batch.old_logprobs)
    to_sampler = torch.exp(logprobs - batch.rollout_logprobs)
    up, down = batch.advantages > 0, batch.advantages < 0
    clipped = (up & (ratio > 1.0 + config.clip_high)) | (down & (ratio < 1.0 - config.clip_low))
    if config.dual_clip is not None:
        clipped |= down & (ratio > config.dual_clip)
    return LossSums(
        tokens=logprobs.numel(),
        loss=float(loss),
        entropy=float(entropy.sum()) if entropy is not None else float("nan"),
        kl=float(kl_k3(batch.rollout_logprobs, logprobs).sum()),
        clipped=float(clipped.sum()),
        ratio=float(to_sampler.sum()),
        ratio_max=float(to_sampler.max()) if to_sampler.numel() else 0.0,
    )
