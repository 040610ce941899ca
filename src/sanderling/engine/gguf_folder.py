"""From a GGUF file to an ordinary Hugging Face folder: llama weights dequantised, tokenizer and chat template rebuilt.

The weights are an approximation of the published ones: what quantisation rounded away does not come back. Needs the extra
`gguf`; torch is not needed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sanderling.errors import ConfigError, ModelError

_CONTROL, _USER_DEFINED = 3, 4  # token types of the format: markers such as <|im_end|>, and text added later

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class _Metadata:
    """The key-value part of a file, with errors that name what is missing."""

    def __init__(self, file: Path, reader: Any) -> None:
        self._file = file
        self._fields = reader.fields

    def get(self, key: str, default: Any = None) -> Any:
        return self._fields[key].contents() if key in self._fields else default

    def need(self, key: str) -> Any:
        if key not in self._fields:
            raise ModelError(f"{self._file} has no {key!r}; it is not a whole model with its tokenizer")
        return self.get(key)


def convert_gguf(file: Path, out: Path) -> None:
    """Write the model of a GGUF file to the folder `out`, which must exist.

    Writes config.json, model.safetensors (float32, the dequantised values as they are), tokenizer.json,
    tokenizer_config.json, chat_template.jinja, generation_config.json and source.json, which names the file, its SHA-256
    and its quantisation.

    Raises:
        ConfigError: the package `gguf` is not installed.
        ModelError: the file is no GGUF file, or of an architecture or tokenizer other than llama with byte-level BPE.
    """
    reader = _open(file)
    metadata = _Metadata(file, reader)
    architecture = metadata.need("general.architecture")
    if architecture != "llama":
        raise ModelError(f"{file} holds a model of architecture {architecture!r}; only 'llama' can be converted")
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    config = _config(metadata, tied="output.weight" not in tensors)
    weights = _weights(file, tensors, config)
    from safetensors.numpy import save_file

    save_file(weights, str(out / "model.safetensors"), metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)  # written as the owner's own
    _write_json(out / "config.json", config)
    _write_json(out / "generation_config.json", {k: config[k] for k in _SPECIAL_IDS if k in config})
    _write_tokenizer(out, metadata, config)
    kinds = sorted({tensor.tensor_type.name for tensor in tensors.values()})
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    note = "weights dequantised from these types: an approximation of the published ones"
    license_of = metadata.get("general.license")
    source = {"file": file.name, "sha256": digest, "tensor_types": kinds, "license": license_of, "note": note}
    _write_json(out / "source.json", source)


def _open(file: Path) -> Any:
    try:
        gguf = import_module("gguf")
    except ImportError as error:
        raise ConfigError(f"reading {file.name} needs the package gguf; pip install 'sanderling[gguf]'") from error
    try:
        return gguf.GGUFReader(str(file))
    except (OSError, ValueError, IndexError) as error:
        raise ModelError(f"{file} can't be read as a GGUF file: {error}; get it again") from error


_SPECIAL_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")


def _config(metadata: _Metadata, *, tied: bool) -> dict[str, Any]:
    """Return config.json of a llama."""
    scaling = metadata.get("llama.rope.scaling.type", "none")
    experts = metadata.get("llama.expert_count", 0)
    if scaling != "none" or experts:
        raise ModelError(f"rope scaling {scaling!r} and {experts} experts; only plain llama layers can be converted")
    heads = int(metadata.need("llama.attention.head_count"))
    width = int(metadata.need("llama.embedding_length"))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "vocab_size": len(metadata.need("tokenizer.ggml.tokens")),
        "hidden_size": width,
        "intermediate_size": int(metadata.need("llama.feed_forward_length")),
        "num_hidden_layers": int(metadata.need("llama.block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": int(metadata.get("llama.attention.head_count_kv", heads)),
        "head_dim": int(metadata.get("llama.rope.dimension_count", width // heads)),
        "max_position_embeddings": int(metadata.need("llama.context_length")),
        "rms_norm_eps": _shortest(metadata.need("llama.attention.layer_norm_rms_epsilon")),
        "rope_theta": _shortest(metadata.get("llama.rope.freq_base", 10000.0)),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
    }
    for short, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        if (found := metadata.get(f"tokenizer.ggml.{key}_token_id")) is not None:
            config[f"{short}_token_id"] = int(found)
    return config


def _shortest(value: float) -> float:
    """Return the number that was meant by a float32: 1e-05 instead of 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def _weights(file: Path, tensors: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, NDArray[np.float32]]:
    dequantize = import_module("gguf.quants").dequantize
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    weights = {}
    for name, tensor in tensors.items():
        target = _target_name(file, name)
        try:
            values = np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        except NotImplementedError as error:
            raise ModelError(f"{file}: {name} is of type {tensor.tensor_type.name}: {error}") from error
        projection = target.split(".")[-2]
        weights[target] = unpermuted(values, heads[projection]) if projection in heads else values
    return weights


