"""What the built-in engine adds to a bare PyTorch loop: tokens per second of multi-turn sampling, both in one run.

Both sides sample the same shapes with the same model: `--episodes` episodes of `--turns` turns, each turn an observation of
ragged length (padded in the bare loop) and an action of a fixed number of tokens. The bare loop knows its shapes
beforehand: one preallocated KV cache, one column for all rows, `torch.multinomial`, no requests, no sessions, no threads.
The engine gets the same work as requests through asyncio. Rounds alternate and the median of their ratios is reported, by
wall clock and by CPU seconds of the whole process; on a shared machine only the second is worth reading.

    python benchmarks/engine_overhead.py            # about half a minute on 2 cores
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import transformers
from transformers.cache_utils import Cache, CacheLayerMixin

from sanderling.engine.protocol import SampleRequest, SamplingParams
from sanderling.engine.torch_engine import TorchEngine


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The shapes of one round."""

    prompts: list[np.ndarray]  # per episode
    observations: list[list[np.ndarray]]  # per turn but the last, per episode
    action_tokens: int

    @classmethod
    def make(cls, episodes: int, turns: int, action_tokens: int, vocab: int) -> Work:
        rng = np.random.default_rng(0)

        def pieces(low: int, high: int) -> list[np.ndarray]:
            return [rng.integers(0, vocab, rng.integers(low, high)).astype(np.int32) for _ in range(episodes)]

        return cls(
            prompts=pieces(60, 121),
            observations=[pieces(20, 81) for _ in range(turns - 1)],
            action_tokens=action_tokens,
        )

    @property
    def sampled(self) -> int:
        return len(self.prompts) * (len(self.observations) + 1) * self.action_tokens


Speed = tuple[float, float]
"""Sampled tokens per second of wall clock and per CPU second."""


class Clock:
    """Wall clock and CPU time of the process since it was made."""

    def __init__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def speed(self, tokens: int) -> Speed:
        return tokens / (time.perf_counter() - self.wall), tokens / (time.process_time() - self.cpu)


class ColumnLayer(CacheLayerMixin):
    """Keys and values of one layer in a preallocated block; all rows write the same columns."""

    is_sliding = False

    def __init__(self, shape: dict[str, int], state: dict[str, int]) -> None:
        super().__init__()
        self.shape, self.state = shape, state

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        b, h, _, d = key_states.shape
        self.keys = key_states.new_zeros(b, h, self.shape["columns"], d)
        self.values = value_states.new_zeros(b, h, self.shape["columns"], d)
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any) -> Any:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        at, end = self.state["at"], self.state["at"] + key_states.shape[2]
        self.keys[:, :, at:end] = key_states
        self.values[:, :, at:end] = value_states
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_mask_sizes(self, query_length: Any) -> tuple[int, int]:
        return self.state["at"] + int(query_length), 0

    def get_seq_length(self, cache_position: Any = None) -> int:
        return self.state["at"]

    def get_max_length(self) -> int:
        return self.shape["columns"]

    get_max_cache_shape = get_max_length


@torch.inference_mode()
def bare_loop(model: Any, work: Work) -> Speed:
    """Return the sampled tokens per second of one round of the bare loop."""
    steps = [work.prompts, *work.observations]
    widths = [max(map(len, pieces)) for pieces in steps]
    columns = sum(widths) + len(steps) * work.action_tokens
    state = {"at": 0}
    cache = Cache(layers=[ColumnLayer({"columns": columns}, state) for _ in range(model.config.num_hidden_layers)])
    rows = len(work.prompts)
    valid = torch.zeros(rows, columns, dtype=torch.bool)
    lengths = torch.zeros(rows, dtype=torch.long)
    clock = Clock()
    for pieces, width in zip(steps, widths, strict=True):
        tokens = np.zeros((rows, width), dtype=np.int64)
        for row, piece in enumerate(pieces):
            tokens[row, width - len(piece) :] = piece
            valid[row, state["at"] + width - len(piece) : state["at"] + width] = True
        counts = torch.tensor([len(piece) for piece in pieces])
        positions = (lengths[:, None] + torch.arange(width) - (width - counts[:, None])).clamp(min=0)
        lengths += counts
        drawn = bare_step(model, cache, state, torch.from_numpy(tokens), positions, valid)
        for _ in range(work.action_tokens - 1):
            valid[:, state["at"]] = True
            token, position = drawn, lengths[:, None]
            lengths = lengths + 1
            drawn = bare_step(model, cache, state, token, position, valid)
        valid[:, state["at"]] = True  # the last token is read with the next observation; here it costs one more column
        state["at"] += 1
        lengths = lengths + 1
    return clock.speed(work.sampled)


