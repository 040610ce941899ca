"""The policy that comes with the package: small, loadable by ordinary means, and fluent in the protocol's tokens."""

from __future__ import annotations

import asyncio
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from fix_python import environment, tiny_policy
from fix_python.tasks import EXAMPLES, FILE, LIMITS, FixPythonTasks
from fix_python.warmup.tokenizer import VOCABULARY
from fix_python.warmup.trial import Calls, visible_report
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

from sanderling.harness.codec import ACT, END, PlainCodec
from sanderling.harness.protocol import Reply
from sanderling.harness.tokenizer import FastTokenizer
from sanderling.sandbox.protocol import Command, ExecResult, SandboxSpec
from sanderling.testing.sandboxes import MemoryBackend, result
from sanderling.types import Task

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
    harness = environment().harness
    for task_id in [*tasks.ids("train"), *tasks.ids("held-out")]:
        prompt = harness.prompt(tasks.get(task_id))
        ids = tokenizer().encode(prompt)
        assert tokenizer().decode(ids) == prompt
        assert len(ids) < LIMITS.max_context_tokens // 2


def test_float32_tells_its_log_probabilities_to_a_ten_thousandth() -> None:
    """Sampler and trainer must agree to 1e-4 nats, which no code can reach for a policy with attention scores of thousands."""
    exact = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float64).eval()
    tasks = FixPythonTasks()
    for task_id in list(tasks.ids("train"))[::80]:
        played = asyncio.run(first_actions(tasks.get(task_id), 4))
        text = environment().harness.prompt(tasks.get(task_id)) + "".join(f"{call}\n{r.text}\n" for call, r in played)
        ids = torch.tensor(tokenizer().encode(text)).long()[None]
        with torch.no_grad():
            rounded, right = (m(ids).logits[0, :-1].double().log_softmax(-1) for m in (model(), exact))
        gap = (rounded - right).gather(-1, ids[0, 1:, None]).abs()
        assert gap.max() < 5e-5, task_id


def test_transformers_reads_the_tokenizer_alike() -> None:
    text = "1 def f(x):\n2     return x - 1\n"
    assert AutoTokenizer.from_pretrained(FOLDER).encode(text, add_special_tokens=False) == tokenizer().encode(text)


def greedy_action(context: list[int]) -> list[int]:
    """Return the sampled ids, the stop token included."""
    stop = PlainCodec(tokenizer()).stop_token_ids[0]
    ids = torch.tensor(context).long()[None]
    with torch.no_grad():
        output = model().generate(ids, do_sample=False, max_new_tokens=LIMITS.max_action_tokens, eos_token_id=stop)
    return output[0, len(context) :].tolist()


def visible_tests(command: Command, files: dict[str, bytes]) -> ExecResult:
    """Answer the visible tests as /tools/visible.py would."""
    examples = json.loads(files[EXAMPLES])
    calls = Calls(name=examples["function"], examples=tuple(examples["calls"]))
    report, passed = visible_report(files[FILE].decode(), calls)
    return result(report + "\n", exit_code=0 if passed else 1)


async def first_actions(task: Task, count: int) -> list[tuple[str, Reply]]:
    """Play the beginning of an episode greedily, in the environment's own harness."""
    codec, harness = PlainCodec(tokenizer()), environment().harness
    sandbox = await MemoryBackend(commands=visible_tests).create(SandboxSpec(files=task.base))
    conversation = harness.start(task, sandbox)
    context = codec.encode_prompt(harness.prompt(task)).tolist()
    played: list[tuple[str, Reply]] = []
    while len(played) < count and not (played and played[-1][1].stop):
        ids = greedy_action(context)
        text = codec.decode_action(np.array(ids, dtype=np.int32))
        played.append((text, await conversation.act(text)))
        context += [*ids, *codec.encode_observation(played[-1][1].text, "stop").tolist()]
    return played


@pytest.mark.parametrize("split", ["train", "held-out"])
def test_its_first_actions_are_calls(split: str) -> None:
    """Greedy, on a few tasks of each split: most calls can be carried out, and a line is looked at, then changed."""
    tasks = FixPythonTasks()
    episodes = [
        asyncio.run(first_actions(tasks.get(task_id), 4))
        for task_id in list(tasks.ids(split))[:: len(tasks.ids(split)) // 8]
    ]
    firsts = [played[0] for played in episodes]
    assert not any(reply.bad_calls or reply.text.startswith("error: ") for _, reply in firsts), firsts
    replies = [reply for played in episodes for _, reply in played]
    refused = [r.text for r in replies if r.bad_calls or r.text.startswith(("error: no line", "error: no current"))]
    assert len(refused) <= 0.1 * len(replies), refused
    heads = [[text.split("|")[0].split(" ")[0] for text, _ in played] for played in episodes]
    changed = [names for names in heads if "sub" in names and "line" in names[: names.index("sub")]]
    assert len(changed) >= 0.8 * len(heads), heads
