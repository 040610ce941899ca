"""The command that makes the default policy, at a small size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import cycle
from pathlib import Path
from random import Random

import pytest
import torch
from fix_python.make_policy import make_policy
from fix_python.warmup.corpus import Budget, CorpusConfig, Shares, Stage
from fix_python.warmup.teacher import STEADY, Piece, Role
from fix_python.warmup.tokenizer import PAD, train_tokenizer
from fix_python.warmup.train import (
    MAX_TOKENS,
    WEIGHTS,
    Row,
    TrainingConfig,
    batches,
    new_model,
    to_row,
    token_id,
    train,
    weighted_loss,
)
from tokenizers import Tokenizer

from sanderling.harness.codec import ACT, END

FIRST = Stage(
    budget=Budget(tokens=20_000),
    episodes=0.3,
    most_bugs=3,
    teachers=(STEADY,),
    shares=Shares(library=0, programs=1, practice=0, problems=0),
)
SECOND = replace(
    FIRST,
    budget=Budget(tokens=20_000, falls=(10_000, 20_000)),
    shares=Shares(library=1, programs=1, practice=1, problems=1),
)
TINY = CorpusConfig(
    library=6,
    programs=4,
    practice=2,
    practice_variants=1,
    problems=2,
    problem_variants=1,
    stages=(FIRST, SECOND),
)


def test_a_row_is_what_the_plain_codec_lays_out() -> None:
    tokenizer = train_tokenizer(["1 x\n", "line 1", "x", "submit"] * 4, vocabulary=300)
    pieces = [(Role.PROMPT, "1 x\n"), (Role.MISTAKE, "line 1"), (Role.OBSERVATION, "x"), (Role.ACTION, "submit")]
    row = to_row(tuple(Piece(role=role, text=text) for role, text in pieces), tokenizer)
    act, end = [token_id(tokenizer, ACT)], [token_id(tokenizer, END)]
    parts = [tokenizer.encode(text).ids for _, text in pieces]
    assert row.ids.tolist() == parts[0] + act + parts[1] + end + parts[2] + act + parts[3] + end
    assert row.weights[row.ids == act[0]].tolist() == [0.0, 0.0]
    assert row.weights[-1] == 1.0
    assert row.weights[len(parts[0]) + 1] == pytest.approx(WEIGHTS[Role.MISTAKE])


@cache
def small_tokenizer() -> Tokenizer:
    numbered = "".join(f"\n{number}     x" for number in range(1, 10))
    edits = [f"line {number}" for number in range(1, 10)]
    return train_tokenizer([numbered, numbered.replace("     x", " x"), *edits] * 20, vocabulary=320)


def test_padding_changes_no_loss() -> None:
    model = new_model(small_tokenizer(), seed=0).eval()
    long = Row(ids=torch.arange(2, 22), weights=torch.ones(20))
    short = Row(ids=torch.arange(5, 12), weights=torch.full((7,), 0.5))
    with torch.no_grad():
        alone = [weighted_loss(model, [row]).item() for row in (long, short)]
        together = weighted_loss(model, [long, short]).item()
    assert together == pytest.approx((alone[0] * 19 + alone[1] * 3.0) / 22, abs=1e-4)


def test_batches_hold_every_row_once_and_respect_the_budget() -> None:
    rng = Random(0)
    rows = [Row(ids=torch.zeros(rng.randint(5, 90), dtype=torch.int64), weights=torch.ones(1)) for _ in range(700)]
    cut = batches(rows, 400, Random(1))
    assert sorted(id(row) for batch in cut for row in batch) == sorted(map(id, rows))
    assert all(len(batch) * max(len(row.ids) for row in batch) <= 400 for batch in cut)


@pytest.mark.parametrize("compute", [torch.float32, torch.bfloat16])
def test_training_lowers_the_loss(compute: torch.dtype) -> None:
    """In bfloat16 too: copies of the weights that are kept from step to step would hide every update."""
    drawn = [Row(ids=(torch.arange(24) + start) % 60 + 2, weights=torch.ones(24)) for start in range(30)]
    model = new_model(small_tokenizer(), seed=0)
    with torch.no_grad():
        before = weighted_loss(model, drawn).item()
    config = TrainingConfig(batch_tokens=240, warmup_steps=2, compute=compute)
    steps = list(train(model, iter(drawn * 4), Budget(tokens=24 * 120), config, seed=0))
    with torch.no_grad():
        after = weighted_loss(model, drawn).item()
    assert steps == list(range(1, 13))
    assert after < before - 1.5


def test_training_ends_with_its_tokens_and_leaves_long_rows_out() -> None:
    """Of an endless stream it takes what it needs, by stretches; a long row would not fit the positions."""
    taken: list[int] = []

    def stream() -> Iterator[Row]:
        for length in cycle([40, MAX_TOKENS + 1]):
            taken.append(length)
            yield Row(ids=torch.arange(length) % 60 + 2, weights=torch.ones(length))

    config = TrainingConfig(batch_tokens=80, stretch=4)
    steps = list(train(new_model(small_tokenizer(), seed=0), stream(), Budget(tokens=200), config, seed=0))
    assert steps == [1, 2, 3]  # two rows of 40 tokens in each step and each stretch
    assert len(taken) == 3 * config.stretch


def test_the_learning_rates_stay_and_then_fall() -> None:
    assert [Budget(tokens=100).rate(used) for used in (0, 99)] == [1.0, 1.0]
    falling = Budget(tokens=100, falls=(50, 100))
    assert [falling.rate(used) for used in (0, 50, 75, 100)] == pytest.approx([1.0, 1.0, 0.52, 0.02])


@pytest.mark.slow
def test_equal_seeds_make_equal_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fix_python.make_policy.TOKENIZER_SAMPLE", 200)
    training = TrainingConfig(stretch=32)
    for name, seed in (("first", 3), ("again", 3), ("other", 4)):
        make_policy(tmp_path / name, seed, TINY, training)
    first, again, other = (
        {file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in ("first", "again", "other")
    )
    assert first == again
    assert first["model.safetensors"] != other["model.safetensors"]
    assert PAD in first["tokenizer.json"].decode()
