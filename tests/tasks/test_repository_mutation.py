"""Bugs that only a repository's code allows: several lines, attributes, methods; and how they are planted."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from sanderling.errors import TaskError
from sanderling.tasks.mutation import FAMILIES, REPOSITORY_FAMILIES, SourceFile
from sanderling.tasks.mutation.proposals import changed_lines

# family, body of a method of a class, (line of the gold text that goes or changes, line that must stand there or None)
EXPECTED = [
    ("dropped_guard", ["if not a:", "    raise ValueError(a)", "return a"], ("if not a:", None)),
    ("swapped_branches", ["if a:", "    return 1", "else:", "    return 2"], ("else:", "else:")),
    ("swapped_branches", ["return 1 if a else 2"], ("return 1 if a else 2", "return 2 if a else 1")),
    ("removed_method", ["return a"], ("def method(self, a=None, *, flag=True):", None)),
    ("removed_await", ["async def inner():", "    await a()", "return inner"], ("await a()", "a()")),
    ("removed_end", ["a.write()", "a.close()"], ("a.close()", "pass")),
    ("removed_end", ["with open(a) as file:", "    return file.read()"], ("with open(a) as file:", "file = open(a)")),
    (
        "changed_default",
        ["return a"],
        ("def method(self, a=None, *, flag=True):", "def method(self, a=None, *, flag=False):"),
    ),
    (
        "changed_default",
        ["return a"],
        ("def method(self, a=None, *, flag=True):", "def method(self, a, *, flag=True):"),
    ),
    ("wrong_attribute", ["return self.first_name"], ("return self.first_name", "return self.last_name")),
    ("wrong_attribute", ["return self.load()"], ("return self.load()", "return self.unload()")),
    ("dropped_keyword", ["return dict(a, key=1)"], ("return dict(a, key=1)", "return dict(a)")),
    ("off_by_one_slice", ["return a[2:]"], ("return a[2:]", "return a[2:-1]")),
    ("off_by_one_slice", ["return a[:2]"], ("return a[:2]", "return a[1:2]")),
]
HEAD = """\
import os  # kept  as  it is


class Owner:
    def __init__(self):
        self.first_name = self.last_name = self.unload() or self.load()

    def method(self, a=None, *, flag=True):
"""


def module(body: list[str]) -> str:
    return HEAD + "".join(f"        {line}\n" for line in body) + "\n\nVALUE = {'a' :1}\n"


@pytest.mark.parametrize(("family", "body", "change"), EXPECTED)
def test_family_plants_its_bug(family: str, body: list[str], change: tuple[str, str | None]) -> None:
    source = SourceFile(module(body))
    found = [source.plant(p) for p in source.proposals(0) if p.family == family and p.function == "Owner.method"]
    gone, new = change
    fitting = [p for p in found if p is not None and gone in p.removed and (new is None or new in p.added)]
    assert fitting, [(p.removed, p.added) for p in found if p is not None]
    for planted in fitting:
        ast.parse(planted.source)
        assert planted.source.startswith("import os  # kept  as  it is\n")
        assert planted.source.endswith("\n\nVALUE = {'a' :1}\n")
        assert new is not None or not any(line == gone for line in planted.added)


def test_every_new_family_is_covered_by_an_example() -> None:
    new = {family.name for family in REPOSITORY_FAMILIES} - {family.name for family in FAMILIES}
    assert {family for family, _, _ in EXPECTED} == new


def test_a_proposal_knows_its_place() -> None:
    source = SourceFile(module(["if not a:", "    raise ValueError(a)", "return a"]))
    guard = next(p for p in source.proposals(0) if p.family == "dropped_guard")
    assert (guard.function, guard.first_line, guard.last_line, guard.in_signature) == ("Owner.method", 9, 10, False)
    default = next(p for p in source.proposals(0) if p.family == "changed_default")
    assert (default.first_line, default.in_signature) == (8, True)


def test_whatever_is_planted_in_real_code_compiles_and_means_something_else() -> None:
    text = Path(ast.__file__).with_name("textwrap.py").read_text("utf-8")
    source = SourceFile(text)
    tried = 0
    for piece in range(len(source.pieces)):
        for proposal in source.proposals(piece)[::200]:
            planted = source.plant(proposal)
            if planted is not None:
                tried += 1
                assert ast.dump(ast.parse(planted.source)) != ast.dump(ast.parse(text))
                assert changed_lines(text, planted.source) == (planted.removed, planted.added)
    assert tried > 10


def test_what_is_not_python_is_refused() -> None:
    with pytest.raises(TaskError, match="not valid Python"):
        SourceFile("def f(:\n")
