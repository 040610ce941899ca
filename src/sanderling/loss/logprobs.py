"""Log-probabilities of sampled tokens under a Hugging Face causal model, at trained positions only.

The head is applied to the hidden states that predict a trained token, in tiles where there are many, so that the logits of
a row never exist at once: with a vocabulary of 150k, 4k tokens would be 2.5 GB in float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from sanderling.loss.flat_attention import FlatRows, run_flat
from sanderling.loss.tiled_scores import tiled_scores

CHUNK_LOGITS = 1 << 22  # logits that may exist at once (16 MiB in float32): 85 tokens of a vocabulary of 49k

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
        chunk_logits: how many logits may exist at once; above it, they are made in tiles (`tiled_scores`).

    Returns:
        Log-probabilities and entropies (N,), computed in float32 (float64 for a float64 model).
    """
    positions = loss_mask[:, 1:]  # the hidden state at t - 1 predicts the token at t
    head = _Head(token_ids[loss_mask], 1.0 / temperature if temperature > 0 else 1.0, entropy_gradient, chunk_logits)
    parts = _trunk_and_head(model)
    if parts is None:
        return head.score_logits(model(input_ids=token_ids[:, :-1], use_cache=False).logits[positions])
    trunk, linear = parts
    return head.score_states(trunk(input_ids=token_ids[:, :-1], use_cache=False).last_hidden_state[positions], linear)


def flat_token_scores(
    model: nn.Module,
    rows: FlatRows,
    predictors: Tensor,
    targets: Tensor,
    *,
    temperature: float = 1.0,
    entropy_gradient: bool = False,
) -> TokenScores:
    """Score tokens of rows that lie one behind the other.

    Args:
        model: prepared by `use_flat_attention`.
        rows: T tokens.
        predictors: (N,) int64, where in the flat sequence the token before each scored one stands.
        targets: (N,) int64, the scored tokens.
        temperature, entropy_gradient: as for `token_scores`.
    """
    head = _Head(targets, 1.0 / temperature if temperature > 0 else 1.0, entropy_gradient, CHUNK_LOGITS)
    parts = _trunk_and_head(model)
    if parts is None:
        return head.score_logits(run_flat(model, rows).logits[0, predictors])
    trunk, linear = parts
    return head.score_states(run_flat(trunk, rows).last_hidden_state[0, predictors], linear)


@dataclass(frozen=True, slots=True)
class _Head:
    """The last step: states or logits become the scores of the targets (N,)."""

    targets: Tensor
    scale: float
    entropy_gradient: bool
    chunk_logits: int

    def score_states(self, hidden: Tensor, linear: nn.Linear) -> TokenScores:
        if hidden.shape[0] * linear.weight.shape[0] <= self.chunk_logits:
            return self.score_logits(linear(hidden))
        logprobs, entropy = tiled_scores(
            hidden,
            linear,
            self.targets,
            scale=self.scale,
            entropy_gradient=self.entropy_gradient,
            tile_logits=self.chunk_logits,
        )
        return TokenScores(logprobs=logprobs, entropy=entropy)

    def score_logits(self, logits: Tensor) -> TokenScores:
        logprobs, entropy = _score(logits, self.targets, self.scale, self.entropy_gradient)
        return TokenScores(logprobs=logprobs, entropy=entropy)


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
