"""Settings of the value model."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class CriticConfig(BaseModel):
    """A model of what an episode will still earn, for estimators that need values. It may learn from single episodes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: Literal["none", "head", "separate"] = "none"
    """"head": a linear layer on the policy's own last hidden states, which it doesn't change: nearly free, and as good as what
    the policy happens to know. "separate": a copy of the policy with such a layer, trained for itself; twice the memory, and
    1.5 to 2 times a step's work."""
    train: Literal["all", "no-attention", "head"] = "all"
    """Which weights of a separate model learn. "no-attention" keeps the attention layers as they were (arXiv 2607.07508)."""
    learning_rate: float = Field(default=1e-3, gt=0.0)
    """Constant, AdamW. Published: 5 times that of the policy."""
    updates_per_step: int = Field(default=2, ge=1)
    """Updates per optimiser step of the policy, each on all episodes of the step."""
    warmup_steps: int = Field(default=10, ge=0)
    """Steps at the start in which the policy isn't trained, so that the first advantages mean something."""
    lam: float = Field(default=1.0, ge=0.0, le=1.0)
    """Lambda of the targets; 1: what was really earned from there on. Discount and what stands behind a limit are the
    estimator's."""
    micro_batch_tokens: int = Field(default=4096, ge=1)
    """Largest number of tokens in one forward pass, padding included."""
    max_grad_norm: float = Field(default=1.0, gt=0.0)
    """Gradients with a larger L2 norm are scaled down to it."""

    @model_validator(mode="after")
    def _settings_act(self) -> Self:
        if self.model == "none" and (given := sorted(self.model_fields_set - {"model"})):
            changed = [name for name in given if getattr(self, name) != type(self).model_fields[name].default]
            if changed:
                raise ValueError(
                    f'{", ".join(changed)} have no effect with model = "none"; set model to "head" or "separate"'
                )
        if self.model == "head" and self.train != "all":
            raise ValueError(
                f'train = {self.train!r} has no effect with model = "head", which only ever trains its layer; leave it out'
            )
        return self
