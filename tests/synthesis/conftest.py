"""A small repository with every kind of test."""

from __future__ import annotations

import pytest

from sanderling.synthesis.code_base import CodeBase

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
