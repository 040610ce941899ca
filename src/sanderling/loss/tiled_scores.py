"""Log-probabilities and entropies of tokens without their logits ever existing at once.

The logits of N tokens over a vocabulary V are made in tiles of some tokens by some of the vocabulary, folded into running
sums (the online softmax of arXiv 1805.02867, algorithm 3), and made again, tile by tile, in the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

_TILE_TOKENS = 1024  # rows of a tile: tall enough that each part of the head is read few times


def tiled_scores(
    hidden: Tensor, head: nn.Linear, targets: Tensor, *, scale: float, entropy_gradient: bool, tile_logits: int
) -> tuple[Tensor, Tensor]:
    """Return log-probabilities (N,) of `targets` and entropies (N,) in nats under softmax(scale * head(hidden)).

    Args:
        hidden: (N, d) states that predict the targets.
        head: linear layer (V, d); one without a bias, as language models have it, or with one.
        targets: (N,) int64.
        scale: 1 / temperature.
        entropy_gradient: whether the entropy has a gradient.
        tile_logits: logits of one tile, at most. The peak is about four such tiles in float32, whatever N and V are.

    Returns:
        float32 (float64 for float64 states); matrix products are done in the dtype of autocast where that is on.
    """
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    logprobs, entropy = _TiledScores.apply(
        hidden, head.weight, head.bias, targets, _Plan(scale, dtype, tile_logits, entropy_gradient)
    )
    return logprobs, entropy


class _Plan:
    """How the tiles are cut and computed."""

    def __init__(self, scale: float, dtype: torch.dtype, tile_logits: int, entropy_gradient: bool) -> None:
        self.scale = scale
        self.dtype = dtype
        self.exact = torch.float64 if dtype == torch.float64 else torch.float32
        self.tile_logits = tile_logits
        self.entropy_gradient = entropy_gradient

    def tiles(
        self, hidden: Tensor, weight: Tensor, bias: Tensor | None
    ) -> Iterator[tuple[slice, slice, Tensor, Tensor, Tensor]]:
        """Yield rows, columns, states, part of the head, and scaled logits of each tile."""
        count, vocabulary = len(hidden), len(weight)
        tall = max(1, min(count, _TILE_TOKENS, self.tile_logits))
        wide = max(1, self.tile_logits // tall)
        states = hidden.to(self.dtype)
        for left in range(0, vocabulary, wide):
            columns = slice(left, min(left + wide, vocabulary))
            part = weight[columns].to(self.dtype)
            for top in range(0, count, tall):
                rows = slice(top, min(top + tall, count))
                logits = states[rows] @ part.T
                if bias is not None:
                    logits = logits + bias[columns].to(self.dtype)
                logits = logits.to(self.exact)
                yield rows, columns, states[rows], part, logits.mul_(self.scale) if self.scale != 1.0 else logits


class _TiledScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        hidden, weight, bias, targets, plan = inputs
        sums = torch.zeros(3, len(targets), dtype=plan.exact, device=hidden.device)
        total, mean, chosen = sums
        peak = torch.full_like(total, -torch.inf)
        for rows, columns, _, _, logits in plan.tiles(hidden, weight, bias):
            top = torch.maximum(peak[rows], logits.amax(-1))
            decay, masses = torch.exp(peak[rows] - top), torch.exp(logits - top[:, None])
            total[rows] = total[rows] * decay + masses.sum(-1)
            mean[rows] = mean[rows] * decay + masses.mul_(logits).sum(-1)
            peak[rows] = top
            inside, place = _place(targets[rows], columns)
            chosen[rows] = torch.where(inside, logits.gather(-1, place).squeeze(-1), chosen[rows])
        log_total, expected = peak + total.log(), mean / total
        entropy = log_total - expected
        ctx.plan = plan
        ctx.save_for_backward(hidden, weight, bias, targets, log_total, expected)
        if not plan.entropy_gradient:
            ctx.mark_non_differentiable(entropy)
        return chosen - log_total, entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """With p the probabilities: d logprob / d logit_j = [j is the target] - p_j, d entropy / d logit_j = -p_j (logit_j -
        E[logit])."""
        hidden, weight, bias, targets, log_total, expected = ctx.saved_tensors
        plan, of_logprob, of_entropy = ctx.plan, *gradients
        inputs = (hidden, weight, bias)
        sums = [
            torch.zeros_like(tensor, dtype=plan.exact) if tensor is not None and needed else None
            for tensor, needed in zip(inputs, ctx.needs_input_grad, strict=False)
        ]
        of_hidden, of_weight, of_bias = sums
        for rows, columns, states, part, logits in plan.tiles(hidden, weight, bias):
            slope = torch.exp(logits - log_total[rows, None])
            factor = -of_logprob[rows, None]
            if plan.entropy_gradient:
                factor = factor - of_entropy[rows, None] * (logits - expected[rows, None])
            slope.mul_(factor)
            inside, place = _place(targets[rows], columns)
            slope.scatter_add_(-1, place, torch.where(inside, of_logprob[rows], 0.0)[:, None])
            slope = slope.mul_(plan.scale).to(plan.dtype)
            if of_hidden is not None:
                of_hidden[rows] += slope @ part
            if of_weight is not None:
                of_weight[columns] += slope.T @ states
            if of_bias is not None:
                of_bias[columns] += slope.sum(0)
        found = (None if s is None else s.to(tensor.dtype) for s, tensor in zip(sums, inputs, strict=True))
        return (*found, None, None)


def _place(targets: Tensor, columns: slice) -> tuple[Tensor, Tensor]:
    """Return which targets (n,) lie in the columns, and where in them (n, 1); 0 for the others."""
    inside = (targets >= columns.start) & (targets < columns.stop)
    return inside, torch.where(inside, targets - columns.start, 0)[:, None]
