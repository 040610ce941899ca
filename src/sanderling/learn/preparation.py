"""What is done to a model before it is trained: additions, checkpointing, attention over flat rows."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from sanderling.errors import ConfigError
from sanderling.learn.adapters import add_lora
from sanderling.learn.config import LearnerConfig
from sanderling.loss.flat_attention import use_flat_attention


def prepare(model: PreTrainedModel, config: LearnerConfig) -> PreTrainedModel:
    """Change a model in evaluation mode as the settings say, and return it.

    Raises:
        ConfigError: a setting asks for something that the model or the installation lacks.
        ModelError: its attention can't be replaced.
    """
    if config.batch.layout != "padded":
        use_flat_attention(model)
    if config.lora.rank:
        add_lora(model, config.lora)
    if config.gradient_checkpointing:
        _checkpoint_layers(model)
    return model


def _checkpoint_layers(model: PreTrainedModel) -> None:
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise ConfigError(
            f"trainer.gradient_checkpointing is set, but {type(model).__name__} has no layers that can be computed again; "
            "set it to false"
        )
    for layer in cast(list[Any], layers):
        layer.gradient_checkpointing = True
        layer._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False)
        layer.training = (
            True  # of the layer alone, which only then checkpoints; dropout sits in its parts and stays off
        )
