"""Trains the small llama-shaped policy on demonstrations: Muon for the layers' matrices, AdamW for the rest.

Muon: Keller Jordan et al. 2024, as in `torch.optim.Muon`. With small batches it needs several times fewer tokens here
than AdamW alone.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from fix_python.warmup.initial import write_copying_circuit
from fix_python.warmup.teacher import ACTIONS, Demonstration, Role
from fix_python.warmup.tokenizer import PAD
from sanderling.harness.codec import ACT, END

log = logging.getLogger(__name__)

WEIGHTS = {Role.PROMPT: 0.1, Role.ACTION: 1.0, Role.MISTAKE: 0.02, Role.OBSERVATION: 0.02}
MAX_TOKENS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig:
    """How the policy is trained. Learning rates fall along a cosine to a twentieth."""

    batch_tokens: int = 4096  # padded tokens of one step, at most
    muon_lr: float = 0.01
    adam_lr: float = 1e-3
    warmup_steps: int = 40
    log_every: int = 25
    compute: torch.dtype = torch.bfloat16  # of the matrix products; weights and optimiser state are float32


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A demonstration as tokens; `weights[t]` is what predicting token t counts."""

    ids: Tensor  # (T,) int64
    weights: Tensor  # (T,) float32


def new_model(tokenizer: Tokenizer, seed: int) -> LlamaForCausalLM:
    """Return the untrained policy: 5 layers of width 192 with 6 heads, 1.95 M parameters at a vocabulary of 1,024."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=192,
        intermediate_size=352,
        num_hidden_layers=5,
        num_attention_heads=6,
        num_key_value_heads=6,
        max_position_embeddings=2048,
        rope_parameters={"rope_type": "default", "rope_theta": 1e7},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=token_id(tokenizer, END),
        pad_token_id=token_id(tokenizer, PAD),
    )
    model = LlamaForCausalLM(config)
    write_copying_circuit(model, torch.Generator().manual_seed(seed), line_number_tokens(tokenizer))
    return model


def line_number_tokens(tokenizer: Tokenizer) -> list[list[int]]:
    """Return the tokens that name a line, grouped by the line: in the source, and at the head of an edit."""
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for token in range(tokenizer.get_vocab_size()):
        match = re.fullmatch(r"(?:\n|edit )([0-9]+)(?: +|\|)", tokenizer.decode([token]))
        if match is not None:
            groups[match[1]].append(token)
    return [group for group in groups.values() if len(group) > 1]


def to_row(demonstration: Demonstration, tokenizer: Tokenizer) -> Row:
    """Return the tokens of a demonstration as the plain codec lays them out."""
    act, end = token_id(tokenizer, ACT), token_id(tokenizer, END)
    ids: list[int] = []
    weights: list[float] = []
    for piece in demonstration:
        new = tokenizer.encode(piece.text, add_special_tokens=False).ids
        weights += [WEIGHTS[piece.role]] * len(new)
        if piece.role in ACTIONS:
            new = [*new, end]
            weights.append(WEIGHTS[piece.role])
        else:
            new = [*new, act]
            weights.append(0.0)  # this marker is written by the codec, never by the policy
        ids += new
    return Row(ids=torch.tensor(ids), weights=torch.tensor(weights))


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """Return the id of a token that must be in the vocabulary."""
    found = tokenizer.token_to_id(token)
    assert found is not None, f"{token} is not in the vocabulary"
    return found


def batches(rows: Sequence[Row], batch_tokens: int, rng: Random) -> list[list[Row]]:
    """Return the rows in batches of like lengths, the batches in random order within every stretch of rows.

    The order of the stretches is kept, so that what stands first in `rows` is learnt first.
    """
    result: list[list[Row]] = []
    stretch = 512
    for start in range(0, len(rows), stretch):
        part = sorted(rows[start : start + stretch], key=lambda row: len(row.ids))
        cut: list[list[Row]] = [[]]
        for row in part:
            if cut[-1] and (len(cut[-1]) + 1) * len(row.ids) > batch_tokens:
                cut.append([])
            cut[-1].append(row)
        rng.shuffle(cut)
        result += cut
    return result


def train(model: LlamaForCausalLM, rows: Sequence[Row], config: TrainingConfig, seed: int) -> Iterator[int]:
    """Train over `rows` once, in their rough order; yield the number of steps done after each step."""
    plan = batches([row for row in rows if len(row.ids) <= MAX_TOKENS], config.batch_tokens, Random(seed))
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    rest = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    optimizers = [
        torch.optim.Muon(matrices, lr=config.muon_lr, weight_decay=0.0),
        torch.optim.AdamW(rest, lr=config.adam_lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
    ]
    schedules = [torch.optim.lr_scheduler.LambdaLR(o, _schedule(config.warmup_steps, len(plan))) for o in optimizers]
    if config.compute is torch.bfloat16:
        model.set_attn_implementation(
            "eager"
        )  # the backward pass of torch's fused attention is slow in bfloat16 on CPU
    log.info("%d rows, %d steps, %d parameters", len(rows), len(plan), sum(p.numel() for p in model.parameters()))
    model.train()
    running: list[float] = []
    started = time.process_time()
    for step, batch in enumerate(plan, 1):
        # A context for each step: autocast keeps its copies of the weights until the context ends.
        with torch.autocast("cpu", dtype=config.compute, enabled=config.compute is not torch.float32):
            loss = weighted_loss(model, batch)
        loss.backward()
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            schedule.step()
        running.append(loss.item())
        if step % config.log_every == 0 or step == len(plan):
            recent = running[-config.log_every :]
            used = time.process_time() - started
            log.info("step %d/%d loss %.4f, %.0f CPU-seconds", step, len(plan), sum(recent) / len(recent), used)
        yield step


def weighted_loss(model: LlamaForCausalLM, batch: Sequence[Row]) -> Tensor:
    """Return the weighted mean of the negative log-likelihood of a batch's tokens, in nats, a scalar."""
    ids = torch.nn.utils.rnn.pad_sequence(
        [row.ids for row in batch], batch_first=True, padding_value=model.config.pad_token_id or 0
    )
    weights = torch.nn.utils.rnn.pad_sequence([row.weights for row in batch], batch_first=True)[:, 1:]
    # No attention mask: padding stands to the right, where causal attention can't see it.
    logits = model(input_ids=ids[:, :-1], use_cache=False).logits
    losses = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    return (losses * weights.flatten()).sum() / weights.sum()


def _schedule(warmup: int, steps: int):
    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        done = (step - warmup) / max(1, steps - warmup)
        return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))

    return factor
