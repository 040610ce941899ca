"""A small repository with every kind of test, and a backend to run it in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest

from sanderling.sandbox.bubblewrap import BubblewrapBackend
from sanderling.sandbox.doctor import probe_bubblewrap
from sanderling.synthesis.code_base import CodeBase

Result = TypeVar("Result")
Run = Callable[[Callable[[BubblewrapBackend], Awaitable[Result]]], Result]

SHELF = '''\
"""A shelf of books."""


class Shelf:
    def __init__(self, books=(), limit=3):
        self.books = list(books)
        self.limit = limit

    def add(self, book):
        if len(self.books) >= self.limit:
            raise ValueError("the shelf is full")
        self.books.append(book)
        return len(self.books)

    def __contains__(self, book):
        return book in self.books

    def titles(self, start=0):
        found = []
        for book in self.books[start:]:
            found.append(book.title())
        return found


def longest(titles):
    best = ""
    for title in titles:
        if len(title) > len(best):
            best = title
    return best


def unused(a, b):
    return a + b
'''
TESTS = """\
import os

import pytest

from shelf import Shelf, longest


@pytest.mark.parametrize("count", [1, 2, 3])
def test_add_counts(count):
    shelf = Shelf()
    assert [shelf.add(str(i)) for i in range(count)] == list(range(1, count + 1))


def test_full():
    with pytest.raises(ValueError, match="full"):
        Shelf("abc").add("d")


class TestTitles:
    def test_all(self):
        assert Shelf(["a tale", "two"]).titles() == ["A Tale", "Two"]

    def test_from(self):
        assert Shelf(["a", "b"]).titles(1) == ["B"]


def test_contains():
    assert "a" in Shelf("a")


def test_longest():
    assert longest(["a", "abc", "xyz", "ab"]) == "abc"


def test_flaky():
    assert hash("b") % 2 == 0


def test_fails():
    assert longest(["a"]) == "b"


@pytest.mark.skipif(True, reason="not today")
def test_skipped():
    pass


def test_slow():
    assert sum(range(10_000_000)) > 0
"""


def shelf_files() -> dict[str, bytes]:
    """Return the repository: a package below src/, its tests, and what a scrub must leave out is not in it."""
    return {
        "README.md": b"# shelf\n",
        "pyproject.toml": b'[project]\nname = "shelf"\nversion = "1.0"\n',
        "src/shelf/__init__.py": SHELF.encode(),
        "tests/test_shelf.py": TESTS.encode(),
    }


@pytest.fixture
def shelf() -> CodeBase:
    return CodeBase(name="shelf", version="1.0", files=shelf_files(), left_out=())


@cache
def _why_not() -> tuple[str, ...]:
    return probe_bubblewrap().missing


@pytest.fixture
def bubblewrap(tmp_path: Path) -> Iterator[Run]:
    """Run a coroutine function on a fresh backend that is closed afterwards."""
    if _why_not():
        pytest.skip("; ".join(_why_not()))

    async def run(work: Callable[[BubblewrapBackend], Awaitable[Result]]) -> Result:
        backend = BubblewrapBackend(tmp_path / "state")
        try:
            return await work(backend)
        finally:
            await backend.close()

    yield lambda work: asyncio.run(run(work))
