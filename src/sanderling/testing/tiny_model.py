"""A real Hugging Face model folder, random and very small, made in a fraction of a second."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sanderling.testing.toy_tokenizer import SPECIAL_TOKENS

_CORPUS = (
    "def clamp(value, low, high):\n    if value < low:\n        return low\n    return min(value, high)\n",
    "cat solution.py\ntest\nset 3 |     return total\nsubmit\n",
    "def total(items):\n    result = 0\n    for item in items:\n        result = result + item\n    return result\n",
    "1 failed: clamp(5, 0, 3) returned 5, expected 3\n2 passed\n",
)


def tiny_llama_folder(
    path: Path, *, vocab: int = 320, seed: int = 0, scale: float = 0.3, tied: bool = True, head_dim: int = 8
) -> Path:
    """Write a `LlamaForCausalLM` folder with random weights and a small byte-level BPE tokenizer; return `path`.

    32 wide, 2 layers, 4 heads over 2 key-value heads, 2,048 positions, about 30 thousand parameters. The tokenizer has the
    256 bytes, merges learned from four lines of code, and the special tokens of `ToyTokenizer`; "<|end|>" ends an action.
    `scale` is the standard deviation of the weights: at 0.3 the next-token distribution is far from uniform. `head_dim` is
    the width of a head; kernels of other engines know some widths only. Equal arguments give equal weights.

    Raises:
        ValueError: `vocab` is smaller than bytes and special tokens together.
    """
    smallest = 256 + len(SPECIAL_TOKENS)
    if vocab < smallest:
        raise ValueError(f"vocab is {vocab}; expected at least {smallest} (bytes and special tokens)")
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    path.mkdir(parents=True, exist_ok=True)
    ids = _write_tokenizer(path, vocab)
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=head_dim,
        max_position_embeddings=2048,
        initializer_range=scale,
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=ids["<|end|>"],
        pad_token_id=ids["<|pad|>"],
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    _save(model, path)
    return path


def _write_tokenizer(path: Path, vocab: int) -> dict[str, int]:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    tokenizer.save(str(path / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>", "pad_token": "<|pad|>"}
    (path / "tokenizer_config.json").write_text(json.dumps(settings, indent=1), "utf-8")
    vocabulary = tokenizer.get_vocab()
    return {token: vocabulary[token] for token in SPECIAL_TOKENS}


def _save(model: Any, path: Path) -> None:
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        model.save_pretrained(path)
    finally:
        if shown:
            logging.enable_progress_bar()
