"""Hidden tests leave the visible files, and nothing else does."""

from __future__ import annotations

import pytest

from sanderling.errors import TaskError
from sanderling.synthesis.hiding import choose_hidden, without_tests

SOURCE = """\
import pytest  # kept


def helper(a):
    return a


@pytest.mark.parametrize("a", [1, 2])
def test_a(a):
    assert helper(a)


class Base:
    def test_shared(self):
        assert self.kind()


class TestB(Base):
    kind = dict

    def test_b(self): assert 1

    def test_c(self):
        def test_a(): pass


class TestAlone:
    def test_only(self):
        pass
"""


def test_functions_and_methods_are_cut_out() -> None:
    seen = without_tests(SOURCE, ["test_a", "TestB::test_b", "TestAlone::test_only"]).source
    compile(seen, "visible", "exec")
    for gone in ("assert helper", "parametrize", "def test_b", "test_only"):
        assert gone not in seen
    for kept in ("import pytest  # kept", "def helper", "def test_shared", "def test_c", "def test_a(): pass"):
        assert kept in seen


def test_an_inherited_test_is_cut_out_where_it_is_written() -> None:
    found = without_tests(SOURCE, ["TestB::test_shared"])
    assert found.removed == {"Base.test_shared"}
    assert "test_shared" not in found.source


def test_what_is_not_written_there_cant_be_hidden() -> None:
    with pytest.raises(TaskError, match="test_elsewhere"):
        without_tests(SOURCE, ["test_elsewhere"])


@pytest.mark.parametrize(("share", "count"), [(0.1, 2), (0.5, 3), (1.0, 4)])
def test_of_each_file_a_share_is_hidden_and_at_least_one(share: float, count: int) -> None:
    failing = ["t/test_a.py::test_x[1]", "t/test_a.py::test_x[2]", "t/test_a.py::test_y", "t/test_a.py::test_z"]
    hidden = choose_hidden([*failing, "t/test_b.py::TestC::test_d"], share, seed=3)
    assert len(hidden) == count
    assert "t/test_b.py::TestC::test_d" in hidden
    assert hidden == choose_hidden(["t/test_b.py::TestC::test_d", *failing[::-1]], share, seed=3)
