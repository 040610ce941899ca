"""Settings of the learner. Batch and loss settings live beside their owners and are gathered here."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from sanderling.batch.config import BatchConfig
from sanderling.loss.config import LossConfig

__all__ = ["BatchConfig", "LearnerConfig", "LossConfig", "OptimizerConfig"]


class OptimizerConfig(BaseModel):
    """AdamW (arXiv 1711.05101) with a linear warm-up to a constant learning rate."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    learning_rate: float = Field(default=3e-4, gt=0.0)
    """Fits models of about a million parameters. About 1e-5 at 100 million, 1e-6 above a billion."""
    warmup_updates: int = Field(default=0, ge=0)
    """Updates over which the rate rises linearly from learning_rate / warmup_updates."""
    beta1: float = Field(default=0.9, ge=0.0, lt=1.0)
    """Decay of the mean of gradients."""
    beta2: float = Field(default=0.99, ge=0.0, lt=1.0)
    """Decay of the mean of squared gradients; runs of a hundred updates need a shorter memory than the usual 0.999."""
    eps: float = Field(default=1e-8, gt=0.0)
    """Added to the root of the mean square."""
    weight_decay: float = Field(default=0.0, ge=0.0)
    """Decoupled decay of all parameters."""
    max_grad_norm: float | None = Field(default=1.0, gt=0.0)
    """Gradients with a larger L2 norm are scaled down to it; None: never."""

    def rate(self, update: int) -> float:
        """Return the learning rate of update 0, 1, 2, ..."""
        return self.learning_rate * min(1.0, (update + 1) / max(1, self.warmup_updates))


class LearnerConfig(BaseModel):
    """Everything that decides what one step does with its rows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    optimizer: OptimizerConfig = OptimizerConfig()
    """The optimiser."""
    loss: LossConfig = LossConfig()
    """The policy loss."""
    batch: BatchConfig = BatchConfig()
    """Weights and micro-batches."""
    temperature: float = Field(default=1.0, ge=0.0)
    """Of the sampler: log-probabilities are those of softmax(logits / temperature); 0 (greedy) is scored at 1."""
    epochs_per_step: int = Field(default=1, ge=1)
    """How often a step goes over its rows."""
    minibatches_per_step: int = Field(default=1, ge=1)
    """Into how many updates one pass is cut. Rows are dealt out by `seed`; the weights of each part are scaled up by
    their number, so that every update has the size of a whole one."""
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    """Arithmetic of the forward pass (autocast). Weights, optimiser and log-softmax stay in float32. bfloat16 pays
    above 5 million parameters; below, float32 keeps the ratio to the sampler at 1."""
    seed: int = Field(default=0, ge=0)
    """Seed of the deal into minibatches."""

    @property
    def updates_per_step(self) -> int:
        """Optimiser updates of a step with enough live rows."""
        return self.epochs_per_step * self.minibatches_per_step
