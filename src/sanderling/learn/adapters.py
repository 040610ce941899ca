"""Low-rank additions to the linear layers of a model (LoRA, arXiv 2106.09685), through peft."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from sanderling.errors import ConfigError
from sanderling.learn.config import LoraConfig

_NAME = "default"  # peft's name of the one addition
_MARK = ".lora_"


def add_lora(model: PreTrainedModel, config: LoraConfig) -> None:
    """Freeze a model and give its linear layers additions, float32, that start at zero. The model itself is changed.

    Raises:
        ConfigError: peft is not installed, or no layer has one of the names in `config.targets`.
    """
    try:
        import peft
    except ImportError as error:
        raise ConfigError(
            f"trainer.lora.rank = {config.rank} needs the package peft; pip install 'sanderling[lora]'"
        ) from error
    settings = peft.LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,
        target_modules=list(config.targets) or "all-linear",
        lora_dropout=0.0,
        bias="none",
    )
    try:
        peft.inject_adapter_in_model(settings, model, adapter_name=_NAME)
    except ValueError as error:
        raise ConfigError(f"trainer.lora.targets = {list(config.targets)}: {error}") from error
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(_MARK in name)
        if _MARK in name:
            parameter.data = parameter.data.float()


def additions(model: nn.Module) -> dict[str, Tensor]:
    """Return the additions' own parameters by name; {} where there are none."""
    return {name: parameter.detach() for name, parameter in model.named_parameters() if _MARK in name}


@torch.no_grad()
def load_additions(model: nn.Module, saved: Mapping[str, Tensor]) -> None:
    """Copy additions in place.

    Raises:
        ValueError: names or shapes differ.
    """
    own = additions(model)
    if own.keys() != saved.keys():
        raise ValueError(f"its additions are {sorted(saved)[:3]} ..., expected {sorted(own)[:3]} ...")
    for name, tensor in own.items():
        if tensor.shape != saved[name].shape:
            raise ValueError(f"{name} has shape {tuple(saved[name].shape)}, expected {tuple(tensor.shape)}")
        tensor.copy_(saved[name])


@torch.no_grad()
def merged_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the state dict of the plain model: each weight with its addition added up, in float32, names as before."""
    sums = {
        name: module.get_delta_weight(_NAME)
        for name, module in model.named_modules()
        if hasattr(module, "get_delta_weight") and hasattr(module, "lora_A")
    }
    merged: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        if _MARK in name:
            continue
        layer, inside, leaf = name.partition(".base_layer.")
        if inside and leaf == "weight":
            merged[f"{layer}.{leaf}"] = tensor.float() + sums[layer]
        else:
            merged[f"{layer}.{leaf}" if inside else name] = tensor.detach()
    return merged
