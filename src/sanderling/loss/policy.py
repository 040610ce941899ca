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
from sanderling.loss.corrections import correction_weights, drifted, with_old_logprobs
from sanderling.loss.kl import kl_k3, kl_penalty
from sanderling.loss.surrogates import SURROGATES, ppo_token_losses
from sanderling.loss.tokens import TokenBatch

__all__ = ["LossSums", "TokenBatch", "correction_weights", "kl_k3", "policy_loss", "ppo_token_losses"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSums:
    """What one micro-batch adds to the step; detached sums over its tokens, so that micro-batches simply add up."""

    tokens: int
    loss: float
    entropy: float  # nats
    kl: float  # k3 estimate of KL(sampler || policy), nats
    clipped: float  # tokens whose gradient the surrogate or the drift bound removed
    ratio: float  # to the sampler
    ratio_max: float
    reference_kl: float = (
        0.0  # k3 estimate of KL(policy || policy at the start of the run), nats; 0.0 without a reference
    )


def policy_loss(
    logprobs: Tensor, entropy: Tensor | None, batch: TokenBatch, config: LossConfig
) -> tuple[Tensor, LossSums]:
    """Return the loss of some tokens (a scalar with gradient) and the sums for the metrics.

    Args:
        logprobs: (N,) log-probabilities of the sampled tokens under the current weights, with gradient.
        entropy: (N,) entropy of the distribution at those tokens in nats; None when it was not computed.
        batch: the other columns of the same tokens.
        config: surrogate, bounds and further terms.

    Raises:
        ConfigError: a configured term needs a column that is missing.
    """
    batch = with_old_logprobs(logprobs, batch, config)
    losses, removed = SURROGATES[config.surrogate](logprobs, batch, config)
    losses = losses * correction_weights(batch.old_logprobs, batch.rollout_logprobs, config, batch)
    if config.drift_bound is not None:
        left_out = drifted(logprobs, batch, config.drift_bound)
        losses, removed = torch.where(left_out, torch.zeros_like(losses), losses), removed | left_out
    if config.log_ratio_penalty > 0.0:
        losses = losses + config.log_ratio_penalty * (logprobs - batch.rollout_logprobs) ** 2
    if config.kl_coefficient > 0.0:
        losses = losses + config.kl_coefficient * kl_penalty(logprobs, batch, config)
    if config.needs_entropy:
        if entropy is None:
            raise ConfigError(
                f"entropy_coefficient={config.entropy_coefficient} needs the entropy of each token, got None"
            )
        losses = losses - config.entropy_coefficient * entropy
    loss = torch.sum(losses * batch.weights)
    return loss, _sums(loss, logprobs, entropy, batch, removed)


@torch.no_grad()
def _sums(loss: Tensor, logprobs: Tensor, entropy: Tensor | None, batch: TokenBatch, removed: Tensor) -> LossSums:
    to_sampler = torch.exp(logprobs - batch.rollout_logprobs)
    reference = batch.reference_logprobs
    return LossSums(
        tokens=logprobs.numel(),
        loss=float(loss),
        entropy=float(entropy.sum()) if entropy is not None else float("nan"),
        kl=float(kl_k3(batch.rollout_logprobs, logprobs).sum()),
        clipped=float(removed.sum()),
        ratio=float(to_sampler.sum()),
        ratio_max=float(to_sampler.max()) if to_sampler.numel() else 0.0,
        reference_kl=float(kl_k3(logprobs, reference).sum()) if reference is not None else 0.0,
    )
