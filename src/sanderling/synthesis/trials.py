"""One bug: which tests notice it, and whether that makes a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from sanderling.synthesis.candidates import Candidate
from sanderling.synthesis.census import Census
from sanderling.synthesis.suite_runs import Failure, Outcome, SuiteRequest, SuiteRun, SuiteSandboxes

MOST_FAILING = 40  # tests: a bug that breaks more says nothing about where it is
MOST_FAILING_SHARE = 0.5  # of the suite's stable tests
_TEST_CPU_S = 3.0  # that any test may take; more where the longest stable one takes more
_WALL_S = 120.0


class Rejection(StrEnum):
    """Why a bug is no task."""

    NO_TEST_FAILS = "no test fails"
    IMPORT_BREAKS = "import breaks"  # a test file can't be collected any more, or the run dies
    TOO_MANY_FAIL = "too many fail"
    TIMEOUT = "timeout"  # a test or the run did not end in time
    UNSTABLE = "unstable"  # another order and hash seed saw something else
    FUNCTION_FULL = "function has its share"
    CANNOT_HIDE = "test can't be hidden"  # it isn't written as a function of its file
    GOLD_VISIBLE = "gold visible"  # the right text stands elsewhere in the base
    STATEMENT_LEAKS = "statement leaks"  # what failed can't be told without the right line
    NOT_GRADED = "not graded"  # the verifier doesn't pass the right solution, or passes the bug


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What came of running the tests on one bug."""

    key: str
    rejection: Rejection | None
    fail_to_pass: tuple[str, ...] = ()  # ids, sorted
    pass_to_pass: tuple[str, ...] = ()  # other stable tests of the same files, sorted
    failures: tuple[tuple[str, Failure], ...] = ()  # of the first few failing tests


async def try_candidate(candidate: Candidate, census: Census, sandboxes: SuiteSandboxes, seed: int) -> Trial:
    """Run the tests that reach the bug; if some fail, run all stable tests of their files again in another order.

    Raises:
        SandboxLost, SandboxUnavailable: our side failed.
    """
    changed = {candidate.path: candidate.planted.source.encode()}
    first = await sandboxes.run(_request(candidate.tests, census, seed), changed)
    rejection = judge(first, candidate.tests, census)
    failing = _failing(first)
    if rejection is not None:
        return Trial(key=candidate.key, rejection=rejection)
    files = {file_of(name) for name in failing}
    around = tuple(name for name in census.stable if file_of(name) in files)
    again = await sandboxes.run(_request(around, census, seed + 1), changed)
    rejection = judge(again, around, census)
    confirmed = _failing(again)
    if rejection is None and confirmed & set(candidate.tests) != failing:
        rejection = Rejection.UNSTABLE
    if rejection is not None:
        return Trial(key=candidate.key, rejection=rejection)
    passed = {test.id for test in again.tests if test.outcome is Outcome.PASSED}
    return Trial(
        key=candidate.key,
        rejection=None,
        fail_to_pass=tuple(sorted(failing)),
        pass_to_pass=tuple(sorted(passed)),
        failures=_shown_failures(first),
    )


def judge(run: SuiteRun, asked: Sequence[str], census: Census) -> Rejection | None:
    """Return why a run makes no task, None where some tests fail and the others pass."""
    if not run.complete:
        return Rejection.TIMEOUT if "cut off" in run.said else Rejection.IMPORT_BREAKS
    if any(test.outcome is Outcome.CUT_OFF for test in run.tests):
        return Rejection.TIMEOUT
    failing = _failing(run)
    if run.stopped or len(failing) > min(MOST_FAILING, MOST_FAILING_SHARE * len(census.stable)):
        return Rejection.TOO_MANY_FAIL
    if {test.id for test in run.tests} != set(asked):
        return Rejection.IMPORT_BREAKS
    if not failing:
        return Rejection.NO_TEST_FAILS
    other = {test.outcome for test in run.tests} - {Outcome.PASSED, Outcome.FAILED}
    return Rejection.UNSTABLE if other else None


def file_of(name: str) -> str:
    """Return the file of a test id."""
    return name.partition("::")[0]


def definition_of(name: str) -> str:
    """Return a test id without the case in brackets: "a/test_b.py::TestC::test_d[1]" -> "a/test_b.py::TestC::test_d"."""
    return name.partition("[")[0]


def _request(tests: Sequence[str], census: Census, seed: int) -> SuiteRequest:
    return SuiteRequest(
        files=tuple(sorted({file_of(name) for name in tests})),
        seed=seed,
        only=tuple(tests),
        most_failures=MOST_FAILING,
        test_cpu_s=max(_TEST_CPU_S, 10 * census.longest_cpu_s),
        timeout_s=_WALL_S,
    )


def _failing(run: SuiteRun) -> set[str]:
    return {test.id for test in run.tests if test.outcome is Outcome.FAILED}


def _shown_failures(run: SuiteRun) -> tuple[tuple[str, Failure], ...]:
    """Return one failure for each failing test function, in order of id."""
    found: dict[str, tuple[str, Failure]] = {}
    for test in sorted(run.tests, key=lambda test: test.id):
        if test.outcome is Outcome.FAILED and test.failure is not None:
            found.setdefault(definition_of(test.id), (test.id, test.failure))
    return tuple(found.values())
