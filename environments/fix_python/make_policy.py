"""Makes the default policy from nothing: `python -m fix_python.make_policy [--out DIR] [--seed 0] [--threads 1]`.

Corpus, tokenizer, model and training, in this order, at about 60 CPU-minutes; a Hugging Face folder comes out. Nothing is
downloaded: the corpus is made of the interpreter's own standard library, of random programs, of practice functions and of the
training problems. Held-out problems are never read. On one machine, equal seed and threads give an equal folder, as long as no
call of a demonstration is near the time at which it is cut off. The order of sets stands in reports, so the command starts
itself again with a fixed hash seed.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from itertools import islice
from pathlib import Path
from random import Random

import torch
from transformers import LlamaForCausalLM

from fix_python.warmup.corpus import CorpusConfig, demonstrations, make_exercises
from fix_python.warmup.tokenizer import save_tokenizer, train_tokenizer
from fix_python.warmup.train import TrainingConfig, new_model, to_row, train

FOLDER = Path(__file__).with_name("policy")
TOKENIZER_SAMPLE = 4000
SAVE_EVERY = 200
HASH_SEED = "0"

log = logging.getLogger(__name__)


def make_policy(out: Path, seed: int, corpus: CorpusConfig, training: TrainingConfig) -> None:
    """Make a policy folder at `out`, overwriting what it holds; intermediate weights are saved on the way."""
    exercises = make_exercises(corpus, Random(seed))
    rng = Random(seed)
    first = demonstrations(corpus, corpus.stages[0], exercises, rng)
    texts = [piece.text for demonstration in islice(first, TOKENIZER_SAMPLE) for piece in demonstration]
    tokenizer = train_tokenizer(texts)
    save_tokenizer(tokenizer, out)
    model = new_model(tokenizer, seed)
    for number, stage in enumerate(corpus.stages):
        rng = rng if number == 0 else Random(seed + number)
        shown = demonstrations(corpus, stage, exercises, rng)
        rows = (to_row(demonstration, tokenizer) for demonstration in shown)
        for step in train(model, rows, stage.budget, training, seed + number):
            if step % SAVE_EVERY == 0:
                save_model(model, out)
        save_model(model, out)


def save_model(model: LlamaForCausalLM, out: Path) -> None:
    """Write config.json, generation_config.json and model.safetensors (fp32)."""
    model.save_pretrained(out)
    settings: dict[str, object] = {"do_sample": True, "temperature": 1.0, "max_new_tokens": 96}
    settings |= {"eos_token_id": model.config.eos_token_id, "pad_token_id": model.config.pad_token_id}
    (out / "generation_config.json").write_text(json.dumps(settings, indent=1) + "\n", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the default policy of fix_python from nothing.")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder to write (default: the packaged one)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        command = [sys.executable, "-m", "fix_python.make_policy", *sys.argv[1:]]
        os.execve(sys.executable, command, os.environ | {"PYTHONHASHSEED": HASH_SEED})
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stdout)
    torch.set_num_threads(arguments.threads)
    torch.use_deterministic_algorithms(True)
    make_policy(arguments.out, arguments.seed, CorpusConfig(), TrainingConfig())
    log.info("%s made in %.0f CPU-seconds", arguments.out, time.process_time())


if __name__ == "__main__":
    main()
