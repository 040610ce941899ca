"""The command that makes the default policy, at a small size."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random

import pytest
import torch
from fix_python.make_policy import make_policy
from fix_python.warmup.corpus import CorpusConfig, Rounds
from fix_python.warmup.teacher import Piece, Role
from fix_python.warmup.tokenizer import PAD, train_tokenizer
from fix_python.warmup.train import (
    Row,
    TrainingConfig,
    batches,
    line_number_tokens,
    new_model,
    to_row,
    token_id,
    train,
    weighted_loss,
)
from tokenizers import Tokenizer

from sanderling.harness.codec import ACT, END

ONCE = Rounds(library=1, programs=1, practice=1, problems=1)
TINY = CorpusConfig(
    library=6,
    programs=4,
    practice=2,
    practice_variants=1,
    problems=2,
    problem_variants=1,
    copies=20,
    repairs=ONCE,
    episodes=ONCE,
)


def test_a_row_is_what_the_plain_codec_lays_out() -> None:
    tokenizer = train_tokenizer(["1 x\n", "set 1 | y", "ok", "submit"] * 4, vocabulary=300)
    pieces = [(Role.PROMPT, "1 x\n"), (Role.MISTAKE, "set 1 | z"), (Role.OBSERVATION, "ok"), (Role.ACTION, "submit")]
    row = to_row(tuple(Piece(role=role, text=text) for role, text in pieces), tokenizer)
    act, end = [token_id(tokenizer, ACT)], [token_id(tokenizer, END)]
    parts = [tokenizer.encode(text).ids for _, text in pieces]
    assert row.ids.tolist() == parts[0] + act + parts[1] + end + parts[2] + act + parts[3] + end
    assert row.weights[row.ids == act[0]].tolist() == [0.0, 0.0]
    assert row.weights[-1] == 1.0
    assert row.weights[len(parts[0]) + 1] < 0.1


@cache
def small_tokenizer() -> Tokenizer:
    numbered = "".join(f"\n{number}     x" for number in range(1, 10))
    edits = [f"set {number} | x" for number in range(1, 10)]
    return train_tokenizer([numbered, numbered.replace("     x", " x"), *edits] * 20, vocabulary=320)


def test_padding_changes_no_loss() -> None:
    model = new_model(small_tokenizer(), seed=0).eval()
    long = Row(ids=torch.arange(2, 22), weights=torch.ones(20))
    short = Row(ids=torch.arange(5, 12), weights=torch.full((7,), 0.5))
    with torch.no_grad():
        alone = [weighted_loss(model, [row]).item() for row in (long, short)]
        together = weighted_loss(model, [long, short]).item()
    assert together == pytest.approx((alone[0] * 19 + alone[1] * 3.0) / 22, abs=1e-4)


def test_line_numbers_in_source_and_edits_are_grouped() -> None:
    tokenizer = small_tokenizer()
    groups = [{tokenizer.decode([token]) for token in group} for group in line_number_tokens(tokenizer)]
    assert {"\n7     ", "\n7 ", "set 7 | "} in groups
    assert len(groups) == 9


def test_an_untrained_model_copies_the_line_that_an_edit_names() -> None:
    """The circuit that is written into the first weights: far from perfect, far from chance (1 of 320)."""
    tokenizer = small_tokenizer()
    model = new_model(tokenizer, seed=0).eval()
    rng = Random(0)
    right = total = 0
    for _ in range(20):
        lines = [rng.sample(range(70, 180), 6) for _ in range(8)]
        numbers = [token_id(tokenizer, tokenizer.encode(f"\n{n}     ").tokens[0]) for n in range(1, 9)]
        number = rng.randint(1, 8)
        ids = [token for head, line in zip(numbers, lines, strict=True) for token in (head, *line)]
        ids += [*tokenizer.encode(f"set {number} | ").ids, *lines[number - 1]]
        with torch.no_grad():
            best = model(torch.tensor([ids])).logits[0, -7:-1].argmax(-1)
        right += int((best == torch.tensor(lines[number - 1])).sum())
        total += 6
    assert right / total > 0.25


def test_batches_hold_every_row_once_and_respect_the_budget() -> None:
    rng = Random(0)
    rows = [Row(ids=torch.zeros(rng.randint(5, 90), dtype=torch.int64), weights=torch.ones(1)) for _ in range(700)]
    cut = batches(rows, 400, Random(1))
    assert sorted(id(row) for batch in cut for row in batch) == sorted(map(id, rows))
    assert all(len(batch) * max(len(row.ids) for row in batch) <= 400 for batch in cut)


@pytest.mark.parametrize("compute", [torch.float32, torch.bfloat16])
def test_training_lowers_the_loss(compute: torch.dtype) -> None:
    """In bfloat16 too: copies of the weights that are kept from step to step would hide every update."""
    rows = [Row(ids=(torch.arange(24) + start) % 60 + 2, weights=torch.ones(24)) for start in range(30)]
    model = new_model(small_tokenizer(), seed=0)
    with torch.no_grad():
        before = weighted_loss(model, rows).item()
    steps = list(train(model, rows * 4, TrainingConfig(batch_tokens=240, warmup_steps=2, compute=compute), seed=0))
    with torch.no_grad():
        after = weighted_loss(model, rows).item()
    assert steps == list(range(1, 13))
    assert after < before - 1.5


@pytest.mark.slow
def test_equal_seeds_make_equal_folders(tmp_path: Path) -> None:
    for name, seed in (("first", 3), ("again", 3), ("other", 4)):
        make_policy(tmp_path / name, seed, TINY, TrainingConfig())
    first, again, other = (
        {file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in ("first", "again", "other")
    )
    assert first == again
    assert first["model.safetensors"] != other["model.safetensors"]
    assert PAD in first["tokenizer.json"].decode()
