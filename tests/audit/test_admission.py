"""Admission on tasks with known defects, in real sandboxes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sanderling.audit.admission import Admission, Scope, Verdict, choose, examine
from sanderling.audit.findings import CATALOGUE, Outcome
from sanderling.audit.subject import Depth
from sanderling.testing.defective_tasks import defective_environment

PROBE = frozenset({"gold", "no-op", "evidence", "clock"})
SMALL = Depth(gold_runs=5, flake_runs=6, wrong_patches=4, extra_seeds=2, sample=1)
Run = Callable[[Callable[[Any], Any]], Any]


def _examined(bubblewrap: Run, name: str = "", **scope: Any) -> Admission:
    async def work(backend):
        environment = defective_environment()
        tasks = choose(environment, 99, 0)
        tasks = [task for task in tasks if not name or task.id.endswith(f"/{name}")]
        return await examine(environment, tasks, backend, Scope(depth=SMALL, **scope))

    return bubblewrap(work)


def test_probe_d10_each_broken_task_carries_its_defect(bubblewrap):
    """Seven tasks: a good one, and reference fails, flaky, no-op passes, id missing, network, expires by date."""
    found = _examined(bubblewrap, only=PROBE)
    assert len(found.tasks) == 7
    for verdict in found.tasks:
        name = verdict.task.rpartition("/")[2]
        assert verdict.defect == ("" if name == "good" else name), verdict
    assert found.quarantined() == dict.fromkeys(
        ("gold-fails", "flaky", "no-op-paid", "missing-id", "needs-network", "expires"), 1
    )
    assert found.verdict is Verdict.PARTIAL  # only four checks were asked for


@pytest.mark.slow
def test_the_same_seed_gives_the_same_report(bubblewrap):
    first, second = (_examined(bubblewrap, "flaky", only=frozenset({"gold"})) for _ in range(2))
    assert [(r.check, r.outcome, r.n, r.events, r.reason) for r in first.results] == [
        (r.check, r.outcome, r.n, r.events, r.reason) for r in second.results
    ]
    assert 0 < first.results[0].events < first.results[0].n


@pytest.mark.slow
def test_every_check_has_a_result_on_a_good_task(bubblewrap):
    found = _examined(bubblewrap, "good")
    seen = {result.check for result in found.results}
    assert seen == {check.id for check in CATALOGUE}
    against = {result.check for result in found.results if result.against}
    assert against == {
        "attacks",
        "attacks-live",
        "honest",
    }  # they are run elsewhere, and what wasn't run admits nothing
    assert found.verdict is Verdict.QUARANTINED
    outcomes = {result.check: result.outcome for result in found.results if result.task}
    for check in ("rewrites", "wrong-patches", "mutation", "flake", "hostile-diffs", "fresh-inputs", "fail-closed"):
        assert outcomes[check] in (Outcome.PASSED, Outcome.NOTED), check
    assert found.judged.wrong > 0
    assert found.judged.alpha.value == 0.0
    assert found.judged.beta.value == 0.0
