"""Which tests can be relied on."""

from __future__ import annotations

from sanderling.synthesis.census import Aside, judge_suite, take_census
from sanderling.synthesis.layout import find_layout
from sanderling.synthesis.suite_runs import Outcome, SuiteRun, SuiteSandboxes, TestEnd


def run(**outcomes: str) -> SuiteRun:
    tests = [TestEnd(id=name, outcome=Outcome(end), seconds=0.1, cpu_s=0.1) for name, end in outcomes.items()]
    return SuiteRun(complete=True, tests=tuple(tests), reach={"a.py": {1: tuple(outcomes)}})


def test_every_test_that_is_set_aside_has_its_reason() -> None:
    first = run(good="passed", flips="passed", bad="failed", gone="passed", skip="skipped", traced="passed")
    second = run(good="passed", flips="failed", bad="failed", skip="skipped", traced="passed")
    census = judge_suite([first, second], run(good="passed", flips="passed", traced="failed"))
    assert census.stable == ("good",)
    assert census.aside == {
        "flips": Aside.FLAKY,
        "gone": Aside.FLAKY,
        "bad": Aside.FAILING,
        "skip": Aside.SKIPPED,
        "traced": Aside.UNTRACEABLE,
    }
    assert census.reaching("a.py", 1, 9) == {"good"}
    assert census.reaching("a.py", 2, 9) == frozenset()


def test_an_id_that_stands_twice_is_set_aside() -> None:
    twice = SuiteRun(complete=True, tests=run(a="passed").tests * 2)
    assert judge_suite([twice, twice], twice).aside == {"a": Aside.REPEATED}


def test_a_suite_is_run_and_traced(bubblewrap, shelf, monkeypatch) -> None:
    monkeypatch.setattr("sanderling.synthesis.census.SLOW_CPU_S", 0.05)

    async def look(backend):
        layout = find_layout(shelf.files)
        return await take_census(SuiteSandboxes(backend, shelf.files, layout), layout, seed=0, runs=3)

    census = bubblewrap(look)
    file = "tests/test_shelf.py"
    assert census.aside == {
        f"{file}::test_flaky": Aside.FLAKY,
        f"{file}::test_fails": Aside.FAILING,
        f"{file}::test_skipped": Aside.SKIPPED,
        f"{file}::test_slow": Aside.SLOW,
    }
    assert f"{file}::test_add_counts[3]" in census.stable
    source = "src/shelf/__init__.py"
    lines = shelf.files[source].decode().splitlines()
    refusing = lines.index('            raise ValueError("the shelf is full")') + 1
    assert census.reaching(source, refusing, refusing) == {f"{file}::test_full"}
    unused = lines.index("    return a + b") + 1
    assert census.reaching(source, unused, unused) == frozenset()
