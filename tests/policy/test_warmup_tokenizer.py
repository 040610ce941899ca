"""The tokenizer of the default policy: every text comes back, and markers in text stay text."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from fix_python.warmup.tokenizer import INDENTATIONS, LINES, SPECIAL_TOKENS, save_tokenizer, train_tokenizer
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from sanderling.harness.codec import ACT, END
from sanderling.harness.tokenizer import FastTokenizer

TEXTS = [
    "1 def double(x):\n2     return x + 2\n",
    "line 2",
    "return x + 2",
    "sub| + => * ",
    "ok 1 of 2\ndouble(3) = 5 want 6",
] * 3


@cache
def small_tokenizer() -> Tokenizer:
    return train_tokenizer(TEXTS, vocabulary=400)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back(text: str) -> None:
    tokenizer = small_tokenizer()
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=True) == text


@given(
    st.lists(
        st.sampled_from(
            ["\n12     ", "line 7", "sub|", "=>", " += ", '"""', "name", "not in ", "0", " ", "\n", *SPECIAL_TOKENS]
        )
    )
)
def test_code_and_markers_come_back_as_text(pieces: list[str]) -> None:
    tokenizer = small_tokenizer()
    ids = tokenizer.encode("".join(pieces)).ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == "".join(pieces)
    assert not {tokenizer.token_to_id(token) for token in SPECIAL_TOKENS} & set(ids)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("line 12", ["line 12"]),
        ("sub|x = 100=>not x", ["sub|", "x", " = ", "1", "0", "0", "=>", "not ", "x"]),
        ("\n12     x = 100", ["\n12     ", "x", " = ", "1", "0", "0"]),
    ],
)
def test_a_decision_is_about_one_token(text: str, pieces: list[str]) -> None:
    tokenizer = train_tokenizer(["sub|x = 100=>not x", "\n12     x = 100"] * 50, vocabulary=400)
    assert [tokenizer.decode([i]) for i in tokenizer.encode(text).ids] == pieces


def test_the_first_lines_are_one_token_each_whatever_the_texts_hold() -> None:
    tokenizer = train_tokenizer(TEXTS, vocabulary=400)
    heads = [f"line {number}" for number in range(1, LINES + 1)]
    numbers = [f"\n{number}{' ' * (1 + depth)}" for number in range(2, LINES + 1) for depth in INDENTATIONS]
    assert {len(tokenizer.encode(text).ids) for text in heads + numbers} == {1}


def test_the_saved_folder_is_read_by_the_harness(tmp_path: Path) -> None:
    save_tokenizer(small_tokenizer(), tmp_path)
    loaded = FastTokenizer(tmp_path)
    assert loaded.special_id(ACT) is not None
    assert loaded.eos_id == loaded.special_id(END) is not None
    text = f"a {END} b"
    assert loaded.decode(loaded.encode(text)) == text
