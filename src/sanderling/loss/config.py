"""Settings of the policy loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Surrogate = Literal["ppo", "gspo", "cispo", "dis", "k2.5", "dppo-tv"]

SEQUENCE_LEVEL: frozenset[str] = frozenset({"gspo"})
"""Surrogates whose ratio is that of a whole sequence."""

AGAINST_SAMPLER: frozenset[str] = frozenset({"dis", "k2.5", "dppo-tv"})
"""Surrogates whose ratio is to the sampler, whatever stood at the start of the update."""

_ACTS_FOR: Mapping[str, frozenset[str]] = {
    "clip_low": frozenset({"ppo", "gspo"}),
    "clip_high": frozenset({"ppo", "gspo", "cispo"}),
    "dual_clip": frozenset({"ppo"}),
    "ratio_low": frozenset({"dis", "k2.5"}),
    "ratio_high": frozenset({"dis", "k2.5"}),
    "probability_bound": frozenset({"dppo-tv"}),
}


class LossConfig(BaseModel):
    """The policy loss: a surrogate of the expected advantage, corrections for the sampler, and penalties.

    rho is the ratio of new to old probability of a token, r that to the sampler's. The default is the clipped loss (PPO, arXiv
    1707.06347, eq. 7) with separate bounds (clip-higher, arXiv 2503.14476, eq. 10).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    surrogate: Surrogate = "ppo"
    """"ppo": clipped rho. "gspo" (arXiv 2507.18071): rho of the sequence, exp(mean log rho), clipped; its published bounds are
    3e-4 and 4e-4, with sequence-mean aggregation. "cispo" (arXiv 2506.13585): log-probabilities weighted by rho capped at
    1 + clip_high; every token keeps a gradient. "dis" (arXiv 2602.15763): weighted by r inside (ratio_low, ratio_high), by 0
    outside. "k2.5" (arXiv 2602.02276): r clipped to [ratio_low, ratio_high] whatever the sign of the advantage; use it with
    log_ratio_penalty. "dppo-tv" (arXiv 2602.04879): weighted by r, off where the probability has moved by more than
    probability_bound in the direction of the advantage."""
    clip_low: float = Field(default=0.2, ge=0.0, lt=1.0)
    """The ratio of new to old probability is clipped below 1 - clip_low."""
    clip_high: float = Field(default=0.28, ge=0.0)
    """The ratio is clipped above 1 + clip_high; more room upwards keeps rare actions alive. A delta from 1 for every surrogate
    (TRL's epsilon_high of CISPO is the cap itself)."""
    dual_clip: float | None = Field(default=None, gt=1.0)
    """Bound c on the loss of tokens with negative advantage: at most -c A (arXiv 1912.09729, eq. 5). None: no bound.
    Published settings use 3."""
    ratio_low: float = Field(default=0.2, ge=0.0, lt=1.0)
    """Lower end of the window of r. Published for DIS on code 0.2, on mathematics 0.7."""
    ratio_high: float = Field(default=4.0, gt=1.0)
    """Upper end of the window of r. Published for DIS on code 4, on mathematics 6."""
    probability_bound: float = Field(default=0.2, gt=0.0, le=1.0)
    """How far the probability of a token may move from the sampler's."""
    old_logprobs: Literal["rollout", "recompute", "interpolate"] = "rollout"
    """Denominator of rho: what the sampler reported; a forward pass of the trainer before the first update of the step; or a
    mixture of the sampler's and the present log-probability by age (A-3PO, arXiv 2512.06547). "recompute" costs about a third
    of a step; it separates the clip from how stale the sampler was. "interpolate" does so for nothing, about."""
    correction: Literal["none", "full", "truncate", "mask"] = "none"
    """Unless old_logprobs is "rollout": weight each token by w = old / rollout probability (decoupled PPO, arXiv 2505.24298,
    eq. 5). "full" takes w as it is, "truncate" caps it at correction_high (TIS), "mask" zeroes tokens with w outside
    [correction_low, correction_high] (MIS; IcePop, arXiv 2510.18855, with 0.5 and 5)."""
    correction_level: Literal["token", "sequence", "geometric"] = "token"
    """Whether w is that of the token, the product over its sequence, or the geometric mean over its sequence."""
    correction_low: float = Field(default=0.5, ge=0.0)
    """Lower bound of w for "mask"."""
    correction_high: float = Field(default=2.0, gt=0.0)
    """Upper bound of w."""
    drift_bound: float | None = Field(default=None, ge=0.0)
    """Off-policy sequence masking (OPSM; DeepSeek-V3.2, arXiv 2512.02556): tokens with negative advantage are left out where
    the mean of log(sampler / policy) over their sequence is above this many nats. None: nothing is left out."""
    log_ratio_penalty: float = Field(default=0.0, ge=0.0)
    """tau: tau (log r)^2 is added for each token, which pulls back to the sampler. K2.5 needs it; DPPO has 1e-3."""
    kl_coefficient: float = Field(default=0.0, ge=0.0)
    """Weight of the KL divergence from the policy that the run started with, in loss units per nat. Above 0 a copy of that
    policy is kept, and each update costs a forward pass of it."""
    kl_estimator: Literal["k2", "k3", "unbiased"] = "unbiased"
    """How the divergence is estimated from sampled tokens. The gradient of "k2" and "k3" is right (k3's only nearly) where
    the sampler is the policy; "unbiased" (arXiv 2512.02556, eq. 7) weights k3 by rho, and is right where it isn't, too."""
    entropy_coefficient: float = Field(default=0.0, ge=0.0)
    """Bonus on the entropy of the next-token distribution, in loss units per nat. 0: entropy is only measured."""

    @model_validator(mode="after")
    def _settings_act(self) -> Self:
        for name, surrogates in _ACTS_FOR.items():
            if name in self.model_fields_set and self.surrogate not in surrogates and self._differs(name):
                raise ValueError(
                    f"{name}={getattr(self, name)} has no effect with surrogate={self.surrogate!r}; it acts for "
                    f"{', '.join(sorted(surrogates))}"
                )
        if self.surrogate in AGAINST_SAMPLER and self.old_logprobs != "rollout":
            raise ValueError(
                f"old_logprobs={self.old_logprobs!r} has no effect with surrogate={self.surrogate!r}, whose ratio is to the "
                'sampler; set old_logprobs="rollout"'
            )
        return self

    @model_validator(mode="after")
    def _correction_needs_another_policy(self) -> Self:
        if self.correction != "none" and self.old_logprobs == "rollout":
            raise ValueError(
                f"correction={self.correction!r} compares recomputed with rollout log-probabilities and has no effect with "
                'old_logprobs="rollout"; set old_logprobs="recompute" or correction="none"'
            )
        if self.correction == "none" and self.correction_level != "token":
            raise ValueError(f'correction_level={self.correction_level!r} has no effect with correction="none"')
        return self

    @model_validator(mode="after")
    def _bounds_act(self) -> Self:
        acts = {
            "correction_low": self.correction == "mask",
            "correction_high": self.correction in ("truncate", "mask"),
            "kl_estimator": self.kl_coefficient > 0.0,
        }
        for name, does in acts.items():
            if not does and self._differs(name):
                raise ValueError(
                    f"{name}={getattr(self, name)!r} has no effect with correction={self.correction!r} and "
                    f"kl_coefficient={self.kl_coefficient}; leave it out"
                )
        return self

    def _differs(self, name: str) -> bool:
        return getattr(self, name) != type(self).model_fields[name].default

    @property
    def has_other_terms(self) -> bool:
        """Whether rows without advantage still have a gradient."""
        return self.entropy_coefficient > 0.0 or self.log_ratio_penalty > 0.0 or self.kl_coefficient > 0.0

    @property
    def needs_entropy(self) -> bool:
        """Whether the entropy of each token is a part of the loss."""
        return self.entropy_coefficient > 0.0

    @property
    def needs_sequences(self) -> bool:
        """Whether a token's loss depends on the other tokens of its sequence."""
        return self.surrogate in SEQUENCE_LEVEL or self.correction_level != "token" or self.drift_bound is not None
