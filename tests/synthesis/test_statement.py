"""A statement tells what was seen, and never the line that repairs it."""

from __future__ import annotations

import asyncio
import json

import pytest

from sanderling.errors import EngineError
from sanderling.synthesis.leaks import leaked_line, visible_gold
from sanderling.synthesis.statement import StatementModel, Symptoms, bare, template
from sanderling.synthesis.suite_runs import Failure
from sanderling.tasks.mutation import Planted, SourceFile
from sanderling.testing.chat_server import chat_server

GOLD = "def total(items):\n    # all of them\n    result = sum(items) + 1\n    print(result)\n    return result\n"
FAILURE = Failure(
    type="AssertionError",
    message="assert 3 == 4 of <object at 0x7f3a12345678>",
    frames=(("tests/test_a.py", 3, "test_a"), ("pkg/a.py", 3, "total")),
)


def symptoms(failure: Failure = FAILURE) -> Symptoms:
    return Symptoms(
        name="pkg",
        version="1.0",
        failures=[("tests/test_a.py::test_a[1]", failure), ("tests/test_a.py::test_b", failure)],
        hidden=("tests/test_a.py::test_a",),
        sources=("pkg/a.py",),
        tests="def test_a(): ...",
    )


def bug(family: str = "arithmetic") -> Planted:
    source = SourceFile(GOLD)
    found = [planted for p in source.proposals(0) if p.family == family and (planted := source.plant(p)) is not None]
    return found[0]


def test_the_template_tells_failure_and_place() -> None:
    text = template(symptoms())
    assert "AssertionError: assert 3 == 4 of <object at 0x...>" in text
    assert "`pkg/a.py`, line 3, in `total`" in text
    assert "test_a[1]" not in text  # it is hidden
    assert "tests/test_a.py::test_b" in text
    assert leaked_line(text, bug(), bug().source) is None


def test_a_statement_with_the_right_line_is_noticed() -> None:
    planted = bug()
    assert planted.removed == ("result = sum(items) + 1",)
    shown = template(symptoms(Failure(type="E", message="expected result=sum( items )+1", frames=())))
    assert leaked_line(shown, planted, planted.source) == "result = sum(items) + 1"
    assert leaked_line(bare(symptoms()), planted, planted.source) is None


def test_a_copy_of_the_right_place_is_found_whatever_its_indentation() -> None:
    planted = bug()
    base = {"pkg/a.py": planted.source.encode(), "README.md": b"result = sum(items) + 1\n"}
    assert visible_gold(base, GOLD, planted) is None  # one line is no place
    indented = "class A:\n" + "".join(f"    {line}\n" for line in GOLD.splitlines())
    assert visible_gold({**base, "old.txt": indented.encode()}, GOLD, planted) == "old.txt"


def test_a_model_writes_the_statement_and_never_sees_the_right_solution() -> None:
    with chat_server(["`total([1])` gives 1."]) as server:
        text = asyncio.run(StatementModel(url=server.url, model="m", key="k").write(symptoms()))
    assert text.startswith("`total([1])` gives 1.\n\nFind the cause")
    asked = server.asked
    assert (asked[0]["path"], asked[0]["key"], asked[0]["body"]["model"]) == ("/v1/chat/completions", "Bearer k", "m")
    assert "sum(items) + 1" not in json.dumps(asked[0]["body"])


def test_a_model_that_answers_nothing_is_an_error() -> None:
    with chat_server([""]) as server, pytest.raises(EngineError, match="answered nothing"):
        asyncio.run(StatementModel(url=server.url, model="m").write(symptoms()))
    assert len(server.asked) == 2
