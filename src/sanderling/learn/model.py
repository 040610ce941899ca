"""Loading a policy from a Hugging Face model folder."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging

from sanderling.errors import ModelError


def load_policy(
    folder: Path, *, device: str = "cpu", attention: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
) -> PreTrainedModel:
    """Load a causal language model from disk in float32; nothing is downloaded.

    Args:
        folder: config.json and *.safetensors as `save_pretrained` writes them.
        device: as torch names it, such as "cpu" or "cuda:0".
        attention: implementation inside the model.

    Raises:
        ModelError: no such folder, or it holds no causal language model that transformers can load.
    """
    if not (folder / "config.json").is_file():
        raise ModelError(f"no config.json in {folder}; a model folder needs config.json, weights and tokenizer.json")
    try:
        with no_progress_bars():
            model = AutoModelForCausalLM.from_pretrained(
                folder, dtype=torch.float32, attn_implementation=attention, local_files_only=True
            )
    except Exception as error:  # transformers raises many kinds, some of them bare
        raise ModelError(f"{folder} can't be loaded as a causal language model: {error}") from error
    return model.to(device).eval()


@contextmanager
def no_progress_bars() -> Generator[None]:
    """Keep transformers' progress bars off the terminal."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
