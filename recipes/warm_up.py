"""Makes the policy that a recipe on HumanEvalPack starts from: `python recipes/warm_up.py recipes/smollm2.toml models/smollm2`.

A pretrained model of this size can't use an editor that it has never seen. Here it imitates a scripted teacher for minutes:
bugs are planted in practice functions (of fix_python) and then in the right functions of the TRAIN tasks, and the teacher acts
in the recipe's own harness and sandbox (`demonstrations.py`), so that what is imitated is to the token what the policy will
see. The bugs of the tasks themselves are never shown. Held-out tasks are read only to leave out practice functions that are
near to one. The folder that is written is the recipe's `policy`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from demonstrations import demonstrations
from transformers import PreTrainedModel

from sanderling.assemble import load_environment
from sanderling.batch.micro import MicroBatch, micro_batches
from sanderling.compute import make_model
from sanderling.config import load_config
from sanderling.engine.torch_model import no_progress_bars
from sanderling.errors import ConfigError
from sanderling.harness.tokenizer import FastTokenizer
from sanderling.loss.flat_attention import FlatRows, use_flat_attention
from sanderling.loss.logprobs import flat_token_scores
from sanderling.types import TrainingRow

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")

log = logging.getLogger("warm_up")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the imitation goes."""

    learning_rate: float = 2e-4  # of AdamW; rises over the first updates and falls to a twentieth
    rising: int = 5
    batch_tokens: int = 1024  # of one update; small ones learn more from the same tokens


def imitate(model: PreTrainedModel, rows: Sequence[TrainingRow], settings: Settings) -> None:
    """Minimise the weighted negative log-likelihood of the actions, each row once, in their order."""
    use_flat_attention(model.eval())
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True
    )
    batches = list(_batches(rows, settings.batch_tokens))
    started = time.process_time()
    for number, batch in enumerate(batches):
        rate = min((number + 1) / settings.rising, 1.05 - number / len(batches))
        optimizer.param_groups[0]["lr"] = rate * settings.learning_rate
        scale = float(sum(row.weights.sum() for row in batch))
        loss = 0.0
        for micro in micro_batches(batch, settings.batch_tokens, "packed"):
            part = _loss(model, micro) / scale
            part.backward()
            loss += part.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if number % 5 == 0 or number + 1 == len(batches):
            log.info(
                "update %d of %d, loss %.3f, %.0f CPU-seconds",
                number + 1,
                len(batches),
                loss,
                time.process_time() - started,
            )


def _batches(rows: Sequence[TrainingRow], tokens: int) -> Iterator[list[TrainingRow]]:
    batch: list[TrainingRow] = []
    for row in rows:
        if batch and sum(len(r.token_ids) for r in batch) + len(row.token_ids) > tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _loss(model: PreTrainedModel, micro: MicroBatch) -> torch.Tensor:
    assert micro.flat is not None
    flat = FlatRows(
        token_ids=torch.from_numpy(micro.flat.token_ids).long(),
        positions=torch.from_numpy(micro.flat.positions).long(),
        blocks=micro.flat.blocks,
    )
    targets = torch.from_numpy(micro.token_ids[micro.loss_mask]).long()
    # A context for each step: autocast keeps its copies of the weights until the context ends.
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = flat_token_scores(model, flat, torch.from_numpy(micro.flat.predictors), targets)
    return -(scores.logprobs * torch.from_numpy(micro.weights[micro.loss_mask])).sum()


def main() -> None:
    """Read the command line, demonstrate, imitate, and write the folder."""
    parser = argparse.ArgumentParser(description="Warm up a pretrained model for a recipe on HumanEvalPack.")
    parser.add_argument(
        "recipe", type=Path, help="its environment, limits, sandbox and seed hold; its policy is written"
    )
    parser.add_argument("model", type=Path, help="folder of the pretrained model")
    parser.add_argument("--tokens", type=int, default=112_000, help="of demonstrations, prompts included")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings in place of the recipe's")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stdout)
    torch.set_num_threads(options.threads)
    config = load_config([options.recipe], dict(pair.split("=", 1) for pair in options.set))
    out = Path(config.policy)
    if out.exists():
        raise ConfigError(f"{out} exists already; remove it, or name another folder as the recipe's policy")
    environment = load_environment(config.environment, config.verifier, config.harness, config.environment_settings)
    rows = asyncio.run(demonstrations(config, environment, FastTokenizer(options.model), options.tokens))
    log.info(
        "%d demonstrations, %d tokens, %.0f CPU-seconds",
        len(rows),
        sum(len(r.token_ids) for r in rows),
        time.process_time(),
    )
    model = make_model(config, options.model, dtype="float32")
    imitate(model, rows, Settings())
    part = out.with_name(f"{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    with no_progress_bars():
        model.save_pretrained(part)
    for name in TOKENIZER_FILES:
        if (options.model / name).is_file():
            shutil.copyfile(options.model / name, part / name)
    (part / "warm-up.json").write_text(json.dumps({"demonstrations": len(rows), "seed": config.seed}) + "\n", "utf-8")
    part.rename(out)
    log.info("%s written, %.0f CPU-seconds in all", out, time.process_time())


if __name__ == "__main__":
    main()
