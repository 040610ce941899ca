"""The side of `against_trl.py` that runs TRL's GRPOTrainer; it lives in an environment of its own that has `trl`.

Everything goes through `GRPOTrainer.train()`: a callback asks the benchmark before each step what to do in it. A step is a
generation batch and its update; the time of each is taken apart.

What is sampled is real: `action_tokens` tokens a turn at temperature 1, with the end token held back. What they mean is not: a
policy that has never seen TRL's calls would not call anything, so the tokenizer's `parse_response` reads a call of the one
tool in every action. The chat template writes what the benchmark's other side writes, token by token.

    python trl_side.py --probe        # prints the versions, or what is missing
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from side_channel import Channel, Record, peak_mb

os.environ.update(TRL_EXPERIMENTAL_SILENCE="1", TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")
EXIT_MISSING = 3  # where something can't be imported

if importlib.util.find_spec("trl") is None:  # asked first, because it is quick
    print(json.dumps({"missing": "there is no package trl"}))
    sys.exit(EXIT_MISSING)
try:
    import torch
    import transformers
    import trl
    from datasets import Dataset
    from transformers import PreTrainedTokenizerFast, TrainerCallback
except ImportError as error:
    print(json.dumps({"missing": str(error)}))
    sys.exit(EXIT_MISSING)

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{{ OPENING }}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }} {{ c.function.arguments | tojson }}{% endfor %}{{ END }}"
    "{% else %}{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ OPENING }}{% endif %}"
)
CALL = {"type": "function", "function": {"name": "look", "arguments": {}}}


class CallingTokenizer(PreTrainedTokenizerFast):
    """Reads a call of the tool in every action."""

    def parse_response(self, *_: Any, **__: Any) -> Record:
        return {"role": "assistant", "content": "", "tool_calls": [CALL]}


def tokenizer_of(folder: str, opening: str, end: str) -> CallingTokenizer:
    tokenizer = CallingTokenizer.from_pretrained(folder)
    assert isinstance(tokenizer, CallingTokenizer)
    tokenizer.chat_template = TEMPLATE.replace("OPENING", json.dumps(opening)).replace("END", json.dumps(end))
    tokenizer.response_template = {}  # TRL asks whether there is one; `parse_response` needs none
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return tokenizer


class Tool:
    """What all episodes call; `latency_s` is that of the present round."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.latency_s = 0.0

    def look(self) -> str:
        """Look at the result of the tests."""
        time.sleep(self.latency_s)
        return self.text

    async def look_async(self) -> str:
        """Look at the result of the tests."""
        await asyncio.sleep(self.latency_s)
        return self.text


class TimedTrainer(trl.GRPOTrainer):
    """Takes the time and the tokens of each generation batch."""

    batch: Record  # of the present step

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        inputs = super()._prepare_inputs(generation_batch)
        seconds, cpu_seconds = time.perf_counter() - wall, time.process_time() - cpu
        self.batch["generate_s"] += seconds
        self.batch["generate_cpu_s"] += cpu_seconds
        if "episodes" not in self.batch:
            self.batch |= {**_tokens(self._buffered_inputs), "generate_peak_mb": peak_mb()}
        return inputs


def _tokens(parts: list[dict[str, torch.Tensor]]) -> Record:
    """Return what a generation batch holds, padding not counted."""
    completion = sum(int(part["completion_mask"].sum()) for part in parts)
    actions = sum(int((part["completion_mask"] * part["tool_mask"]).sum()) for part in parts)
    return {
        "episodes": sum(len(part["prompt_mask"]) for part in parts),
        "prompt_tokens": sum(int(part["prompt_mask"].sum()) for part in parts),
        "action_tokens": actions,
        "tool_tokens": completion - actions,
    }


class Rounds(TrainerCallback):
    """Asks for each round, and answers it."""

    def __init__(self, channel: Channel, requests: Iterator[Record], start: Callable[[Record], None]) -> None:
        self.channel = channel
        self.requests = requests
        self.start = start
        self.trainer: TimedTrainer | None = None
        self.record: Record = {}
        self._began = (0.0, 0.0)

    def take(self) -> bool:
        """Take the next request; return whether there was one."""
        request = next(self.requests, None)
        if request is not None:
            self.start(request)
        return request is not None

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        assert self.trainer is not None
        self.trainer.batch = {"generate_s": 0.0, "generate_cpu_s": 0.0}
        self._began = time.perf_counter(), time.process_time()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        assert self.trainer is not None
        wall, cpu = time.perf_counter() - self._began[0], time.process_time() - self._began[1]
        batch = self.trainer.batch
        update = {"update_s": wall - batch["generate_s"], "update_cpu_s": cpu - batch["generate_cpu_s"]}
        self.record = {**batch, **update, "peak_mb": peak_mb()}

    def on_log(self, _args: Any, _state: Any, control: Any, logs: Record | None = None, **__: Any) -> None:
        if self.record:
            self.channel.answer({**self.record, "grad_norm": (logs or {}).get("grad_norm")})
            self.record = {}
            control.should_training_stop = not self.take()


