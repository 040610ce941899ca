"""Causal attention over rows that lie one behind the other in a single sequence, without padding and without leakage.

A flat sequence is cut into blocks. A token sees the tokens of its own block up to itself, and all tokens of the blocks named
as coming before it: for packed rows none, for a row behind a shared prompt the prompt. Only what is seen is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import AttentionInterface, PreTrainedModel

from sanderling.errors import LearnerError, ModelError

Span = tuple[int, int]
"""Start and stop in the flat sequence."""

TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}
"""Difference allowed between the logits of the probe's rows, flat and one by one, relative to their spread; other dtypes:
0.1."""

_PREFIX = "sanderling_flat_"
_UNKNOWN = ("softcap", "s_aux", "position_bias")  # further terms that some architectures pass to their attention


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatRows:
    """Rows behind each other. The blocks cover the sequence without gap, in order."""

    token_ids: Tensor  # (T,) int64
    positions: Tensor  # (T,) int64: place of each token in its own row
    blocks: Sequence[tuple[Span, Sequence[Span]]]  # a block, and what comes before it in the row


def run_flat(module: Any, rows: FlatRows) -> Any:
    """Call a model, or the part below its head, on flat rows; it must have been prepared by `use_flat_attention`."""
    return module(
        input_ids=rows.token_ids[None],
        position_ids=rows.positions[None],
        use_cache=False,
        flat_blocks=rows.blocks,
    )


def use_flat_attention(model: PreTrainedModel) -> None:
    """Make a model attend over blocks in calls of `run_flat`; other calls attend as before.

    The kernel is that with which the model was loaded: torch's fused one for "sdpa", matrix product and softmax for
    "eager".

    Raises:
        ModelError: the model doesn't let its attention be replaced, or a probe shows that rows behind each other give
            other logits than one by one.
    """
    kernel = str(model.config._attn_implementation)
    if kernel.startswith(_PREFIX):
        return
    if kernel not in _KERNELS:
        raise ModelError(f"the model was loaded with attention {kernel!r}; flat rows need one of {sorted(_KERNELS)}")
    plain = _probe_rows(model)
    model.set_attn_implementation(_PREFIX + kernel)
    try:
        flat = _probe_flat(model)
    except Exception as error:  # whatever the model's own code raises
        raise ModelError(f"{_cannot(model)}: {type(error).__name__}: {error}") from error
    spread = (plain - plain.mean(-1, keepdim=True)).norm()
    difference = float((plain - flat).norm() / spread.clamp(min=1e-6))
    if not difference <= TOLERANCE.get(model.dtype, 0.1):
        raise ModelError(f"{_cannot(model)}: logits differ by {difference:.3g} of their spread")


def _cannot(model: PreTrainedModel) -> str:
    return f'{type(model).__name__} can\'t be trained on flat rows (set batch.layout to "padded")'


_PROBE = ((0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 6, 7, 8), (9, 10, 11))
_PROBE_BLOCKS = (((0, 4), ()), ((4, 6), ((0, 4),)), ((6, 9), ((0, 4),)), ((9, 12), ()))


@torch.no_grad()
def _probe_rows(model: PreTrainedModel) -> Tensor:
    """Return the logits after three rows of which two begin alike, (3, V), each computed alone."""
    rows = (torch.tensor([row], device=model.device) for row in _PROBE)
    return torch.cat([model(input_ids=row, use_cache=False).logits[:, -1] for row in rows]).float()


@torch.no_grad()
def _probe_flat(model: PreTrainedModel) -> Tensor:
    tokens = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], device=model.device)
    positions = torch.tensor([0, 1, 2, 3, 4, 5, 4, 5, 6, 0, 1, 2], device=model.device)
    rows = FlatRows(token_ids=tokens, positions=positions, blocks=_PROBE_BLOCKS)
    return run_flat(model, rows).logits[0, [5, 8, 11]].float()


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **settings: Any
) -> tuple[Tensor, None]:
    """The attention function that transformers calls: query (B, heads, T, size) -> (B, T, heads, size)."""
    kernel, blocks = settings["kernel"], settings.get("flat_blocks")
    if unknown := [name for name in _UNKNOWN if settings.get(name) is not None]:
        raise LearnerError(f"the model's attention has {', '.join(unknown)}, which flat rows don't know")
    scaling = settings.get("scaling") or query.shape[-1] ** -0.5
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    if blocks is None:
        blocks = (((0, query.shape[2]), ()),)  # rows of a padded batch: each is one block
    _refuse_window(settings.get("sliding_window"), blocks)
    attended = []
    for own, before in blocks:
        keys, values = (_joined(states, [*before, own]) for states in (key, value))
        attended.append(kernel(query[:, :, own[0] : own[1]], keys, values, scaling))
    return torch.cat(attended, dim=2).transpose(1, 2).contiguous(), None


def _joined(states: Tensor, spans: Sequence[Span]) -> Tensor:
    parts = [states[:, :, start:stop] for start, stop in spans]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def _refuse_window(window: int | None, blocks: Sequence[tuple[Span, Sequence[Span]]]) -> None:
    """Up to its window, attention over a sliding window is plain attention; beyond it, this module doesn't know it."""
    if window is None:
        return
    longest = max(sum(stop - start for start, stop in [own, *before]) for own, before in blocks)
    if longest > window:
        raise LearnerError(
            f'a row of {longest} tokens is longer than the attention window of {window}; set batch.layout to "padded"'
        )


def _fused(query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
    """Attention of the last tokens of a row, (B, heads, n, size), to all of its tokens (B, heads, m, size)."""
    if query.shape[2] == key.shape[2]:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling)
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=_seen(query, key), scale=scaling)


def _explicit(query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
    """As `_fused`. On CPUs, the backward pass of the fused kernel is several times slower in bfloat16."""
    scores = (query @ key.transpose(2, 3)).mul(scaling).masked_fill(~_seen(query, key), -torch.inf)
    exact = torch.promote_types(scores.dtype, torch.float32)
    return torch.softmax(scores, dim=-1, dtype=exact).to(value.dtype) @ value


def _seen(query: Tensor, key: Tensor) -> Tensor:
    n, m = query.shape[2], key.shape[2]
    return torch.ones(n, m, dtype=torch.bool, device=query.device).tril(m - n)


_KERNELS = {"sdpa": _fused, "eager": _explicit}
for _name, _kernel in _KERNELS.items():
    AttentionInterface.register(_PREFIX + _name, partial(_attend, kernel=_kernel))
