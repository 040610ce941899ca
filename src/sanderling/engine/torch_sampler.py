"""Drawing tokens: temperature, nucleus, greedy; every draw is a function of (seed, position) and the row's own logits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from sanderling.engine.protocol import SamplingParams
from sanderling.errors import ConfigError

NUCLEUS_TOLERANCE = 1e-6
"""Mass by which the kept set may miss `top_p`: probabilities .5 and .3 must reach .8 in spite of rounding."""

_SEED_MASK = (1 << 128) - 1


def check_params(params: SamplingParams) -> None:
    """Refuse sampling parameters without a meaning.

    Raises:
        ConfigError: a parameter is outside its range.
    """
    if not (math.isfinite(params.temperature) and params.temperature >= 0.0):
        raise ConfigError(f"temperature is {params.temperature}; expected a finite number, 0 (greedy) or above")
    if not 0.0 < params.top_p <= 1.0:
        raise ConfigError(f"top_p is {params.top_p}; expected a number above 0 and at most 1")
    if params.max_tokens < 1:
        raise ConfigError(f"max_tokens is {params.max_tokens}; expected at least 1")


def uniforms(seed: int, count: int) -> NDArray[np.float64]:
    """Return draws (count,) in [0, 1) from the Philox stream of `seed`; the first k are the same for every count >= k."""
    raw = np.asarray(np.random.Philox(seed & _SEED_MASK).random_raw(count), dtype=np.uint64)
    return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True, slots=True, kw_only=True)
class RowParams:
    """The sampling parameters of the rows of one batch, as tensors; None where no row needs the treatment."""

    temperatures: torch.Tensor | None  # (n, 1), 1.0 for greedy rows
    top_ps: torch.Tensor | None  # (n, 1), 1.0 for greedy rows
    greedy: torch.Tensor | None  # (n,) bool

    @classmethod
    def of(cls, params: Sequence[SamplingParams], device: torch.device) -> RowParams:
        temperatures = [p.temperature or 1.0 for p in params]
        top_ps = [p.top_p if p.temperature > 0.0 else 1.0 for p in params]
        greedy = [p.temperature == 0.0 for p in params]

        def column(values: list[float]) -> torch.Tensor | None:
            if all(value == 1.0 for value in values):
                return None
            return torch.tensor(values, dtype=torch.float32, device=device).unsqueeze(1)

        return cls(
            temperatures=column(temperatures),
            top_ps=column(top_ps),
            greedy=torch.tensor(greedy, device=device) if any(greedy) else None,
        )


def draw(logits: torch.Tensor, params: RowParams, uniform: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw one token per row by inverting the cumulative distribution.

    `logits` (n, V) in any float dtype, `uniform` (n,) float64 in [0, 1). Returns token ids (n,) int64 and their
    log-probabilities (n,) float32 under the distribution that was drawn from (`SamplingParams`).
    """
    logits = logits.float()
    if params.temperatures is not None:
        logits = logits / params.temperatures
    logprobs = torch.log_softmax(logits, dim=-1)
    if params.top_ps is not None:
        logprobs = nucleus(logprobs, params.top_ps)
    cumulative = logprobs.exp().cumsum(dim=-1, dtype=torch.float64)
    # The mass is 1 up to rounding. Scaling by it keeps the point below the last step of the curve, and `right` steps over
    # tokens without mass, so an impossible token can't be drawn.
    point = uniform.unsqueeze(1) * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, point, right=True)
    if params.greedy is not None:
        tokens = torch.where(params.greedy.unsqueeze(1), logits.argmax(dim=-1, keepdim=True), tokens)
    tokens.clamp_(max=logits.shape[-1] - 1)  # reached only with non-finite logits, which the caller refuses
    return tokens.squeeze(1), logprobs.gather(1, tokens).squeeze(1)


def nucleus(logprobs: torch.Tensor, top_ps: torch.Tensor) -> torch.Tensor:
    """Cut log-probabilities (n, V) to the smallest set whose mass reaches `top_ps` (n, 1), and renormalise.

    Tokens outside the set get -inf; equal probabilities are kept by ascending id. Holtzman et al., arXiv 1904.09751, eq. 2.
    """
    ordered, order = torch.sort(logprobs, dim=-1, descending=True, stable=True)
    mass = ordered.exp().double()
    before = mass.cumsum(dim=-1) - mass
    kept = before < top_ps.double() - NUCLEUS_TOLERANCE
    kept[:, 0] = True
    kept |= top_ps >= 1.0  # rows without a cut keep everything, to the last ulp
    cut = logprobs.masked_fill(~torch.zeros_like(kept).scatter_(1, order, kept), -torch.inf)
    total = torch.where(kept, mass, 0.0).sum(dim=-1, keepdim=True)
    return torch.where(top_ps >= 1.0, logprobs, cut - total.log().float())
