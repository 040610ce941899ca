"""Trains the small llama-shaped policy on demonstrations: Muon for the layers' matrices, AdamW for the rest.

Muon: Keller Jordan et al. 2024, as in `torch.optim.Muon`. With small batches it needs several times fewer tokens here
than AdamW alone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from fix_python.warmup.corpus import Budget
from fix_python.warmup.teacher import ACTIONS, Demonstration, Role
from fix_python.warmup.tokenizer import PAD
from sanderling.harness.codec import ACT, END

log = logging.getLogger(__name__)

WEIGHTS = {Role.PROMPT: 0.1, Role.ACTION: 1.0, Role.MISTAKE: 0.03, Role.MISS: 0.02, Role.OBSERVATION: 0.02}
MAX_TOKENS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig:
    """How the policy is trained. Learning rates rise in the first steps and stay, but for what the budget says."""

    batch_tokens: int = 2048  # padded tokens of one step, at most
    muon_lr: float = 0.02
    adam_lr: float = 3e-3
    # Of the matrices. Without it attention scores reach thousands, and float32 can't tell log-probabilities to 1e-4 nats.
    weight_decay: float = 0.1
    warmup_steps: int = 40
    stretch: int = 512  # rows among which those of like lengths are looked for
    log_every: int = 100
    compute: torch.dtype = torch.bfloat16  # of the matrix products; weights and optimiser state are float32


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A demonstration as tokens; `weights[t]` is what predicting token t counts."""

    ids: Tensor  # (T,) int64
    weights: Tensor  # (T,) float32


def new_model(tokenizer: Tokenizer, seed: int) -> LlamaForCausalLM:
    """Return the untrained policy: 4 layers of width 128 with 4 heads, 0.9 M parameters at a vocabulary of 1,024."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=128,
        intermediate_size=320,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=2048,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=token_id(tokenizer, END),
        pad_token_id=token_id(tokenizer, PAD),
    )
    return LlamaForCausalLM(config)


def to_row(demonstration: Demonstration, tokenizer: Tokenizer) -> Row:
    """Return the tokens of a demonstration as the plain codec lays them out."""
    act, end = token_id(tokenizer, ACT), token_id(tokenizer, END)
    ids: list[int] = []
    weights: list[float] = []
    for piece in demonstration:
        new = tokenizer.encode(piece.text, add_special_tokens=False).ids
        weight = WEIGHTS[piece.role]
        weights += [weight] * len(new)
        if piece.role in ACTIONS:
            new = [*new, end]
            weights.append(weight)
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
    """Return the rows in batches of like lengths, the batches in random order."""
    cut: list[list[Row]] = [[]]
    for row in sorted(rows, key=lambda row: len(row.ids)):
        if cut[-1] and (len(cut[-1]) + 1) * len(row.ids) > batch_tokens:
            cut.append([])
        cut[-1].append(row)
    rng.shuffle(cut)
    return cut


def train(
    model: LlamaForCausalLM, rows: Iterator[Row], budget: Budget, config: TrainingConfig, seed: int
) -> Iterator[int]:
    """Train on rows until their tokens are used up; yield the number of steps done after each step."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    rest = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    optimizers = [
        torch.optim.Muon(matrices, lr=config.muon_lr, weight_decay=config.weight_decay),
        torch.optim.AdamW(rest, lr=config.adam_lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
    ]
    rates = [group["lr"] for optimizer in optimizers for group in optimizer.param_groups]
    if config.compute is torch.bfloat16:
        # The backward pass of torch's fused attention is slow in bfloat16 on CPU.
        model.set_attn_implementation("eager")
    log.info("%d tokens, %d parameters", budget.tokens, sum(p.numel() for p in model.parameters()))
    model.train()
    running: list[float] = []
    rng, used, step, started = Random(seed), 0, 0, time.process_time()
    while used < budget.tokens:
        stretch = [row for row in islice(rows, config.stretch) if len(row.ids) <= MAX_TOKENS]
        for batch in batches(stretch, config.batch_tokens, rng):
            factor = min((step + 1) / config.warmup_steps, budget.rate(used))
            for optimizer, rate in zip(optimizers, rates, strict=True):
                optimizer.param_groups[0]["lr"] = factor * rate
            running.append(_update(model, batch, optimizers, config.compute))
            step += 1
            used += sum(len(row.ids) for row in batch)
            if step % config.log_every == 0:
                loss, seconds = sum(running[-config.log_every :]) / config.log_every, time.process_time() - started
                log.info("step %d, %d tokens, loss %.4f, %.0f CPU-seconds", step, used, loss, seconds)
            yield step
            if used >= budget.tokens:
                break


def _update(
    model: LlamaForCausalLM, batch: Sequence[Row], optimizers: Sequence[torch.optim.Optimizer], compute: torch.dtype
) -> float:
    # A context for each step: autocast keeps its copies of the weights until the context ends.
    with torch.autocast("cpu", dtype=compute, enabled=compute is not torch.float32):
        loss = weighted_loss(model, batch)
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return loss.item()


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
