"""Rows of agents' episodes that share prompts and beginnings, and the gradient that a learner makes of them."""

import numpy as np
import torch
import transformers

from sanderling.learn.config import BatchConfig, LearnerConfig, OptimizerConfig
from sanderling.learn.learner import Learner
from sanderling.types import TrainingRow

VOCABULARY = 320


def rows_with_shared_prompts(groups=2, siblings=4, prompt=50, seed=0):
    """Siblings share a prompt; two of each four also share what follows; lengths and masks are ragged."""
    random = np.random.default_rng(seed)
    rows = []
    for group in range(groups):
        start = random.integers(0, VOCABULARY, prompt + 7 * group)
        branches = [random.integers(0, VOCABULARY, 40) for _ in range(2)]
        for sibling in range(siblings):
            rest = random.integers(0, VOCABULARY, int(random.integers(3, 30)))
            ids = np.concatenate([start, branches[sibling // 2], rest] if sibling < 3 else [start, rest])
            mask = random.random(len(ids)) < 0.4
            mask[: len(start)] = False
            mask[-1] = True
            rows.append(row_of(f"g{group}/{sibling}", ids.astype(np.int32), mask, random))
    return rows


def row_of(name, ids, mask, random):
    values = mask.astype(np.float32)
    noise = random.normal(size=len(ids)).astype(np.float32)
    return TrainingRow(
        trajectory_id=name,
        token_ids=ids,
        loss_mask=mask,
        turn_of_token=np.zeros(len(ids), dtype=np.int32),
        rollout_logprobs=-5.0 * values,
        policy_versions=np.zeros(len(ids), dtype=np.int32),
        advantages=noise * values,
        weights=values / 50,
    )


def model_of(name="llama", attention="sdpa", dtype=torch.float64):
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": VOCABULARY}
    kv = {"intermediate_size": 64, "num_key_value_heads": 2, "max_position_embeddings": 512}
    config = {
        "llama": lambda: transformers.LlamaConfig(**sizes, **kv),
        "qwen2": lambda: transformers.Qwen2Config(**sizes, **kv),
        "qwen3": lambda: transformers.Qwen3Config(**sizes, **kv, head_dim=16),
        "gpt2": lambda: transformers.GPT2Config(
            vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=512, resid_pdrop=0.5, attn_pdrop=0.5
        ),
        "gpt_neox": lambda: transformers.GPTNeoXConfig(**sizes, intermediate_size=64, max_position_embeddings=512),
        "mistral": lambda: transformers.MistralConfig(**sizes, **kv, sliding_window=40),
        "gemma2": lambda: transformers.Gemma2Config(**sizes, **kv, head_dim=16),
    }[name]()
    config.initializer_range = 0.1
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention).to(dtype).eval()


def learner_of(model, layout="padded", budget=4096, **settings):
    config = LearnerConfig(
        optimizer=OptimizerConfig(learning_rate=1e-3, max_grad_norm=None),
        batch=BatchConfig(micro_batch_tokens=budget, layout=layout),
        **settings,
    )
    return Learner(model, config)


def gradient(model, rows, layout="padded", budget=4096, **settings):
    """The gradient of one step, (P,): AdamW's first mean is a tenth of it after one update."""
    learner = learner_of(model, layout, budget, **settings)
    report = learner.step(rows)
    state = learner.state()["optimizer"]["state"]
    return torch.cat([state[k]["exp_avg"].flatten() for k in sorted(state)]) * 10, report
