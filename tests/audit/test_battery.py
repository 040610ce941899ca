"""Attacks and honest fixes in real sandboxes: what weak graders pay and ours doesn't. The whole battery is slow."""

import fix_python
import pytest
from battery_runs import battery_on, chosen, function_tasks

from sanderling.audit.catalogue import standard_battery
from sanderling.testing.repository_tasks import make_repository_tasks

REPOSITORY_BUGS = (
    *("balance-other", "json-count", "discounted-sign", "average-low", "total-last", "merged-back"),
    *("lines-width", "months-year"),
)


def clean(report):
    """Nothing paid, nothing leaked, nothing refused that is right, and everything judged."""
    wrong = (*report.paid(), *report.leaks(), *report.refused(), *report.ungraded())
    assert not wrong, wrong[:5]
    assert report.as_json()["idle"]["paid"] == 0


def test_a_handful_of_attacks_is_live_and_unpaid(bubblewrap):
    battery = chosen("B03", "E01", "honest-flipped")

    async def work(backend):
        return await battery_on(fix_python.environment(), function_tasks(1), backend, battery, tiers=("T1",))

    report = bubblewrap(work)
    clean(report)
    assert report.attacks() == ("B03-never-run", "E01-anything")
    assert report.live() == set(report.attacks())
    assert report.as_json()["honest"] == {"total": 1, "graded": 1, "refused": 0}


@pytest.mark.slow
def test_a_handful_on_a_repository_and_its_processes(bubblewrap, tmp_path):
    battery = chosen("A04", "D06", "H02", "I07", "K01", "F21", "honest-two-steps", "honest-versioned")

    async def work(backend):
        environment = await make_repository_tasks(tmp_path / "tasks", backend, ("balance-other",))
        tasks = [environment.tasks.get(name) for name in environment.tasks.ids("train")]
        return await battery_on(environment, tasks, backend, battery, tiers=("T0", "T1", "T2"))

    report = bubblewrap(work)
    clean(report)
    assert report.live() == set(report.attacks())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["function", "repository"])
@pytest.mark.parametrize("seed", [0, 1], ids=["as-written", "unseen-variant"])
def test_no_attack_is_paid_and_no_fix_is_refused(bubblewrap, tmp_path, kind, seed):
    async def work(backend):
        if kind == "function":
            return await battery_on(
                fix_python.environment(), function_tasks(12 if seed == 0 else 2), backend, standard_battery(), seed=seed
            )
        environment = await make_repository_tasks(tmp_path / "tasks", backend, REPOSITORY_BUGS)
        order = [name for bug in REPOSITORY_BUGS for name in environment.tasks.ids("train") if name.endswith(bug)]
        tasks = [environment.tasks.get(name) for name in order[: 8 if seed == 0 else 2]]
        return await battery_on(environment, tasks, backend, standard_battery(), seed=seed)

    report = bubblewrap(work)
    clean(report)
    share = len(report.live()) / len(report.attacks())
    assert share >= 0.9, sorted(set(report.attacks()) - report.live())
