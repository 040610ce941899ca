from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanderling.harness.codec import PlainCodec
from sanderling.harness.line_edit import (
    MAX_CALL_BYTES,
    NO_SUCH_TEXT,
    AnswerToChange,
    Call,
    CallError,
    LineEditHarness,
    parse_call,
    substituted,
)
from sanderling.harness.protocol import BadCall, Reply
from sanderling.sandbox.protocol import SandboxSpec
from sanderling.testing.environments import BUGGY, FIXED, calc_commands, calc_environment
from sanderling.testing.sandboxes import MemoryBackend
from sanderling.testing.toy_tokenizer import ToyTokenizer
from sanderling.types import StopReason


def converse(*actions: str, files: dict[str, bytes] | None = None) -> tuple[list[Reply], dict[str, bytes]]:
    """Act in a fresh workspace; return the replies and the files."""
    environment = calc_environment()
    task = environment.tasks.get("calc/train/0")

    async def run():
        sandbox = await MemoryBackend(commands=calc_commands).create(SandboxSpec(files=files or task.base))
        conversation = environment.harness.start(task, sandbox)
        replies = [await conversation.act(action) for action in actions]
        return replies, {path: await sandbox.read_file(path) for path in await sandbox.list_files()}

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("set 2 | return a + b", Call(name="set", line=2, text="return a + b")),
        ("set 2|x | y", Call(name="set", line=2, text="x | y")),
        ("line 12", Call(name="line", line=12)),
        ("sub| < => <= ", Call(name="sub", old=" < ", text=" <= ")),
        ("sub|not =>", Call(name="sub", old="not ", text="")),
        ("  test  ", Call(name="test")),
        ("show other.py", Call(name="show", text="other.py")),
        ("show", Call(name="show")),
        ("submit", Call(name="submit")),
    ],
)
def test_calls_parse(text, call):
    assert parse_call(text) == call


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", BadCall.UNKNOWN),
        ("fix it", BadCall.UNKNOWN),
        ("Test", BadCall.UNKNOWN),
        ("set", BadCall.MALFORMED),
        ("set 3", BadCall.MALFORMED),
        ("set 3 |", BadCall.MALFORMED),
        ("set three | x", BadCall.WRONG_TYPE),
        ("set [] | x", BadCall.WRONG_TYPE),
        ("set -1 | x", BadCall.WRONG_TYPE),
        ("set 0 | x", BadCall.WRONG_TYPE),
        ("set ² | x", BadCall.WRONG_TYPE),
        ("line", BadCall.WRONG_TYPE),
        ("line 2 3", BadCall.WRONG_TYPE),
        ("sub|a", BadCall.MALFORMED),
        ("sub| =>a", BadCall.MALFORMED),
        ("sub a=>b", BadCall.UNKNOWN),
        ("submit now", BadCall.MALFORMED),
        ("set 1 | " + "x" * MAX_CALL_BYTES, BadCall.OVERSIZED),
    ],
)
def test_bad_calls_are_named(text, kind):
    error = parse_call(text)
    assert isinstance(error, CallError)
    assert error.kind is kind


@given(st.text(max_size=200))
def test_parsing_never_raises(text):
    assert isinstance(parse_call(text), Call | CallError)


@given(st.integers(1, 10**8), st.text(st.characters(exclude_categories=("Cs", "Cc", "Z")), min_size=1))
def test_set_keeps_its_text(line, text):
    assert parse_call(f"set {line} | {text}") == Call(name="set", line=line, text=text)


def test_probe_d12_bad_calls():
    """Three calls in one action: three replies in order, nothing dispatched for the bad ones, the episode goes on."""
    replies, files = converse("test\nset 2 |\nset [] | return 0", "set 2 | " + "x" * 2_000_000, "set 2 | return a + b")
    three, huge, after = replies
    numbered = three.text.split("\n")
    assert numbered[0] == "[1] ok 0 of 1"
    assert numbered[-2] == "[2] error: use set LINE | TEXT"
    assert numbered[-1] == "[3] error: '[]' is no line number"
    assert three.bad_calls == (BadCall.MALFORMED, BadCall.WRONG_TYPE)
    assert three.commands == 1
    assert huge.bad_calls == (BadCall.OVERSIZED,)
    assert "2000008 bytes" in huge.text
    assert len(huge.text) < 2000
    assert three.stop is huge.stop is None
    assert after.text == "ok"
    assert files["calc.py"] == FIXED


def test_a_submit_ends_the_action():
    (reply,), _ = converse("submit\ntest")
    assert reply.stop is StopReason.SUBMITTED
    assert reply.text == "[1] "


def test_undo_takes_edits_back_one_by_one():
    replies, files = converse("set 2 | return 1", "set 2 | return 2", "undo", "undo", "undo")
    assert [reply.text for reply in replies[2:]] == ["return 1", "return a - b", "error: nothing to undo"]
    assert files["calc.py"] == BUGGY


def test_a_part_of_the_current_line_is_replaced():
    replies, files = converse("sub| - => + ", "line 2", "sub| * => + ", "sub| - => + ", "sub|a=>b", "undo")
    assert [reply.text for reply in replies] == [
        "error: no current line, use line LINE first",
        "return a - b",
        "error: no such text here\nreturn a - b",
        "ok",
        "ok",
        "return a + b",
    ]
    assert files["calc.py"] == FIXED


