"""Settings of the learner. Batch and loss settings live beside their owners and are gathered here."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sanderling.batch.config import BatchConfig
from sanderling.loss.config import LossConfig

__all__ = ["BatchConfig", "LearnerConfig", "LoraConfig", "LossConfig", "OptimizerConfig", "TrainerConfig"]


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


class LoraConfig(BaseModel):
    """Train low-rank additions to the linear layers instead of the weights themselves (arXiv 2106.09685), through peft."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rank: int = Field(default=0, ge=0)
    """Rank of the additions; 0: none, all weights are trained. 8 to 32 is usual for reinforcement learning. Saves memory:
    gradients and optimiser hold the additions only. On a CPU it saves no time."""
    alpha: int = Field(default=32, ge=1)
    """An addition B A counts alpha / rank times."""
    targets: tuple[str, ...] = ()
    """Names of the linear layers that get one, such as "q_proj"; empty: all but the head."""


class TrainerConfig(BaseModel):
    """How the trainer holds and computes the policy. Nothing here changes what is optimised."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    """Arithmetic of the forward pass (autocast). Weights, optimiser and log-softmax stay in float32. bfloat16 pays
    above 5 million parameters where the hardware has it; below, float32 keeps the ratio to the sampler at 1."""
    weight_dtype: Literal["float32", "bfloat16"] = "float32"
    """Storage of the weights. bfloat16 needs lora.rank and compute_dtype "bfloat16": it is for weights that stay as they
    are, because a small update would be rounded away. The additions are always float32."""
    processes: int = Field(default=1, ge=1)
    """Processes of this machine that share the micro-batches of each update, the one that runs the job included. They give the
    gradient of one process up to float error; each holds the model, and on GPUs needs one of its own. A value model is trained
    by the job's process alone."""
    threads: int = Field(default=0, ge=0)
    """CPU threads of torch in the trainer, all of its processes together; 0: those of the whole job."""
    gradient_checkpointing: bool = False
    """Keep only what enters each layer, and compute the layer again in the backward pass: far less memory for about a
    third more time."""
    lora: LoraConfig = LoraConfig()
    """Low-rank additions."""

    @model_validator(mode="after")
    def _rounded_weights_stay(self) -> Self:
        if self.weight_dtype == "bfloat16" and (self.lora.rank == 0 or self.compute_dtype != "bfloat16"):
            raise ValueError(
                f'weight_dtype="bfloat16" with lora.rank={self.lora.rank} and compute_dtype={self.compute_dtype!r}: updates '
                'of bfloat16 weights would be rounded away; set weight_dtype="float32", or lora.rank above 0 and '
                'compute_dtype="bfloat16"'
            )
        return self


class LearnerConfig(TrainerConfig):
    """Everything that decides what one step does with its rows."""

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
    seed: int = Field(default=0, ge=0)
    """Seed of the deal into minibatches."""

    @property
    def updates_per_step(self) -> int:
        """Optimiser updates of a step with enough live rows."""
        return self.epochs_per_step * self.minibatches_per_step