def bare_step(
    model: Any, cache: Cache, state: dict[str, int], tokens: torch.Tensor, positions: torch.Tensor, valid: torch.Tensor
) -> torch.Tensor:
    """Read tokens (b, W) into the cache and draw one more per row, (b, 1), with its log-probability."""
    width = tokens.shape[1]
    end = state["at"] + width
    seen = valid[:, None, None, :end]
    causal = torch.arange(end) <= torch.arange(state["at"], end)[:, None]
    mask = torch.zeros(len(tokens), 1, width, end).masked_fill_(~(seen & causal), torch.finfo(torch.float32).min)
    logits = model(
        input_ids=tokens, attention_mask=mask, position_ids=positions, cache=cache, use_cache=True, logits_to_keep=1
    ).logits[:, -1]
    state["at"] = end
    logprobs = logits.log_softmax(-1)
    drawn = torch.multinomial(logprobs.exp(), 1)
    logprobs.gather(1, drawn).tolist()
    return drawn


async def engine_round(engine: TorchEngine, work: Work, number: int) -> Speed:
    """Return the sampled tokens per second of the same round through the engine."""
    params = SamplingParams(max_tokens=work.action_tokens)

    async def episode(index: int) -> None:
        context = work.prompts[index]
        session = f"{number}/{index}"
        for turn in range(len(work.observations) + 1):
            action = await engine.generate(
                SampleRequest(session=session, context_ids=context, params=params, seed=1000 * index + turn)
            )
            if turn < len(work.observations):
                context = np.concatenate([context, action.token_ids, work.observations[turn][index]])
        engine.end_session(session)

    clock = Clock()
    await asyncio.gather(*(episode(i) for i in range(len(work.prompts))))
    return clock.speed(work.sampled)


async def measure(model: Any, work: Work, rounds: int) -> dict[str, float]:
    engine = TorchEngine(model, max_batch=len(work.prompts), threads=torch.get_num_threads())
    bare, ours = [], []
    for number in range(rounds + 1):
        bare_speed, our_speed = bare_loop(model, work), await engine_round(engine, work, number)
        if number:  # the first round warms caches and allocators up
            bare.append(bare_speed)
            ours.append(our_speed)
    await engine.close()
    result = {}
    for kind, name in enumerate(("s", "cpu_s")):
        result[f"bare_tokens_per_{name}"] = round(statistics.median(b[kind] for b in bare), 1)
        result[f"engine_tokens_per_{name}"] = round(statistics.median(o[kind] for o in ours), 1)
        ratios = [b[kind] / o[kind] for b, o in zip(bare, ours, strict=True)]
        result[f"overhead_{name}"] = round(statistics.median(ratios) - 1.0, 3)
    return result


def llama(width: int, layers: int, vocab: int) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=vocab,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 32,
        num_key_value_heads=width // 32,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )
    return transformers.LlamaForCausalLM(config).eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=32)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--action-tokens", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    for width, layers in ((128, 4), (192, 4)):
        model = llama(width, layers, 1024)
        work = Work.make(chosen.episodes, chosen.turns, chosen.action_tokens, 1024)
        result = asyncio.run(measure(model, work, chosen.rounds))
        parameters = sum(p.numel() for p in model.parameters())
        print(json.dumps({"parameters": parameters, "episodes": chosen.episodes, "sampled": work.sampled, **result}))


if __name__ == "__main__":
    main()
