"""Estimates of the KL divergence from sampled tokens, per token (N,), in nats.

    k1         log(p/q)                      unbiased value, as noisy as can be; as a loss its gradient has mean zero
    k2         (log(p/q))^2 / 2              biased value; gradient that of KL(p || q) where p samples
    k3         q/p - 1 - log(q/p)            unbiased value, never negative; gradient that of KL(q || p) where p samples
    unbiased   (p/s) (q/p - 1 - log(q/p))    value and gradient of KL(p || q), whatever policy s sampled

Source: Schulman, "Approximating KL divergence" (2020); the last arXiv 2512.02556, section on the unbiased estimate.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sanderling.errors import ConfigError
from sanderling.loss.config import LossConfig
from sanderling.loss.tokens import TokenBatch


def kl_k1(logprobs: Tensor, other_logprobs: Tensor) -> Tensor:
    """Estimate KL(p || q) from samples of p: log(p/q)."""
    return logprobs - other_logprobs


def kl_k2(logprobs: Tensor, other_logprobs: Tensor) -> Tensor:
    """Estimate KL(p || q) from samples of p: (log(p/q))^2 / 2."""
    return 0.5 * (logprobs - other_logprobs) ** 2


def kl_k3(logprobs: Tensor, other_logprobs: Tensor) -> Tensor:
    """Estimate KL(p || q) per token (N,) from samples of p: q/p - 1 - log(q/p), never negative, unbiased.

    `logprobs` are those of p (which sampled the tokens), `other_logprobs` those of q.
    """
    log_ratio = other_logprobs - logprobs
    return torch.expm1(log_ratio) - log_ratio


def kl_unbiased(logprobs: Tensor, other_logprobs: Tensor, sampled_logprobs: Tensor) -> Tensor:
    """Estimate KL(p || q) from samples of s: k3 weighted by p/s, with gradient through the weight."""
    return torch.exp(logprobs - sampled_logprobs) * kl_k3(logprobs, other_logprobs)


def kl_penalty(logprobs: Tensor, batch: TokenBatch, config: LossConfig) -> Tensor:
    """Return the configured estimate of KL(policy || reference) per token.

    Raises:
        ConfigError: the reference's log-probabilities are missing.
    """
    if batch.reference_logprobs is None:
        raise ConfigError(
            f"kl_coefficient={config.kl_coefficient} needs the reference policy's log-probabilities, got none"
        )
    match config.kl_estimator:
        case "k2":
            return kl_k2(logprobs, batch.reference_logprobs)
        case "k3":
            return kl_k3(logprobs, batch.reference_logprobs)
        case "unbiased":
            return kl_unbiased(logprobs, batch.reference_logprobs, batch.rollout_logprobs)