def _target_name(file: Path, name: str) -> str:
    """Return the Hugging Face name of a tensor: blk.3.attn_q.weight is model.layers.3.self_attn.q_proj.weight."""
    parts = name.split(".")
    layer = f"model.layers.{parts[1]}." if parts[0] == "blk" else ""
    if parts[-1] != "weight" or parts[-2] not in _NAMES:
        raise ModelError(f"{file} holds the tensor {name!r}, which a plain llama doesn't have; it can't be converted")
    return f"{layer}{_NAMES[parts[-2]]}.weight"


def unpermuted(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Undo llama.cpp's order of the rows of a query or key projection (heads * size, in).

    There the two halves that rotary embeddings turn into each other are interleaved (2i, 2i + 1); in Hugging Face's llama
    they are i and i + size / 2.
    """
    rows, width = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, width)
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(rows, width))


# -- the tokenizer


def _smollm() -> Any:
    from tokenizers import pre_tokenizers

    digits, byte_level = pre_tokenizers.Digits(individual_digits=True), _gpt2()
    return pre_tokenizers.Sequence([digits, byte_level])


def _gpt2() -> Any:
    from tokenizers import pre_tokenizers

    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


_SPLITTERS: Mapping[str, Callable[[], Any]] = {"smollm": _smollm, "gpt-2": _gpt2}
"""How text is cut before merging, by the name that the file gives. Another name is refused: a cut that is nearly right gives
other ids than the model was trained on, without a sign of it."""


def _write_tokenizer(out: Path, metadata: _Metadata, config: Mapping[str, Any]) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models

    kind, splitter = metadata.need("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre", "gpt-2")
    if kind != "gpt2" or splitter not in _SPLITTERS:
        raise ModelError(
            f"a tokenizer of kind {kind!r} that cuts text like {splitter!r} can't be rebuilt; expected gpt2 with one of "
            f"{', '.join(sorted(_SPLITTERS))}"
        )
    tokens, types = metadata.need("tokenizer.ggml.tokens"), metadata.need("tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in metadata.need("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = _SPLITTERS[splitter]()
    tokenizer.decoder = decoders.ByteLevel()
    for token, token_type in zip(tokens, types, strict=True):
        if token_type in (_CONTROL, _USER_DEFINED):
            special = token_type == _CONTROL
            tokenizer.add_tokens([AddedToken(token, special=special, normalized=False)])
    tokenizer.save(str(out / "tokenizer.json"))
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config["max_position_embeddings"],
        "clean_up_tokenization_spaces": False,
    }
    for key in _SPECIAL_IDS:
        if key in config:
            settings[key.removesuffix("_id")] = tokens[config[key]]
    if template := metadata.get("tokenizer.chat_template"):
        settings["chat_template"] = template
        (out / "chat_template.jinja").write_text(template, "utf-8")
    _write_json(out / "tokenizer_config.json", settings)


def _write_json(file: Path, content: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
