"""Which tests of a suite can be relied on, and which source lines each of them reaches."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sanderling.errors import TaskError
from sanderling.synthesis.layout import Layout
from sanderling.synthesis.suite_runs import Outcome, SuiteRequest, SuiteRun, SuiteSandboxes

RUNS = 3
SLOW_CPU_S = 2.0  # processor seconds of one test
SLOW_S = 10.0  # wall seconds of one test: generous, since runs share the machine


class Aside(StrEnum):
    """Why a test is not used."""

    FLAKY = "flaky"  # it ended differently in two runs, or was missing in one
    FAILING = "failing"  # it fails in every run
    SLOW = "slow"
    SKIPPED = "skipped"  # skipped or expected to fail
    REPEATED = "repeated"  # two tests have this id
    UNTRACEABLE = "untraceable"  # it passes, but not while its lines are traced


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """The stable tests of a suite."""

    stable: tuple[str, ...]  # ids, sorted
    aside: Mapping[str, Aside]  # by id
    broken: tuple[str, ...]  # test files that could not be imported
    reach: Mapping[str, Mapping[int, frozenset[str]]]  # stable ids by line by source file
    suite_s: float  # wall seconds of the quickest run's tests
    longest_cpu_s: float  # of a stable test

    def reaching(self, path: str, first: int, last: int) -> frozenset[str]:
        """Return the stable tests that execute one of the lines `first` to `last` (1-based) of a source file."""
        lines = self.reach.get(path, {})
        return frozenset().union(*(lines.get(line, frozenset()) for line in range(first, last + 1)))


async def take_census(sandboxes: SuiteSandboxes, layout: Layout, seed: int, runs: int = RUNS) -> Census:
    """Run the suite `runs` times in random orders with random hash seeds, and once more to see what each test reaches.

    Raises:
        TaskError: the suite can't be run, or no test is stable.
    """
    requests = [SuiteRequest(files=layout.tests, seed=seed + number) for number in range(runs)]
    traced = SuiteRequest(files=layout.tests, seed=seed + runs, trace=layout.sources)
    found = await asyncio.gather(*(sandboxes.run(request) for request in [*requests, traced]))
    for run in found:
        if not run.complete:
            raise TaskError(f"the suite can't be run: {run.said}; expected every run to end within its limits")
    census = judge_suite(found[:-1], found[-1])
    if not census.stable:
        why = ", ".join(f"{count} {reason}" for reason, count in Counter(census.aside.values()).items())
        raise TaskError(f"no stable test: {why or 'none was collected'}; {len(census.broken)} files can't be imported")
    return census


def judge_suite(runs: Sequence[SuiteRun], traced: SuiteRun) -> Census:
    """Judge every test by how it ended in all runs."""
    aside: dict[str, Aside] = {}
    stable: list[str] = []
    ends = [{test.id: test for test in run.tests} for run in runs]
    in_trace = {test.id: test.outcome for test in traced.tests}
    repeated = {name for run in runs for name, count in Counter(test.id for test in run.tests).items() if count > 1}
    for name in sorted(set().union(*ends)):
        outcomes = {end[name].outcome if name in end else None for end in ends}
        seen = [end[name] for end in ends if name in end]
        if name in repeated:
            aside[name] = Aside.REPEATED
        elif len(outcomes) > 1:
            aside[name] = Aside.FLAKY
        elif outcomes <= {Outcome.SKIPPED, Outcome.XFAILED}:
            aside[name] = Aside.SKIPPED
        elif outcomes != {Outcome.PASSED}:
            aside[name] = Aside.FAILING
        elif min(test.cpu_s for test in seen) > SLOW_CPU_S or min(test.seconds for test in seen) > SLOW_S:
            aside[name] = Aside.SLOW
        elif in_trace.get(name) is not Outcome.PASSED:
            aside[name] = Aside.UNTRACEABLE
        else:
            stable.append(name)
    kept = frozenset(stable)
    reach = {
        path: {line: common for line, tests in lines.items() if (common := kept.intersection(tests))}
        for path, lines in (traced.reach or {}).items()
    }
    return Census(
        stable=tuple(stable),
        aside=aside,
        broken=tuple(sorted({name for run in runs for name in run.broken})),
        reach=reach,
        suite_s=min(sum(test.seconds for test in run.tests) for run in runs),
        longest_cpu_s=max((end[name].cpu_s for end in ends for name in stable), default=0.0),
    )
