"""Loading Hugging Face causal language models, and the one call that the engine makes of them."""

from __future__ import annotations

import inspect
from collections.abc import Generator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch

from sanderling.engine.model_folder import ModelFolder, inspect_folder
from sanderling.engine.torch_kv_cache import SlotCache, Window
from sanderling.errors import ConfigError, ModelError

PROBE_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}
"""Difference allowed between the logits of a plain and a cached pass, relative to their spread; other dtypes: 0.1."""


class ModelDtype(StrEnum):
    """Storage of the weights."""

    AUTO = "auto"  # as the folder says
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


class Attention(StrEnum):
    """Attention code inside transformers."""

    SDPA = "sdpa"  # fastest here for sampling, and for training in float32
    EAGER = "eager"  # plain matmul and softmax


def check_device(device: str, *, bfloat16: bool) -> None:
    """Refuse a device that can't do the work.

    CPUs compute bfloat16 everywhere, those without such instructions by way of float32 (`native_bfloat16` says which).

    Raises:
        ConfigError: no such device here, or it lacks bfloat16 arithmetic where `bfloat16` asks for it.
    """
    try:
        kind = torch.device(device).type
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"engine.device is {device!r}, which torch can't use here: {reason}") from error
    if bfloat16 and kind == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise ConfigError(f"{torch.cuda.get_device_name(device)} has no bfloat16 arithmetic; set the dtypes to float32")


def native_bfloat16(device: str) -> bool:
    """Return whether the device multiplies bfloat16 matrices by instructions of its own."""
    if torch.device(device).type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # Of x86 only; where torch has no such question, the answer is the careful one.
    asked = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, bool)() for name in asked)


def load_model(
    folder: Path,
    *,
    dtype: ModelDtype = ModelDtype.AUTO,
    attention: Attention = Attention.SDPA,
    device: str = "cpu",
) -> Any:
    """Load a causal language model with `AutoModelForCausalLM.from_pretrained`, in evaluation mode.

    Raises:
        ModelError: the folder is missing or incomplete, a weight file is broken, weights are missing or of another shape,
            the vocabulary is smaller than the tokenizer's, or transformers can't build the architecture.
    """
    checked = inspect_folder(folder)
    import transformers

    loader: Any = transformers.AutoModelForCausalLM
    try:
        with no_progress_bars():
            model, report = loader.from_pretrained(
                str(folder),
                dtype=dtype.value,
                attn_implementation=attention.value,
                local_files_only=True,
                output_loading_info=True,
            )
    except Exception as error:  # transformers raises whatever its layers raise
        raise ModelError(f"transformers can't load {folder}: {type(error).__name__}: {error}") from error
    _refuse_partial(folder, report)
    _refuse_small_vocabulary(checked, model)
    return model.to(device).eval()


def _refuse_partial(folder: Path, report: dict[str, Any]) -> None:
    """Weights that the folder lacks would be random numbers: refuse them instead."""
    for kind in ("missing_keys", "mismatched_keys", "error_msgs"):
        found = [str(name) for name in report.get(kind) or ()]
        if found:
            raise ModelError(
                f"{folder} does not hold all weights of its config: {kind} {', '.join(sorted(found)[:5])} "
                f"({len(found)} in all); save the model again, whole"
            )


def _refuse_small_vocabulary(checked: ModelFolder, model: Any) -> None:
    rows = model.get_input_embeddings().num_embeddings
    if checked.tokenizer_size is not None and rows < checked.tokenizer_size:
        raise ModelError(
            f"the model in {checked.path} embeds {rows} tokens but its tokenizer has {checked.tokenizer_size}; "
            "resize the embedding or use the tokenizer that the model was trained with"
        )


