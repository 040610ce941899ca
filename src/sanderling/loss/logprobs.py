"""Log-probabilities of sampled tokens under a Hugging Face causal model, at trained positions only.

The head is applied to the hidden states that predict a trained token, in chunks, so that the logits of a whole
micro-batch never exist at once: with a vocabulary of 150k, 4k tokens would be 2.5 GB in float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

CHUNK_LOGITS = 1 << 25  # logits that may exist at once (128 MiB in float32)

_RESHAPED_LOGITS = (
    "final_logit_softcapping",
    "logit_scale",
    "logits_scaling",
    "logits_scale",
    "output_multiplier_scale",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenScores:
    """Scores of the trained tokens of a micro-batch, (N,) each, in row-major order of the mask."""

    logprobs: Tensor  # with gradient
    entropy: Tensor  # nats; with gradient only when it was asked for


def token_scores(
    model: nn.Module,
    token_ids: Tensor,
    loss_mask: Tensor,
    *,
    temperature: float = 1.0,
    entropy_gradient: bool = False,
    chunk_logits: int = CHUNK_LOGITS,
) -> TokenScores:
    """Score the masked tokens of right-padded rows.

    Args:
        model: a causal language model. Its attention implementation is whatever it was loaded with.
        token_ids: (B, L) int64; padding may be any valid id, because a causal model never looks at it.
        loss_mask: (B, L) bool; position 0 can't be scored and must be off.
        temperature: of the sampler: the distribution is softmax(logits / temperature). 0 (greedy) is scored at 1, as
            the engine reports it.
        entropy_gradient: keep the graph of the entropy.
        chunk_logits: how many logits may exist at once; above it, they are computed again in the backward pass.

    Returns:
        Log-probabilities and entropies (N,), computed in float32 (float64 for a float64 model).
    """
    scale = 1.0 / temperature if temperature > 0 else 1.0
    targets = token_ids[loss_mask]
    positions = loss_mask[:, 1:]  # the hidden state at t - 1 predicts the token at t
    parts = _trunk_and_head(model)
    if parts is None:
        logits = model(input_ids=token_ids[:, :-1], use_cache=False).logits[positions]
        logprobs, entropy = _score(logits, targets, scale, entropy_gradient)
        return TokenScores(logprobs=logprobs, entropy=entropy)
    trunk, head = parts
    hidden = trunk(input_ids=token_ids[:, :-1], use_cache=False).last_hidden_state[positions]
    chunk = max(1, chunk_logits // head.weight.shape[0])
    if len(targets) <= chunk:
        logprobs, entropy = _score(head(hidden), targets, scale, entropy_gradient)
        return TokenScores(logprobs=logprobs, entropy=entropy)

    def score_chunk(states: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        return _score(head(states), wanted, scale, entropy_gradient)

    scored = [
        checkpoint(score_chunk, hidden[i : i + chunk], targets[i : i + chunk], use_reentrant=False)
        for i in range(0, len(targets), chunk)
    ]
    return TokenScores(logprobs=torch.cat([s[0] for s in scored]), entropy=torch.cat([s[1] for s in scored]))


def _trunk_and_head(model: nn.Module) -> tuple[nn.Module, nn.Linear] | None:
    """Return the model below its head and the linear head, or None where the logits are more than that."""
    if not isinstance(model, PreTrainedModel):
        return None
    reshaped = any(getattr(model.config, name, None) not in (None, 1, 1.0) for name in _RESHAPED_LOGITS)
    trunk, head = model.base_model, model.get_output_embeddings()
    if reshaped or trunk is model or not isinstance(trunk, nn.Module) or not isinstance(head, nn.Linear):
        return None
    return trunk, head


def _score(logits: Tensor, targets: Tensor, scale: float, entropy_gradient: bool) -> tuple[Tensor, Tensor]:
    if logits.dtype not in (torch.float32, torch.float64):
        logits = logits.float()
    log_softmax = torch.log_softmax(logits * scale if scale != 1.0 else logits, dim=-1)
    logprobs = log_softmax.gather(-1, targets[:, None]).squeeze(-1)
    kept = log_softmax if entropy_gradient else log_softmax.detach()
    entropy = -(kept.exp() * kept).sum(-1)
    return logprobs, entropy