def test_a_part_is_looked_for_in_the_line_as_it_is_printed():
    """Not in its indentation: what is not in the printed line is not found."""
    replies, files = converse("line 2", "sub| return=>yield", "sub|    return a=>return b", "sub|return =>yield ")
    assert [reply.text for reply in replies[1:]] == [f"{NO_SUCH_TEXT}\nreturn a - b"] * 2 + ["ok"]
    assert files["calc.py"] == b"def add(a, b):\n    yield a - b\n"


def test_undo_makes_the_line_of_the_change_current_again():
    replies, _ = converse("line 2", "sub|a=>b", "line 1", "undo", "sub|b=>a", "line 3")
    assert [reply.text for reply in replies[2:]] == [
        "def add(a, b):",
        "return a - b",
        "ok",
        "error: no line 3, the file has 2",
    ]


@pytest.mark.parametrize(
    ("line", "old", "new", "result"),
    [
        ("return n", "n", "n + 1", "return n + 1"),  # not the end of `return`
        ("size = size - 1", "size", "count", "count = size - 1"),
        ("if not seen:", "not ", "", "if seen:"),
        ("x[1:]", "[1:", "[:1", "x[:1]"),
        ("total", "tot", "x", None),
        ("a.b(*c)", ".b(*", "$", "a$c)"),
    ],
)
def test_a_part_is_found_where_it_cuts_no_word(line, old, new, result):
    assert substituted(line, old, new) == result


@given(st.text(max_size=30), st.text(max_size=9), st.text(max_size=9))
def test_a_substitution_changes_one_place(line, old, new):
    result = substituted(line, old, new)
    if result is not None:
        assert any(result == line[:at] + new + line[at + len(old) :] for at in range(len(line) + 1))


def test_a_change_may_be_answered_by_the_tests():
    environment = calc_environment()
    harness = LineEditHarness(file="calc.py", test_argv=environment.harness.test_argv, answer=AnswerToChange.TESTED)
    task = environment.tasks.get("calc/train/0")

    async def run():
        sandbox = await MemoryBackend(commands=calc_commands).create(SandboxSpec(files=task.base))
        conversation = harness.start(task, sandbox)
        return [await conversation.act(action) for action in ("set 2 | return a * b", "line 2", "sub| * => + ")]

    wrong, shown, right = asyncio.run(run())
    assert (wrong.text, wrong.source, wrong.commands) == ("ok 0 of 1", "tests", 1)
    assert (shown.text, shown.commands) == ("return a * b", 0)
    assert (right.text, right.exit_code) == ("ok 1 of 1", 0)


def test_a_change_that_is_tried_stays_only_if_the_tests_pass():
    environment = calc_environment()
    harness = LineEditHarness(file="calc.py", test_argv=environment.harness.test_argv, answer=AnswerToChange.TRIED)
    task = environment.tasks.get("calc/train/0")

    async def run():
        sandbox = await MemoryBackend(commands=calc_commands).create(SandboxSpec(files=task.base))
        conversation = harness.start(task, sandbox)
        replies = [
            await conversation.act(call) for call in ("undo", "line 2", "sub| - => * ", "undo", "sub| - => + ", "undo")
        ]
        return [reply.text for reply in replies], await sandbox.read_file("calc.py")

    texts, source = asyncio.run(run())
    nothing, before = "error: nothing to undo", "return a - b"
    assert texts == [nothing, before, "ok 0 of 1", nothing, "ok 1 of 1", before]
    assert source == BUGGY


def test_lines_and_files_that_are_not_there():
    replies, files = converse("set 9 | x", "show nowhere.py", "list")
    assert replies[0].text == "error: no line 9, the file has 2"
    assert replies[1].text.startswith("error: ")
    assert replies[2].text == "calc.py"
    assert files["calc.py"] == BUGGY


def test_show_makes_a_file_the_current_one():
    files = {"calc.py": BUGGY, "b.py": b"one\ntwo\n"}
    replies, after = converse("show b.py", "set 1 | three", "show", files=files)
    assert replies[0].text == "1 one\n2 two"
    assert replies[2].text == "1 three\n2 two"
    assert after["calc.py"] == BUGGY


def test_the_prompt_shows_the_file():
    environment = calc_environment()
    prompt = environment.harness.prompt(environment.tasks.get("calc/train/0"))
    assert prompt == "Fix add.\n1 def add(a, b):\n2     return a - b\n"
    assert isinstance(environment.harness, LineEditHarness)


def test_the_codec_falls_back_to_text_where_markers_are_missing():
    marked = PlainCodec(ToyTokenizer(special_tokens=("<|act|>", "<|end|>")))
    assert marked.encode_prompt("hello").tolist() == [258, 262]
    plain = PlainCodec(ToyTokenizer())
    assert plain.encode_prompt("hello").tolist() == [258, *b"\n> "]
    assert plain.stop_token_ids == (ToyTokenizer().special_id("<|end|>"),)
    action = plain.encode_observation("he", "stop")
    assert plain.decode_action(action) == "he\n> "
