"""Settings of the policy loss."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class LossConfig(BaseModel):
    """The clipped policy loss (PPO, arXiv 1707.06347, eq. 7) with separate bounds (clip-higher, arXiv 2503.14476, eq.
    10)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    clip_low: float = Field(default=0.2, ge=0.0, lt=1.0)
    """The ratio of new to old probability is clipped below 1 - clip_low."""
    clip_high: float = Field(default=0.28, ge=0.0)
    """The ratio is clipped above 1 + clip_high; more room upwards keeps rare actions alive."""
    dual_clip: float | None = Field(default=None, gt=1.0)
    """Bound c on the loss of tokens with negative advantage: at most -c A (arXiv 1912.09729, eq. 5). None: no bound.
    Published settings use 3."""
    old_logprobs: Literal["rollout", "recompute"] = "rollout"
    """Denominator of the ratio: what the sampler reported, or a forward pass of the trainer before the first update
    of the step. "recompute" costs about a third of a step; it separates the clip from how stale the sampler was."""
    correction: Literal["none", "truncate", "mask"] = "none"
    """With "recompute": weight each token by w = recomputed / rollout probability (decoupled PPO, arXiv 2505.24298,
    eq. 5). "truncate" caps w at correction_high, "mask" zeroes tokens with w outside [correction_low,
    correction_high]."""
    correction_low: float = Field(default=0.5, ge=0.0)
    """Lower bound of w for "mask"."""
    correction_high: float = Field(default=2.0, gt=0.0)
    """Upper bound of w."""
    entropy_coefficient: float = Field(default=0.0, ge=0.0)
    """Bonus on the entropy of the next-token distribution, in loss units per nat. 0: entropy is only measured."""

    @model_validator(mode="after")
    def _correction_needs_recompute(self) -> Self:
        if self.correction != "none" and self.old_logprobs == "rollout":
            raise ValueError(
                f"correction={self.correction!r} compares recomputed with rollout log-probabilities and has no effect with "
                'old_logprobs="rollout"; set old_logprobs="recompute" or correction="none"'
            )
        return self

    @property
    def has_other_terms(self) -> bool:
        """Whether rows without advantage still have a gradient."""
        return self.entropy_coefficient > 0.0
