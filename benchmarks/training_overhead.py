"""Tokens per second of training: `Learner.step` against a bare PyTorch loop of the same shapes, in one run.

    python benchmarks/training_overhead.py [--rounds 6] [--threads 1]

Both make the same update of a 2 M parameter llama on 64 ragged rows, sorted by length and cut into the same micro-batches.
The bare loop knows that every token counts the same: padded ids in, cross-entropy times advantage, backward, clip, AdamW.
The two alternate, and the ratio of the medians is printed: 1.05 means that the learner takes 5 % longer.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from sanderling.batch.config import BatchConfig
from sanderling.batch.micro import micro_batches
from sanderling.learn.config import LearnerConfig
from sanderling.learn.learner import Learner
from sanderling.types import TrainingRow

VOCABULARY = 1024
ROWS = 64


def new_model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=6,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config).eval()


def ragged_rows() -> list[TrainingRow]:
    """Return rows of 200 to 600 tokens of which a quarter is trained, as an agent's episodes are."""
    random = np.random.default_rng(0)
    rows = []
    for number in range(ROWS):
        length = int(random.integers(200, 600))
        mask = random.random(length) < 0.25
        mask[0] = False
        values = mask.astype(np.float32)
        row = TrainingRow(
            trajectory_id=str(number),
            token_ids=random.integers(0, VOCABULARY, length).astype(np.int32),
            loss_mask=mask,
            turn_of_token=np.zeros(length, dtype=np.int32),
            rollout_logprobs=-7.0 * values,
            policy_versions=np.zeros(length, dtype=np.int32),
            advantages=values if number % 2 else -values,
            weights=values / 1000,
        )
        rows.append(row)
    return rows


def bare_step(
    model: LlamaForCausalLM, optimizer: torch.optim.Optimizer, rows: Sequence[TrainingRow], budget: int
) -> None:
    """Make one policy gradient update with nothing around it."""
    optimizer.zero_grad(set_to_none=True)
    for micro in micro_batches(rows, budget):
        ids = torch.from_numpy(micro.token_ids).long()
        weights = torch.from_numpy(micro.advantages * micro.weights)[:, 1:]
        logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
        losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        (losses * weights.flatten()).sum().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows, config = ragged_rows(), LearnerConfig(batch=BatchConfig())
    learner, bare = Learner(new_model(), config), new_model()
    optimizer = torch.optim.AdamW(bare.parameters(), lr=4e-4, fused=True)
    budget = config.batch.micro_batch_tokens
    times: dict[str, list[tuple[float, float]]] = {"learner": [], "bare": []}
    for _ in range(arguments.rounds + 1):
        times["learner"].append(seconds(lambda: learner.step(rows)))
        times["bare"].append(seconds(lambda: bare_step(bare, optimizer, rows, budget)))
    median = {name: [statistics.median(pair[i] for pair in pairs[1:]) for i in (0, 1)] for name, pairs in times.items()}
    tokens = sum(len(row.token_ids) for row in rows)
    result = {
        "tokens": tokens,
        "threads": arguments.threads,
        "learner_tokens_per_s": round(tokens / median["learner"][0]),
        "bare_tokens_per_s": round(tokens / median["bare"][0]),
        "ratio_wall": round(median["learner"][0] / median["bare"][0], 3),
        "ratio_cpu": round(median["learner"][1] / median["bare"][1], 3),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
