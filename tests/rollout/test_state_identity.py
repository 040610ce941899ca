"""When two turns stand in the same state."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stages import run_group, stage, text_engine

from sanderling.rollout.config import RolloutConfig
from sanderling.sandbox.protocol import Command, ExecResult
from sanderling.state_identity import Seen, StateIdentity, canonical_text, form_of
from sanderling.testing.environments import FIX, calc_environment
from sanderling.testing.sandboxes import MemoryBackend, result

letters = st.text("abcxyz ._-:/()=\n", max_size=12)
names = st.text("abcdefghijklmnopqrstuvwxyz0123456789_", min_size=8, max_size=8)
clocks = st.times().map(lambda time: time.isoformat("seconds"))
moments = st.datetimes().map(lambda moment: moment.isoformat(" ", "seconds"))
seconds = st.floats(0.001, 900)
pointers = st.integers(2**44, 2**48 - 1)

VOLATILE = (
    clocks.map("at {}.".format),
    moments.map("on {} ".format),
    seconds.map("in {:.3f}s".format),
    seconds.map("took {:.2f} seconds".format),
    pointers.map("<calc.Thing object at 0x{:x}>".format),
    pointers.map("0x{:012x}".format),
    names.map("/tmp/tmp{}/data.txt".format),
    names.map("/dev/shm/tmp.{}".format),
    st.integers(0, 9999).map("/tmp/pytest-of-agent/pytest-{}/test_a0/x".format),
)


@st.composite
def twins(draw: st.DrawFn) -> tuple[str, str]:
    """Two texts that differ in volatile pieces only."""
    left, right = [], []
    for _ in range(draw(st.integers(1, 4))):
        around, kind = draw(letters), draw(st.sampled_from(VOLATILE))
        left += [around, " ", draw(kind), " "]
        right += [around, " ", draw(kind), " "]
    return "".join(left), "".join(right)


@settings(max_examples=80)
@given(texts=twins())
def test_times_paths_and_addresses_do_not_split_states(texts: tuple[str, str]):
    assert canonical_text(texts[0]) == canonical_text(texts[1])


@settings(max_examples=50)
@given(text=st.text(max_size=80) | twins().map(lambda both: both[0]))
def test_canonical_text_is_idempotent(text: str):
    once = canonical_text(text)
    assert canonical_text(once) == once


@settings(max_examples=50)
@given(
    number=st.integers(0, 10**9), other=st.integers(0, 10**9), word=st.sampled_from(["{}", "x = {}", "0x{:x}", "{} ok"])
)
def test_numbers_that_mean_something_are_kept(number: int, other: int, word: str):
    one, two = (canonical_text(word.format(value)) for value in (number, other))
    assert (one == two) == (number == other)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("5 seconds", "6 seconds"),  # may be what a program is asked for
        ("1 failed, 2 passed", "2 failed, 1 passed"),
        ("lines 3:14 to 3:15", "lines 3:16 to 3:17"),
        ("version 1.2.3", "version 1.2.4"),
        ("mask 0xff00", "mask 0x00ff"),
        ("/tmp/notes.txt", "/tmp/plan.txt"),
        ("ratio 0.25", "ratio 0.75"),
        ("add(1, 2) = -1 want 3", "add(1, 2) = -1 want 4"),
    ],
)
def test_what_tells_states_apart_is_kept(left: str, right: str):
    assert canonical_text(left) != canonical_text(right)


@pytest.mark.parametrize(
    "text",
    [
        "=== 3 passed in 0.02s ===",
        "Ran 3 tests in 0.001s",
        "cut off after 10.0 s",
        "cut off after 3 s",
        "-rw-r--r-- 1 agent agent 30 Nov 30 00:36 calc.py",
        "Mon Nov 30 00:36:01 UTC 2026",
        "2026-11-30 00:36:01,123 INFO x",
    ],
)
def test_what_tools_print_about_time_is_taken_out(text: str):
    assert "<" in canonical_text(text)
    assert not set("0123456789") & set(
        canonical_text(text).replace("3 passed", "").replace("3 tests", "").replace(" 1 agent agent 30 ", "")
    )


@settings(max_examples=30)
@given(data=st.data(), texts=st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=6))
def test_keys_by_how_much_is_seen(data: st.DataObject, texts: list[str]):
    shuffled = data.draw(st.permutations(texts))
    for seen in Seen:
        states = StateIdentity(seen=seen)
        one, other = (states.key("w", map(states.observation, read)) for read in (texts, shuffled))
        assert form_of(one) == states.form == f"1-{seen.value}"
        assert one != states.key("another workspace", map(states.observation, texts))
        same = list(texts) == list(shuffled) if seen is Seen.SEQUENCE else True
        assert (one == other) == same
        more = states.key("w", map(states.observation, [*texts, "news"]))
        assert (more == one) == (seen is Seen.NOTHING)


def test_keys_of_another_version_never_meet():
    old, new = StateIdentity(), StateIdentity(version="2", canonical=str.lower)
    assert old.key("w", []) != new.key("w", [])
    assert new.observation("A") == new.observation("a") != old.observation("A")


def _keys(actions: list[str], seen: Seen = Seen.SET, commands=None) -> list[str | None]:
    environment = replace(calc_environment(), states=StateIdentity(seen=seen))
    backend = MemoryBackend(commands=commands) if commands else None
    engine = text_engine(lambda context: actions[context.count("\n> ") - 1])
    group, *_ = run_group(stage(engine, environment, backend), RolloutConfig())
    return [turn.state_key for turn in group.members[0].trajectory.turns]


def test_a_key_stands_for_the_state_before_the_action():
    steps = [FIX, "undo", FIX, "submit"]
    first, second, third, fourth = _keys(steps, Seen.NOTHING)
    assert first == third != second == fourth, "the workspace alone comes back"
    assert len(set(_keys(steps, Seen.SEQUENCE))) == 4
    read = _keys(["test", "test", "show", "submit"])
    assert read[1] == read[2] and len(set(read)) == 3, "reading the same again changes nothing"


def test_siblings_meet_whatever_the_clock_says():
    ran = iter(range(100))

    def commands(command: Command, files: dict[str, bytes]) -> ExecResult:
        number = next(ran)
        return result(f"1 failed in 0.{number:02d}s at /tmp/tmp{number:08x}/t", exit_code=1)

    one, other = (_keys(["test", FIX, "submit"], commands=commands) for _ in range(2))
    assert one == other
    assert len(set(one)) == 3