def config_of(setup: Record, folder: str, **settings: Any) -> trl.GRPOConfig:
    """Return TRL's settings: its defaults but for what the other side does too, or does not do."""
    common: Record = {
        "output_dir": folder,
        "use_cpu": True,
        "bf16": False,  # TRL's default is bfloat16
        "gradient_checkpointing": False,  # TRL's default is on
        "learning_rate": setup["learning_rate"],
        "lr_scheduler_type": "constant",
        "max_grad_norm": 1.0,
        "optim": "adamw_torch_fused",
        "adam_beta2": 0.99,
        "weight_decay": 0.0,
        "loss_type": "grpo",  # the mean over rows of the mean over tokens
        "scale_rewards": "none",
        "beta": 0.0,
        "num_generations": setup["group_size"],
        "max_steps": 1_000_000,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "shuffle_dataset": False,
    }
    return trl.GRPOConfig(**(common | settings))


def load(folder: str) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)


def every_other(completions: list[Any], **_: Any) -> list[float]:
    """Pay every other episode."""
    return [float(number % 2) for number in range(len(completions))]


def concurrent_rollouts(setup: Record, tool: Tool) -> Callable[[list[Any], Any], Record]:
    """Return a `rollout_func`: TRL's sampling and its tokens of tool results, with the tools of all episodes at once."""

    def rollouts(prompts: list[Any], trainer: Any) -> Record:
        prompt_ids, _, _ = trainer._tokenize_prompts(prompts)
        completions: list[list[int]] = [[] for _ in prompts]
        masks: list[list[int]] = [[] for _ in prompts]
        for turn in range(setup["turns"]):
            contexts = [list(p) + c for p, c in zip(prompt_ids, completions, strict=True)]
            actions, _ = trainer._generate_single_turn(contexts, None, {}, 1)
            for place, action in enumerate(actions):
                completions[place] += action
                masks[place] += [1] * len(action)
            if turn == setup["turns"] - 1:
                break
            with ThreadPoolExecutor(len(prompts)) as pool:
                texts = list(pool.map(lambda _: tool.look(), prompts))
            for place, text in enumerate(texts):
                ids = trainer._get_tool_suffix_ids([{"role": "tool", "name": "look", "content": text}])
                completions[place] += ids
                masks[place] += [0] * len(ids)
        return {"prompt_ids": prompt_ids, "completion_ids": completions, "logprobs": None, "env_mask": masks}

    return rollouts


def sampling_trainer(setup: Record, folder: str, rounds: Rounds, tool: Tool) -> TimedTrainer:
    episodes = len(setup["prompts"]) * setup["group_size"]
    fixed = {"max_new_tokens": setup["action_tokens"], "min_new_tokens": setup["action_tokens"]}
    config = config_of(
        setup,
        folder,
        per_device_train_batch_size=episodes,
        gradient_accumulation_steps=1,
        max_completion_length=setup["room"],
        max_tool_calling_iterations=setup["turns"] - 1,
        generation_kwargs=fixed,
    )
    tools: Record = {
        "tools": {"tools": [tool.look]},
        "async": {"tools": [tool.look_async]},
        "rollout_func": {"rollout_func": concurrent_rollouts(setup, tool)},
    }[setup["way"]]
    CALL["function"]["name"] = "look_async" if setup["way"] == "async" else "look"
    return TimedTrainer(
        model=load(setup["model"]),
        reward_funcs=every_other,
        args=config,
        train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": text}]} for text in setup["prompts"]]),
        processing_class=tokenizer_of(setup["model"], setup["opening"], setup["end"]),
        callbacks=[rounds],
        **tools,
    )


def updating_trainer(setup: Record, folder: str, rounds: Rounds) -> TimedTrainer:
    rows = setup["rows"]
    batch = {
        "prompt_ids": [row["ids"][: row["prompt"]] for row in rows],
        "completion_ids": [row["ids"][row["prompt"] :] for row in rows],
        "logprobs": None,
        "env_mask": [row["mask"][row["prompt"] :] for row in rows],
    }
    config = config_of(
        setup,
        folder,
        per_device_train_batch_size=setup["micro_rows"],
        gradient_accumulation_steps=len(rows) // setup["micro_rows"],
        max_completion_length=max(len(ids) for ids in batch["completion_ids"]),
    )
    groups = len(rows) // setup["group_size"]
    return TimedTrainer(
        model=load(setup["model"]),
        reward_funcs=every_other,
        args=config,
        train_dataset=Dataset.from_list([{"prompt": str(group)} for group in range(groups)]),
        processing_class=tokenizer_of(setup["model"], "", ""),
        callbacks=[rounds],
        rollout_func=lambda _prompts, _trainer: dict(batch),
    )


def main() -> None:
    if "--probe" in sys.argv:
        versions = {"trl": trl.__version__, "torch": torch.__version__, "transformers": transformers.__version__}
        print(json.dumps(versions))
        return
    channel = Channel()
    requests = channel.requests()
    setup = next(requests)
    torch.set_num_threads(setup["threads"])
    tool = Tool(setup.get("tool_text", ""))

    def start(request: Record) -> None:
        tool.latency_s = request.get("latency_s", 0.0)

    with tempfile.TemporaryDirectory() as folder:
        rounds = Rounds(channel, requests, start)
        sampling = setup["role"] == "rollouts"
        make = (
            (lambda: sampling_trainer(setup, folder, rounds, tool))
            if sampling
            else (lambda: updating_trainer(setup, folder, rounds))
        )
        rounds.trainer = trainer = make()
        channel.answer({"start_mb": peak_mb()})
        if rounds.take():
            trainer.train()


if __name__ == "__main__":
    main()
