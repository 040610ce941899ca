"""Grading by replay: a hidden test's own assertions decide on plain values, and nothing of it can be reached."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from format_sandboxes import in_sandboxes

from sanderling.errors import VerifierError
from sanderling.rollout.checks import check_paid
from sanderling.testing import records
from sanderling.types import Limits, Submission, Task
from sanderling.verify.cases import Entry
from sanderling.verify.replay import ReplayVerifier

GOLD = "def half(number):\n    return number / 2\n"
TEST = """
import random
def check(half):
    assert half(3) == 1.5
    assert abs(half(1e9) - 5e8) < 1e-3
    for _ in range(5):
        number = random.randint(0, 100)
        assert half(number) * 2 == number
check(half)
"""
TASK = Task(
    id="half/test/0",
    prompt="Fix half.",
    base={"solution.py": b"def half(number):\n    return number // 2\n"},
    editable=("solution.py",),
    limits=Limits(memory_mb=256, processes=16, grading_s=30.0),
)


@dataclass(frozen=True)
class HalfSource:
    test_text: str = TEST
    gold_text: str = GOLD

    def entry(self, task):
        return Entry(file="solution.py", function="half")

    def gold(self, task):
        return self.gold_text

    def test(self, task):
        return self.test_text


def graded(sources, source=HalfSource(), **settings):
    """The verdicts on several solutions."""
    verifier = ReplayVerifier(source, **settings)

    async def grade_all(backend):
        works = [Submission(files={"solution.py": text.encode()} if text else {}) for text in sources]
        return await asyncio.gather(*(verifier.grade(TASK, work, backend, n) for n, work in enumerate(works)))

    return in_sandboxes(grade_all)


def test_right_answers_are_paid_in_the_tests_own_sense():
    exact, near, whole, untouched = graded(
        [
            GOLD,
            "def half(number):\n    return number * 0.5 + (1e-5 if number > 1e6 else 0)\n",  # within the tolerance
            "from fractions import Fraction\ndef half(number):\n    return float(Fraction(number) / 2)\n",
            None,
        ]
    )
    assert [verdict.reward for verdict in (exact, near, whole, untouched)] == [1.0, 1.0, 1.0, 0.0]
    for verdict in (exact, near, whole):
        check_paid(records.trajectory(), verdict)
        assert verdict.evidence.channel == "observation"
    assert any("the hidden test fails: AssertionError" in note for note in untouched.evidence.notes)


EQUAL = """
class Equal(float):
    def __eq__(self, other): return True
    def __sub__(self, other): return 0.0
    __mul__ = __sub__
def half(number):
    return Equal(1)
"""
PATCH = """
import builtins
class Quiet(Exception): pass
builtins.AssertionError = Quiet
def half(number):
    return 0
"""
CHEATS = {
    "equals everything": EQUAL,
    "looks for the test": "import sys\ndef half(number):\n    return sys._getframe(1).f_locals['expected']\n",
    "ends the process": "import os\ndef half(number):\n    os._exit(0)\n",
    "patches assertions": PATCH,
    "answers itself": "import os\nos.write(1, b'{}')\ndef half(number):\n    return 1.5\n",
    "does not load": "def half(number) return 1\n",
    "never ends": "def half(number):\n    while True: pass\n",
    "huge": "def half(number):\n    return 'x' * 50_000_000\n",
    "changes its type": "def half(number):\n    return [number / 2]\n",
    "raises": "def half(number):\n    raise AssertionError\n",
}


@pytest.mark.slow
def test_no_cheat_pays():
    verdicts = graded(CHEATS.values(), call_cpu_s=0.5, total_s=10.0)
    assert dict(zip(CHEATS, [verdict.reward for verdict in verdicts], strict=True)) == dict.fromkeys(CHEATS, 0.0)


def test_values_on_which_the_test_never_ends_are_0_and_no_failure_of_ours():
    source = HalfSource(
        test_text="def check(half):\n    number = half(4)\n    while number != 2: number += 1\ncheck(half)\n"
    )
    [verdict] = graded(["def half(number):\n    return 3\n"], source, total_s=1.5)
    assert verdict.reward == 0.0
    assert any("doesn't end on these values" in note for note in verdict.evidence.notes)


UNUSABLE = {
    "assert half(2) == 2": "can't be used: AssertionError",
    "pass": "makes no call",
    "assert half(number=2) == 1": "with keywords",
    "half(2)": "passes whatever the function returns",
    "half(2); raise SystemExit": "SystemExit",
    "assert half(type('T', (int,), {})(2)) == 1": "unknown type",
    "import os; os._exit(0)": "did not come to its end",
}


def test_a_test_that_cannot_judge_is_refused_by_name():
    async def grade_all(backend):
        work = Submission(files={"solution.py": GOLD.encode()})
        verifiers = [ReplayVerifier(HalfSource(test_text=test)) for test in UNUSABLE]
        return await asyncio.gather(*(v.grade(TASK, work, backend, 0) for v in verifiers), return_exceptions=True)

    for error, message in zip(in_sandboxes(grade_all), UNUSABLE.values(), strict=True):
        assert isinstance(error, VerifierError)
        assert message in str(error)


def test_arguments_changed_in_place_reach_the_test():
    gold = "def half(number):\n    number.pop()\n    return len(number)\n"
    source = HalfSource(
        test_text="items = [1, 2]\nassert half(items) == 1 and items == [1]\nassert half(items) == 0\n", gold_text=gold
    )
    right, wrong = graded([gold, "def half(number):\n    return len(number) - 1\n"], source)
    assert (right.reward, wrong.reward) == (1.0, 0.0)
