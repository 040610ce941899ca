"""The tokenizer of the default policy: every text comes back, and markers in text stay text."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from fix_python.warmup.tokenizer import SPECIAL_TOKENS, save_tokenizer, train_tokenizer
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from sanderling.harness.codec import ACT, END
from sanderling.harness.tokenizer import FastTokenizer

TEXTS = ["1 def double(x):\n2     return x * 2\n", "set 2 | return x * 2", "FAIL double(3) -> 5, expected 6", "ok"] * 3


@cache
def small_tokenizer() -> Tokenizer:
    return train_tokenizer(TEXTS, vocabulary=400)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back(text: str) -> None:
    tokenizer = small_tokenizer()
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=True) == text


@given(
    st.lists(
        st.sampled_from(["\n12     ", "set 7 | ", " += ", '"""', "name", "not in ", "0", " ", "\n", *SPECIAL_TOKENS])
    )
)
def test_code_and_markers_come_back_as_text(pieces: list[str]) -> None:
    tokenizer = small_tokenizer()
    ids = tokenizer.encode("".join(pieces)).ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == "".join(pieces)
    assert not {tokenizer.token_to_id(token) for token in SPECIAL_TOKENS} & set(ids)


def test_the_head_of_an_edit_and_a_digit_are_decisions_of_their_own() -> None:
    tokenizer = train_tokenizer(["set 12 | x = 100", "\n12     x = 100"] * 50, vocabulary=400)
    pieces = [tokenizer.decode([i]) for i in tokenizer.encode("set 12 | x = 100").ids]
    assert pieces == ["set 12 | ", "x", " = ", "1", "0", "0"]


def test_the_saved_folder_is_read_by_the_harness(tmp_path: Path) -> None:
    save_tokenizer(small_tokenizer(), tmp_path)
    loaded = FastTokenizer(tmp_path)
    assert loaded.special_id(ACT) is not None
    assert loaded.eos_id == loaded.special_id(END) is not None
    text = f"a {END} b"
    assert loaded.decode(loaded.encode(text)) == text
