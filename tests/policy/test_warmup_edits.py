"""The calls of the warm-up: each makes of a line exactly what it should, or exactly nothing."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from fix_python import environment
from fix_python.catalogue import problems
from fix_python.tasks import FILE, load_index, planted
from fix_python.warmup.edits import change_call, missing_call
from hypothesis import assume, given
from hypothesis import strategies as st

from sanderling.harness.line_edit import Call, LineEditHarness, parse_call, substituted
from sanderling.sandbox.protocol import SandboxSpec
from sanderling.testing.sandboxes import MemoryBackend
from sanderling.types import Task

PARTS = [
    "n",
    "not ",
    "return ",
    "size",
    " size",
    "a",
    "1",
    "10",
    " + ",
    " - ",
    "-",
    "(",
    ")",
    ", ",
    "[",
    ":",
    "  ",
    "é",
    "²",
]
characters = st.characters(exclude_categories=("C", "Z"))
lines = st.lists(st.sampled_from(PARTS) | st.text(characters, max_size=3), max_size=12).map("".join).map(str.strip)


def applied(call: str, line: str) -> str | None:
    """Return what a call makes of the line in the editor's own words."""
    parsed = parse_call(call)
    assert isinstance(parsed, Call), call
    assert parsed.name == "sub"
    return substituted(line, parsed.old, parsed.text)


@pytest.mark.parametrize(
    ("before", "after", "call"),
    [
        ("return low * low", "return high * low", "sub|low=>high"),
        ("return low * low", "return low * high", "sub| * low=> * high"),
        ("if seen:", "if not seen:", "sub|if =>if not "),
        ("return list(items)", "return items", "sub|list(items)=>items"),
        ("for i in range(1, n):", "for i in range(1, n + 1):", "sub|n=>n + 1"),  # no word is cut in two
        ("x -= 1", "x += 1", "sub| -= => += "),
        ("pass", "items.sort()", "sub|pass=>items.sort()"),
    ],
)
def test_little_is_replaced(before: str, after: str, call: str) -> None:
    assert change_call(before, after) == call


@given(lines, lines)
def test_a_change_makes_one_line_of_the_other(before: str, after: str) -> None:
    assume(before and before != after and "=>" not in before)
    assert applied(change_call(before, after), before) == after


def test_no_call_leaves_a_line_as_it_is() -> None:
    with pytest.raises(ValueError, match="would stay as it is: 'x = 1'"):
        change_call("x = 1", "x = 1")


@given(st.lists(lines, min_size=2, max_size=6), st.data())
def test_a_missing_call_misses(source: list[str], data: st.DataObject) -> None:
    line = data.draw(st.sampled_from(source))
    assume("..." not in line and not any("=>" in text for text in source))
    assume(any(source))
    indented = "".join(f"    {text}\n" for text in source)
    call = missing_call(indented, line, Random(data.draw(st.integers(0, 99))))
    assert applied(call, line) is None


def test_two_calls_solve_every_task() -> None:
    """In the editor itself: the line is looked at, and what is printed is enough to know the change; misses miss."""
    harness = LineEditHarness(file=FILE, test_argv=environment().harness.test_argv)
    rng = Random(0)

    async def solve(entry_id: str) -> None:
        entry = load_index()[1][entry_id]
        problem = problems()[entry.function]
        source, right = planted(problem, entry), problem.source.split("\n")[entry.line - 1]
        sandbox = await MemoryBackend().create(SandboxSpec(files={FILE: source.encode()}))
        conversation = harness.start(Task(id=entry_id, prompt="", base={}), sandbox)
        shown = (await conversation.act(f"line {entry.line}")).text
        assert shown == entry.text.strip()
        missed = await conversation.act(missing_call(source, shown, rng))
        assert missed.text == f"error: no such text here\n{shown}"
        assert (await conversation.act(change_call(shown, right.strip()))).text == "ok"
        assert (await sandbox.read_file(FILE)).decode() == problem.source, entry_id

    async def solve_all() -> None:
        for entry_id in load_index()[1]:
            await solve(entry_id)

    asyncio.run(solve_all())
