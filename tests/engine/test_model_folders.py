"""From a policy's name to a loaded model, and a clear refusal for each way in which a folder can be broken."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from sanderling.engine.model_folder import inspect_folder, resolve_policy
from sanderling.engine.torch_model import Attention, ModelDtype, load_model
from sanderling.errors import ModelError
from sanderling.harness.tokenizer import FastTokenizer
from sanderling.testing.engines import ToyTokenizer, tiny_llama_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_llama_folder(tmp_path / "model")


def test_a_whole_folder(folder: Path) -> None:
    found = inspect_folder(folder)
    assert (found.architecture, found.vocab_size, found.tokenizer_size) == ("LlamaForCausalLM", 320, 320)
    model = load_model(folder)
    assert not model.training and model.dtype == torch.float32
    assert model.config._attn_implementation == "sdpa"


def test_dtype_and_attention_settings(folder: Path) -> None:
    model = load_model(folder, dtype=ModelDtype.BFLOAT16, attention=Attention.EAGER)
    assert model.dtype == torch.bfloat16 and model.config._attn_implementation == "eager"
    model.save_pretrained(folder)
    assert load_model(folder, dtype=ModelDtype.AUTO).dtype == torch.bfloat16
    assert load_model(folder, dtype=ModelDtype.FLOAT32).dtype == torch.float32


def test_equal_seeds_make_equal_folders(folder: Path, tmp_path: Path) -> None:
    same, other = tiny_llama_folder(tmp_path / "same"), tiny_llama_folder(tmp_path / "other", seed=1)
    weights = [(f / "model.safetensors").read_bytes() for f in (folder, same, other)]
    assert weights[0] == weights[1] != weights[2]
    tokenizer = FastTokenizer(folder)
    assert tokenizer.decode(tokenizer.encode("return low\n")) == "return low\n"
    assert tokenizer.eos_id == tokenizer.special_id("<|end|>") == 0


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no model folder .*nowhere"):
        load_model(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_missing_file(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ModelError, match=f"no {name}"):
        load_model(folder)


def test_missing_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="no weights"):
        load_model(folder)


def test_missing_shard(folder: Path) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "model-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"model-00002\.safetensors are missing"):
        load_model(folder)


@pytest.mark.parametrize("keep", [0, 7, 200, 0.5, -1])
def test_broken_safetensors(folder: Path, keep: float) -> None:
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[: int(len(whole) * keep) if isinstance(keep, float) else keep])
    with pytest.raises(ModelError, match=r"model\.safetensors \(\d+ bytes\) is cut off or no safetensors file"):
        load_model(folder)


def test_missing_tensor_is_not_replaced_by_random_numbers(folder: Path) -> None:
    file = folder / "model.safetensors"
    weights = load_file(file)
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"missing_keys model\.layers\.1\.mlp\.up_proj\.weight"):
        load_model(folder)


def test_tensor_of_another_shape(folder: Path) -> None:
    file = folder / "model.safetensors"
    weights = load_file(file)
    weights["model.norm.weight"] = torch.zeros(7)
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"model\.norm\.weight|mismatch|size"):
        load_model(folder)


def test_vocabulary_smaller_than_the_tokenizers(folder: Path, tmp_path: Path) -> None:
    large = tiny_llama_folder(tmp_path / "large", vocab=340)
    (folder / "tokenizer.json").write_bytes((large / "tokenizer.json").read_bytes())
    with pytest.raises(ModelError, match=r"vocabulary of 320 tokens but tokenizer\.json has 340"):
        load_model(folder)


@pytest.mark.parametrize(("name", "text"), [("config.json", "{"), ("config.json", "[]"), ("tokenizer.json", "{}")])
def test_unreadable_json(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    with pytest.raises(ModelError, match=name.replace(".", r"\.")):
        load_model(folder)


def test_unknown_architecture(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "of-the-future"}))
    with pytest.raises(ModelError, match="transformers can't load"):
        load_model(folder)


def test_loading_prints_nothing(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load_model(folder)
    assert capfd.readouterr() == ("", "")


def test_a_folder_resolves_to_itself(folder: Path) -> None:
    assert resolve_policy(str(folder)) == folder


def test_unknown_names_are_refused_with_what_exists() -> None:
    with pytest.raises(
        ModelError, match=r"no policy of that name; did you mean 'fix-python-tiny'\?.*Registered policies:"
    ):
        resolve_policy("fix-python-tin")
    with pytest.raises(ModelError, match=r"no model folder '\./nowhere/model'"):
        resolve_policy("./nowhere/model")


def test_an_unknown_hub_id_is_refused_without_network() -> None:
    with pytest.raises(ModelError, match="the hub gave no model of that id"):
        resolve_policy("nobody/has-this-model", local_files_only=True)


def test_engine_contracts_import_no_torch() -> None:
    modules = "engine.protocol engine.model_folder engine.weights engine.agreement engine.sessions testing.engines"
    code = "import sys; " + "".join(f"import sanderling.{m}; " for m in modules.split())
    code += "sys.exit(any(m in sys.modules for m in ('torch', 'transformers')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_toy_tokenizer_is_greedy_and_survives_bytes() -> None:
    tokenizer = ToyTokenizer()
    assert tokenizer.encode("hello") == [258] and tokenizer.decode([256, 257]) == "hello"
    assert tokenizer.encode("<think>") == [261] and tokenizer.encode("<thx") == [259, ord("x")]
    assert tokenizer.decode(tokenizer.encode("é <|end|>\n")) == "é <|end|>\n"
    end = tokenizer.special_id("<|end|>")
    assert end == tokenizer.eos_id == 262 and tokenizer.decode([256, 262]) == "he"
    assert tokenizer.decode([0xC3]) == "\ufffd" and tokenizer.special_id("<|other|>") is None
    assert tokenizer.vocab_size == 262 + 5
