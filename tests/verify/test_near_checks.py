"""Checks of how near a number is: measured on our side, and what of a hidden suite can be guessed."""

import asyncio

import pytest

from sanderling.tasks.folder import Source, TaskFolder, TaskHeader
from sanderling.tasks.patches import make_patch
from sanderling.types import Limits, Submission
from sanderling.verify.suites.check import check_folder
from sanderling.verify.suites.judging import Check, holds, is_guessable
from sanderling.verify.suites.record import expect, record
from sanderling.verify.suites.recording import Recording, Suite
from sanderling.verify.suites.rewriting import Edition, compile_tests
from sanderling.verify.suites.verifier import SuiteVerifier
from sanderling.verify.values import encode

TESTS = b"""\
import math
from shares import half

def test_near():
    assert math.isclose(half(9.5), 4.75, rel_tol=1e-6)
    assert abs(half(31.0) - 15.5) < 1e-9
    assert abs(7.25 - half(14.5)) <= 1e-9
"""
GOLD = {"shares.py": b"def half(number):\n    return number / 2\n"}
BASE = {"shares.py": b"def half(number):\n    return number // 2\n"}
LIMITS = Limits(command_s=10.0, memory_mb=256, processes=16, disk_mb=16, grading_s=30.0)
ATTACKS = {
    "abs": "import builtins\nbuiltins.abs = lambda number: 0.0\n",
    "isclose and abs": "import builtins, math\nmath.isclose = lambda *a, **k: True\nbuiltins.abs = lambda number: 0.0\n",
    "always near": "class N(float):\n    def __sub__(self, o): return 0.0\n    __rsub__ = __sub__\nhalf = lambda n: N(4.75)\n",
}


def sites():
    return compile_tests(TESTS, Edition.OBSERVED)


def test_what_is_near_is_reported_and_what_it_is_near_to_is_held():
    compiled = sites()
    assert [site.operator for site in compiled.sites.values()] == ["isclose", "within", "within_or_at"]
    for secret in (b"4.75", b"15.5", b"7.25", b"isclose", b"abs", b"1e-09"):
        assert secret not in compiled.source, compiled.source


@pytest.mark.parametrize(
    "number, value, right",
    [
        (0, 4.75, True),
        (0, 4.7501, False),
        (0, 5, False),
        (1, 15.5, True),
        (1, 15.4, False),
        (2, 7.25, True),
        (2, True, False),
    ],
)
def test_we_measure(number, value, right):
    held = [(4.75, 1e-6, 0.0), (15.5, 1e-9), (7.25, 1e-9)][number]
    assert holds(sites().sites[number], [encode(value)], (encode(held),)) is right


def test_a_measure_holds_for_plain_numbers_alone():
    site = sites().sites[1]
    for given in ("15.5", [15.5], None, {"opaque": "shares.N"}, {"float": "nan"}):
        assert not holds(site, [given], (encode((15.5, 1e-9)),))


@pytest.mark.parametrize(
    "source, expected, guessable",
    [
        ("f() == 31337", 31337, False),
        ("f() == 1", 1, True),
        ("f() == []", [], True),
        ("f() == [3, 4]", [3, 4], False),
        ("f() < 31337", 31337, True),
        ("f() != 31337", 31337, True),
        ("f() in ['a', 'b']", ["a", "b"], True),
        ("'needle' in f()", "needle", False),
        ("abs(f() - 15.5) < 0.1", (15.5, 0.1), False),
        ("abs(f() - 0.0) < 0.1", (0.0, 0.1), True),
    ],
)
def test_what_can_be_guessed_guards_nothing(source, expected, guessable):
    compiled = compile_tests(f"from shares import f\ndef test():\n    assert {source}\n".encode(), Edition.OBSERVED)
    assert is_guessable(compiled.sites[0], Check(site=0, expected=(encode(expected),))) is guessable


@pytest.mark.slow
def test_patched_measures_earn_nothing_and_unguarded_tasks_are_refused(bubblewrap):
    suite = Suite(tests={"test_shares.py": TESTS}, limits=LIMITS)
    loose = Suite(tests={"test_shares.py": b"from shares import half\ndef test(): assert half(3) > 1\n"}, limits=LIMITS)

    async def work(backend):
        folder = await make(suite, backend)
        verifier = SuiteVerifier(OneFolder(folder))
        tried = {"gold": "", **ATTACKS}
        submissions = [
            Submission(files={"shares.py": (GOLD if name == "gold" else BASE)["shares.py"] + code.encode()})
            for name, code in tried.items()
        ]
        graded = await asyncio.gather(*(verifier.grade(folder.task(), s, backend, 1) for s in submissions))
        return folder, dict(zip(tried, graded, strict=True)), await check_folder(await make(loose, backend), backend)

    folder, graded, refused = bubblewrap(work)
    assert Recording.from_json(folder.expected.recording).guarded == ("test_shares.py::test_near",)
    assert {name: verdict.reward for name, verdict in graded.items()} == {"gold": 1.0, **dict.fromkeys(ATTACKS, 0.0)}
    assert "is guarded" in refused.problems[0]


async def make(suite, backend):
    recording = await record(suite, GOLD, backend, repeats=2)
    expected, _ = await expect(suite, recording, BASE, backend)
    header = TaskHeader(id="shares/train/half", source=Source(name="shares"), editable=("*.py",), limits=LIMITS)
    return TaskFolder(
        header=header,
        instruction="half is wrong.",
        base=BASE,
        tests=suite.tests,
        expected=expected,
        gold_patch=make_patch(BASE, GOLD),
    )


class OneFolder:
    def __init__(self, folder):
        self._folder = folder

    def folder(self, task_id):
        return self._folder
