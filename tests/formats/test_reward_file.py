"""A reward file is read strictly."""

from __future__ import annotations

import pytest

from sanderling.verify.reward_file import NoReward, parse_reward_json, parse_reward_text


@pytest.mark.parametrize(("text", "reward"), [(b"1\n", 1.0), (b" 0.25 ", 0.25), (b"-2e-1", -0.2), (b"0", 0.0)])
def test_one_number_is_a_reward(text, reward):
    assert parse_reward_text(text).reward == reward


@pytest.mark.parametrize("text", [b"", b"  \n", b"1 1", b"nan", b"inf", b"one", b"1,0", b"\xff1", b"[1]", b"0x1"])
def test_anything_else_is_none(text):
    with pytest.raises(NoReward):
        parse_reward_text(text)


@pytest.mark.parametrize(
    ("text", "reward", "components"),
    [
        (b'{"reward": 1}', 1.0, {"reward": 1.0}),
        (b'{"score": 0.5}', 0.5, {"score": 0.5}),
        (b'{"a": 1, "reward": 0.5}', 0.5, {"a": 1.0, "reward": 0.5}),
    ],
)
def test_an_object_of_numbers_is_a_reward(text, reward, components):
    found = parse_reward_json(text)
    assert (found.reward, dict(found.components)) == (reward, components)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{}", b"[1]", b"1", b"{", b'{"reward": "1"}', b'{"reward": true}', b'{"reward": NaN}', b'{"reward": null}',
        b'{"reward": 1, "b": Infinity}', b'{"a": 1, "b": 0}', b"[" * 100_000, b'{"reward": 1' + b"0" * 400 + b"}",
    ],
)  # fmt: skip
def test_any_other_json_is_none(text):
    with pytest.raises(NoReward):
        parse_reward_json(text)
