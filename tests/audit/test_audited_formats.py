"""Audits of tasks that are not ours: what is known to be broken is found, by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanderling.audit.admission import Admission, Scope, choose, examine
from sanderling.audit.subject import Depth
from sanderling.jobs.audits import open_environment
from sanderling.tasks.formats.harbor import HarborFolder, write_harbor
from sanderling.tasks.formats.harbor_config import parse_config

CHECKS = frozenset({"gold", "no-op", "mutation", "wrong-patches", "hunks"})
CONFIG = '[verifier]\ntimeout_sec = 10.0\n[environment]\nnetwork_mode = "no-network"'
WRONG = b"def double(n):\n    return n + 2\n"
PAY = "echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt"
RUN = "cd /app && python3 -c"
TESTS = {
    "good": f'{RUN} "from code import double; assert [double(n) for n in range(-3, 9)] == list(range(-6, 18, 2))" && {PAY}',
    "pays-always": f"true && {PAY}",
    "never-imports": f'grep -q "n \\* 2" code.py || test ! -s code.py || ! cmp -s code.py /tests/before.py && {PAY}',
    "one-case": f'{RUN} "from code import double; assert double(0) == 0" && {PAY}',
}


def harbor_task(place: Path, name: str) -> Path:
    """Write a Harbor folder whose tests are good or broken in a known way."""
    folder = HarborFolder(
        name=name,
        config=parse_config(CONFIG, "task.toml"),
        instruction="Fix double.\n",
        environment={"Dockerfile": b"FROM python:3.11-slim\nWORKDIR /app\nCOPY files/ /app/\n", "files/code.py": WRONG},
        tests={"test.sh": f"#!/bin/sh\n{TESTS[name]}\n".encode(), "before.py": WRONG},
        solution={"solve.sh": b"#!/bin/sh\nsed -i 's/n + 2/n * 2/' code.py\n"},
        executable=frozenset({"tests/test.sh"}),
    )
    write_harbor(place / name, folder)
    return place


def audited(bubblewrap, place: Path, checks: frozenset[str], count: int = 9) -> Admission:
    async def work(backend):
        environment = open_environment(str(place), {})
        scope = Scope(depth=Depth(gold_runs=2, wrong_patches=8, extra_seeds=1, sample=0), only=checks)
        return await examine(environment, choose(environment, count, 0), backend, scope)

    return bubblewrap(work)


@pytest.mark.slow
def test_broken_harbor_verifiers_are_found(bubblewrap, tmp_path):
    """A verifier that pays always, one that never imports the agent's file, one that looks at a single case."""
    for name in TESTS:
        harbor_task(tmp_path / "tasks", name)
    found = audited(bubblewrap, tmp_path / "tasks", CHECKS)
    defects = {verdict.task.rpartition("/")[2]: verdict.defects for verdict in found.tasks}
    assert defects["good"] == ()
    assert defects["pays-always"][0] == "no-op-paid"
    assert defects["never-imports"][0] == "ignores-submission"
    weak = {result.task.rpartition("/")[2]: result for result in found.results if result.check == "wrong-patches"}
    assert weak["good"].events == 0
    assert "more are paid each time" in weak["one-case"].reason  # mutants that a single case can't tell
    assert defects["one-case"] == ("weak-tests",)


def test_a_verifier_that_never_imports_the_file_is_found(bubblewrap, tmp_path):
    place = harbor_task(tmp_path / "tasks", "never-imports")
    found = audited(bubblewrap, place, frozenset({"no-op"}))
    assert [verdict.defect for verdict in found.tasks] == ["ignores-submission"]


@pytest.mark.slow
def test_bugs_of_humanevalpack_that_pass_the_example_test(bubblewrap):
    """20 of its 164 bugs pass the example test that the agent may run: an audit lists each of them."""
    rows = next(
        (f for p in Path(__file__).resolve().parents if (f := p / "shared/data/humanevalpack_python.jsonl").is_file()),
        None,
    )
    if rows is None:
        pytest.skip(
            "shared/data/humanevalpack_python.jsonl is in no folder above the checkout; it isn't a part of the project"
        )
    found = audited(bubblewrap, rows, frozenset({"visible-tests"}), count=200)
    assert len(found.tasks) == 164
    weak = [result for result in found.results if result.defect == "weak-visible-tests"]
    assert len(weak) == 20
