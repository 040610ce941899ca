"""A small repository for the tests of hidden suites: package `till`, whose `total` forgets the last item."""

import asyncio
from functools import cache

from grading import in_sandboxes

from sanderling.tasks.folder import Source, TaskFolder, TaskHeader
from sanderling.tasks.patches import make_patch
from sanderling.types import Limits, Submission
from sanderling.verify.suites.record import expect, record
from sanderling.verify.suites.recording import Suite
from sanderling.verify.suites.verifier import SuiteVerifier

GOLD = """\
def total(prices):
    result = 0
    for price in prices:
        result += price
    return result


class Receipt:
    def __init__(self, prices):
        self.prices = list(prices)

    def __eq__(self, other):
        return isinstance(other, Receipt) and self.prices == other.prices

    def lines(self):
        if not self.prices:
            raise ValueError("nothing was bought")
        return [f"{price:>6}" for price in self.prices] + [f"={total(self.prices):>5}"]
"""
BUG = GOLD.replace("for price in prices:", "for price in prices[:-1]:")
TESTS = """\
import unittest
import pytest
from till.sums import Receipt, total

SUMS = {"coffee": 41321}

@pytest.mark.parametrize("prices, want", [([1, 2], 31337 - 31334), ([], 0), ([7001, 29], 7030)], ids=["3", "0", "7030"])
def test_total(prices, want):
    assert total(prices) == want

def test_sum_of_constant():
    assert total([41000, 321]) == SUMS["coffee"], "coffee"

def test_lines():
    expected = ["  9001", "    42", "= 9043"]
    assert Receipt([9001, 42]).lines() == expected
    assert Receipt([5]) == Receipt([5])

def test_nothing():
    with pytest.raises(ValueError, match="nothing"):
        Receipt([]).lines()

def test_receipt_is_kept():
    assert Receipt([1]).prices

class TestTill(unittest.TestCase):
    def test_total(self):
        self.assertEqual(total([100, 17]), 117)
        self.assertIn("= 117", "".join(Receipt([100, 17]).lines()).replace("   ", " ").replace("  ", " "))

@pytest.mark.skip
def test_skipped():
    assert False

@pytest.mark.xfail
def test_expected_to_fail():
    assert total([1]) == 2
"""
FILE, TEST = "src/till/sums.py", "tests/test_sums.py"
BASE = {
    "src/till/__init__.py": b"",
    FILE: BUG.encode(),
    "tests/conftest.py": b"",
    "setup.cfg": b"[metadata]\nname = till\n",
}
FIXED = {**BASE, FILE: GOLD.encode()}
LIMITS = Limits(command_s=10.0, memory_mb=256, processes=16, disk_mb=16, grading_s=30.0)
SUITE = Suite(tests={TEST: TESTS.encode()}, modules=("src",), limits=LIMITS)


async def make_folder(backend):
    recording = await record(SUITE, FIXED, backend, repeats=2)
    expected, flipping = await expect(SUITE, recording, BASE, backend)
    assert flipping == ()
    header = TaskHeader(
        id="till/train/total-1",
        source=Source(name="till"),
        editable=("src/*", "*.py", "*.ini", "*.toml", "*.cfg"),  # wide: what is refused is refused by rule
        modules=("src",),
        limits=LIMITS,
    )
    return recording, TaskFolder(
        header=header,
        instruction="`total` is wrong.",
        base=BASE,
        tests=SUITE.tests,
        expected=expected,
        gold_patch=make_patch(BASE, FIXED),
    )


@cache
def made():
    """The recording and the task folder, made once by real runs."""
    return in_sandboxes(make_folder)


class OneFolder:
    def __init__(self, folder):
        self._folder = folder

    def folder(self, task_id):
        return self._folder


def grade_all(submissions, folder=None):
    """Verdicts of submissions (files by name), all by one verifier."""
    folder = folder or made()[1]

    async def work(backend):
        verifier = SuiteVerifier(OneFolder(folder))
        work = (verifier.grade(folder.task(), Submission(files=files), backend, 1) for files in submissions.values())
        return dict(zip(submissions, await asyncio.gather(*work), strict=True))

    return in_sandboxes(work)