@contextmanager
def no_progress_bars() -> Generator[None]:
    """Keep transformers' progress bars off the terminal while a library call is at work."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


class CausalModel:
    """A causal language model as the decoder sees it: ids, positions and a slot cache in, last logits out.

    Raises:
        ModelError: the model keeps state other than keys and values of all tokens (recurrent layers), or a probe shows
            that sampling with the slot cache is not what the model computes.
    """

    def __init__(self, module: Any) -> None:
        self.module = module
        config = module.config.get_text_config()
        weight = module.get_input_embeddings().weight
        self.device: torch.device = weight.device
        self.dtype: torch.dtype = weight.dtype
        self.vocab_size: int = weight.shape[0]
        self.num_layers: int = config.num_hidden_layers
        self.max_positions: int | None = _max_positions(config)
        accepted = inspect.signature(module.forward).parameters
        # transformers 5.24 renamed the argument; both names are in use
        self._cache_name = "cache" if "cache" in accepted else "past_key_values"
        self._extra = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}
        self._masked = torch.finfo(self.dtype).min
        self.bytes_per_token = self._probe()

    def new_cache(self, *, slots: int, capacity: int) -> SlotCache:
        return SlotCache(self.num_layers, slots=slots, capacity=capacity)

    def __call__(self, tokens: torch.Tensor, positions: torch.Tensor, cache: SlotCache) -> torch.Tensor:
        """Return the logits (b, V) after the last token of each row.

        `tokens` and `positions` are (b, W); rows shorter than W are padded on the left with position 0. A token at
        position p sees the keys at positions 0..p of its row.
        """
        keys = torch.arange(cache.window.length, device=self.device)
        hidden = keys > positions[:, None, :, None]
        mask = torch.zeros(hidden.shape, dtype=self.dtype, device=self.device).masked_fill_(hidden, self._masked)
        output = self.module(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            use_cache=True,
            **{self._cache_name: cache},
            **self._extra,
        )
        return output.logits[:, -1]

    @torch.inference_mode()
    def _probe(self) -> int:
        """Compare a plain forward pass with two cached ones, ragged and padded; return the cache's bytes per token."""
        length = min(9, (self.max_positions or 9))
        ids = torch.arange(2 * length, device=self.device).mul(7).remainder(self.vocab_size).view(2, length)
        try:
            plain = self.module(input_ids=ids, use_cache=False).logits[:, -1].float()
            cache = self.new_cache(slots=2, capacity=length)
            cached = self._probe_cached(ids, cache).float()
        except Exception as error:
            raise ModelError(
                f"{type(self.module).__name__} can't be sampled with the built-in KV cache: {error}. Use an architecture "
                "with plain attention in every layer, or another engine"
            ) from error
        spread = (plain - plain.mean(-1, keepdim=True)).norm()
        difference = float((plain - cached).norm() / spread.clamp(min=1e-6))
        if not difference <= PROBE_TOLERANCE.get(self.dtype, 0.1):
            raise ModelError(
                f"{type(self.module).__name__} gives other logits with the built-in KV cache than without (difference "
                f"{difference:.3g} of their spread); its attention is not supported, use another engine"
            )
        return cache.bytes_per_token

    def _probe_cached(self, ids: torch.Tensor, cache: SlotCache) -> torch.Tensor:
        """Fill row 0 with 2 tokens and row 1 with 4, then add the rest: the second pass is ragged and padded."""
        length = ids.shape[1]
        logits = torch.empty(0)
        for start, stop in (((0, 0), (2, 4)), ((2, 4), (length, length))):
            width = max(b - a for a, b in zip(start, stop, strict=True))
            tokens, positions, slots = torch.zeros(3, 2, width, dtype=torch.long, device=self.device)
            slots += cache.slots  # the spare one
            for row, (a, b) in enumerate(zip(start, stop, strict=True)):
                span = torch.arange(a, b, device=self.device)
                tokens[row, width - (b - a) :] = ids[row, a:b]
                positions[row, width - (b - a) :] = span
                slots[row, width - (b - a) :] = row
            cache.window = Window(rows=slice(0, 2), length=max(stop), slots=slots, positions=positions)
            logits = self(tokens, positions, cache)
        return logits


def _max_positions(config: Any) -> int | None:
    """Return the longest context that the model takes, or None where its config doesn't say.

    Up to its window, attention over a sliding window is plain attention: such a model is used that far and no further.
    """
    limits = [getattr(config, name, None) for name in ("max_position_embeddings", "n_positions")]
    kinds = set(getattr(config, "layer_types", None) or ())
    if not kinds <= {"full_attention", "sliding_attention", "chunked_attention"}:
        raise ModelError(
            f"{config.model_type} has layers of kind {sorted(kinds)}; the built-in engine keeps keys and values only, so "
            "recurrent and linear attention need another engine"
        )
    window = getattr(config, "sliding_window", None)
    if "sliding_attention" in kinds or (not kinds and getattr(config, "use_sliding_window", True)):
        limits.append(window)
    if "chunked_attention" in kinds:
        limits.append(getattr(config, "attention_chunk_size", None))
    return min((limit for limit in limits if limit), default=None)
