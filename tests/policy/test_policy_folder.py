"""The policy that comes with the package: small, loadable by ordinary means, and fluent in the protocol's tokens."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
import torch
from fix_python import tiny_policy
from fix_python.tasks import FixPythonTasks
from fix_python.warmup.tokenizer import VOCABULARY
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

from sanderling.harness.codec import ACT, END, PlainCodec
from sanderling.harness.line_edit import Call, LineEditHarness, parse_call
from sanderling.harness.tokenizer import FastTokenizer

FOLDER = tiny_policy()
FILES = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}


@cache
def tokenizer() -> FastTokenizer:
    return FastTokenizer(FOLDER)


@cache
def model():
    return AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()


def test_the_folder_holds_what_it_should_in_at_most_8_megabytes() -> None:
    files = {file.name: file for file in Path(FOLDER).iterdir()}
    assert set(files) == FILES
    assert sum(file.stat().st_size for file in files.values()) <= 8_000_000


def test_the_weights_are_float32_and_finite() -> None:
    with safe_open(FOLDER / "model.safetensors", framework="pt") as tensors:
        for name in tensors.keys():  # noqa: SIM118  (not a mapping)
            tensor = tensors.get_tensor(name)
            assert tensor.dtype == torch.float32
            assert torch.isfinite(tensor).all(), name


def test_the_configuration_fits_the_tokenizer() -> None:
    config = json.loads((FOLDER / "config.json").read_text("utf-8"))
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["vocab_size"] == VOCABULARY
    assert config["max_position_embeddings"] >= 1536
    assert config["eos_token_id"] == tokenizer().eos_id == tokenizer().special_id(END)
    assert tokenizer().special_id(ACT) is not None


@settings(max_examples=200)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back(text: str) -> None:
    assert tokenizer().decode(tokenizer().encode(text)) == text


def test_every_prompt_comes_back_and_leaves_room_for_an_episode() -> None:
    tasks = FixPythonTasks()
    harness = LineEditHarness(file="solution.py", test_argv=("true",))
    for task_id in [*tasks.ids("train"), *tasks.ids("held-out")]:
        prompt = harness.prompt(tasks.get(task_id))
        ids = tokenizer().encode(prompt)
        assert tokenizer().decode(ids) == prompt
        assert len(ids) < 350


def test_transformers_reads_the_tokenizer_alike() -> None:
    text = "1 def f(x):\n2     return x - 1\n"
    assert AutoTokenizer.from_pretrained(FOLDER).encode(text, add_special_tokens=False) == tokenizer().encode(text)


@pytest.mark.parametrize("split", ["train", "held-out"])
def test_its_first_actions_are_calls(split: str) -> None:
    """Greedy, on a few tasks of each split: the calls parse, and edits name a line that exists."""
    codec = PlainCodec(tokenizer())
    tasks = FixPythonTasks()
    harness = LineEditHarness(file="solution.py", test_argv=("true",))
    stop = codec.stop_token_ids[0]
    for task_id in list(tasks.ids(split))[:: len(tasks.ids(split)) // 8]:
        task = tasks.get(task_id)
        context = torch.tensor(codec.encode_prompt(harness.prompt(task))).long()[None]
        with torch.no_grad():
            output = model().generate(context, do_sample=False, max_new_tokens=64, eos_token_id=stop)
        action = codec.decode_action(output[0, context.shape[1] :].numpy())
        call = parse_call(action)
        assert isinstance(call, Call), action
        assert call.line is None or call.line <= len(task.base["solution.py"].decode().splitlines())
