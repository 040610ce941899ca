"""Models of a few thousand parameters, for tests that need a real one. Calling these imports torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM


def tiny_llama(*, vocab_size: int = 16, width: int = 32, layers: int = 2, seed: int = 0) -> LlamaForCausalLM:
    """Return a randomly initialised llama with tied embeddings, two heads and room for 128 tokens, in float32.

    The same arguments give the same weights; torch's random state is left as it was.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        initializer_range=0.2,  # wide enough that the distribution isn't flat
        bos_token_id=None,
        eos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).eval()
