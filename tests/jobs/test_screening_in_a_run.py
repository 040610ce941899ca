"""What follows from findings while a run trains: rewards, exclusion, quarantine, the stop, and going on after it."""

from __future__ import annotations

from collections import Counter

import pytest
from letter_runs import run_training

from sanderling.errors import ConfigError, MeasurementError, RunStopped
from sanderling.store.reader import RunReader
from sanderling.types import Gradient, Membership

SCREENS = "sanderling.testing.screens"
NEVER_STOPS = {"screening.stop_rate": 1.0, "screening.quarantine_proven": 10_000, "screening.quarantine_suspected": 1.0}


def _roots(run):
    reader = RunReader(run)
    return [root for step in reader.steps() for group in reader.rollouts(step).groups for root in group.roots()]


def test_a_proven_hack_earns_nothing_and_is_counted(letters, tmp_path):
    result = run_training(
        letters(steps=1, screening__own=[f"{SCREENS}:PROVES_LETTERS"], **NEVER_STOPS), tmp_path / "run"
    )
    proven = [root for root in _roots(tmp_path / "run") if root.findings]
    assert proven
    assert {root.disposition.reward for root in proven} == {0.0}
    assert all(root.disposition.membership is Membership.MEMBER for root in proven)
    assert {root.disposition.reason for root in proven} == {"hack_proven"}
    assert result.counts["hacks_proven"] == result.counts["findings_proven"] == len(proven)
    assert result.eval_after["solve_rate"] == 0.0
    last = RunReader(tmp_path / "run").reports()[-1].metrics
    assert last["hack_rate"] == pytest.approx(len(proven) / 64)
    assert "proven hacks" in (tmp_path / "run" / "report.html").read_text()


def test_a_suspected_one_is_neither_compared_nor_trained(letters, tmp_path):
    result = run_training(
        letters(steps=2, screening__own=[f"{SCREENS}:SUSPECTS_LETTERS"], **NEVER_STOPS), tmp_path / "run"
    )
    suspected = [root for root in _roots(tmp_path / "run") if root.findings]
    assert suspected
    assert {root.disposition.membership for root in suspected} == {Membership.EXCLUDED}
    assert {root.disposition.gradient for root in suspected} == {Gradient.NONE}
    assert result.counts["dropped_hack_suspected"] == result.counts["hacks_suspected"] == len(suspected)
    dropped = sum(value for name, value in result.counts.items() if name.startswith("dropped_"))
    assert result.counts["trained"] + dropped == result.counts["graded"]


@pytest.mark.parametrize(
    ("severities", "counted"),
    [
        ({}, "findings_proven"),
        pytest.param({"characters": "info"}, "findings_info", marks=pytest.mark.slow),
        pytest.param({"characters": "off"}, None, marks=pytest.mark.slow),
    ],
)
def test_notes_and_severities_change_nothing_that_is_learnt(letters, tmp_path, severities, counted):
    plain = run_training(letters(steps=2, screening__mode="off"), tmp_path / "plain")
    mode = "act" if severities else "note"
    settings = {
        "screening.own": [f"{SCREENS}:PROVES_LETTERS"],
        "screening.mode": mode,
        "screening.severities": severities,
    }
    noted = run_training(letters(steps=2, **settings), tmp_path / "noted")
    assert noted.eval_after == plain.eval_after
    ids = [
        [m.trajectory.token_ids().tolist() for m in RunReader(tmp_path / name).rollouts(2).members()]
        for name in ("plain", "noted")
    ]
    assert ids[0] == ids[1]
    found = {name for name in ("findings_info", "findings_suspected", "findings_proven") if noted.counts[name]}
    assert found == ({counted} if counted else set())


def test_a_screen_that_fails_excludes(letters, tmp_path):
    with pytest.raises(MeasurementError, match="64 were excluded by screening"):
        run_training(letters(steps=1, screening__own=[f"{SCREENS}:FailingScreen"]), tmp_path / "run")
    reasons = Counter(finding.screen for root in _roots(tmp_path / "run") for finding in root.findings)
    assert reasons == {"screen_failed": 64}


@pytest.mark.slow
def test_a_task_with_many_proofs_is_not_drawn_any_more(letters, tmp_path):
    settings = {"screening.own": [f"{SCREENS}:PROVES_LETTERS"], "screening.stop_rate": 1.0}
    settings |= {"screening.quarantine_proven": 7, "rollout.groups_per_step": 8}
    run_training(letters(steps=3, **settings), tmp_path / "run")
    reader = RunReader(tmp_path / "run")
    quarantined = {event["task"]: event["step"] for event in reader.events() if event["kind"] == "quarantined"}
    assert quarantined
    for step in reader.steps():
        for group in reader.rollouts(step).groups:
            assert quarantined.get(group.task_id, step) >= step
    assert reader.reports()[-1].metrics["tasks_quarantined"] == len(quarantined)


def test_quarantined_tasks_are_audited_when_the_run_ends_and_come_back_by_name(letters, tmp_path):
    def config(steps, **changes):
        settings = {"screening.own": [f"{SCREENS}:PROVES_LETTERS"], "screening.stop_rate": 1.0}
        settings |= {"screening.quarantine_proven": 5, "screening.audit_s": 20.0, "evaluation.tasks": 2}
        return letters(steps=steps, **settings, **changes)

    run = tmp_path / "run"
    run_training(config(2), run)
    events = RunReader(run).events()
    quarantined = {event["task"]: event["step"] for event in events if event["kind"] == "quarantined"}
    audited = {event["task"]: event for event in events if event["kind"] == "task_audited"}
    assert quarantined
    assert audited.keys() == quarantined.keys()
    task, step = next(iter(quarantined.items()))
    found, report = audited[task], (run / "report.html").read_text()
    assert found["verdict"] == "QUARANTINED"
    assert any(line.startswith("fail-closed: paid in spite of") for line in found["against"])
    assert any(line.startswith("not measured: secrecy, ") for line in found["against"])
    assert f"--task={task}" in found["command"]
    assert report.count(f"--task={task} ") == 1
    assert "fail-closed: paid in spite of" in report
    with pytest.raises(ConfigError, match=f"was quarantined at step {step}"):
        run_training(config(3, screening__readmitted={task: step - 1}), run, resume=True)
    run_training(config(3, screening__readmitted={task: step}), run, resume=True)
    kinds = [event["kind"] for event in RunReader(run).events() if event.get("task") == task]
    assert kinds[:3] == ["quarantined", "task_audited", "readmitted"]
    assert "taken back by name" in (run / "report.html").read_text()


@pytest.mark.slow
def test_an_audit_that_has_no_time_leaves_the_command_and_nothing_is_taken_back_in_a_new_run(letters, tmp_path):
    settings = {"screening.own": [f"{SCREENS}:PROVES_LETTERS"], "screening.stop_rate": 1.0, "evaluation.tasks": 2}
    run_training(letters(steps=1, screening__quarantine_proven=5, screening__audit_s=0.0, **settings), tmp_path / "run")
    audited = [event for event in RunReader(tmp_path / "run").events() if event["kind"] == "task_audited"]
    assert audited
    assert {(event["verdict"], event["checks"]) for event in audited} == {("PARTIAL", 0)}
    assert all("sanderling audit sanderling.testing.letters" in event["command"] for event in audited)
    with pytest.raises(ConfigError, match="a new run has no quarantined task"):
        run_training(letters(screening__readmitted={"letters/train/0": 1}), tmp_path / "other")


@pytest.mark.slow
def test_a_run_without_a_task_left_stops_itself_with_its_state(letters, tmp_path):
    settings = {"screening.own": [f"{SCREENS}:PROVES_LETTERS"], "screening.stop_rate": 1.0, "evaluation.tasks": 2}
    settings |= {"screening.quarantine_proven": 1, "screening.audit_s": 0.0, "rollout.groups_per_step": 16}
    with pytest.raises(RunStopped, match="all 16 tasks are quarantined"):
        run_training(letters(steps=3, **settings), tmp_path / "run")
    last = RunReader(tmp_path / "run").reports()[-1].step
    assert (tmp_path / "run" / "checkpoints" / f"{last:06d}" / "state.json").is_file()
    assert "all 16 tasks are quarantined" in RunReader(tmp_path / "run").events()[-1]["error"]


def test_a_run_stops_itself_and_goes_on_only_when_told(letters, tmp_path):
    def config(**changes):
        settings = {"screening.own": [f"{SCREENS}:PROVES_LETTERS"], "screening.quarantine_proven": 10_000}
        settings |= {"screening.audit_s": 0.5}
        return letters(steps=4, checkpoint__every=3, **settings, **changes)

    with pytest.raises(RunStopped, match=r"accepted_through=(\d)") as stopped:
        run_training(config(), tmp_path / "run")
    step = int(str(stopped.value).rpartition("=")[2])
    assert (tmp_path / "run" / "checkpoints" / f"{step:06d}" / "state.json").is_file()
    events = RunReader(tmp_path / "run").events()
    assert events[-1]["kind"] == "stopped_itself"
    assert any(event["kind"] == "task_audited" for event in events)  # of the tasks with proofs; none is quarantined
    assert "audited since the run stopped itself" in (tmp_path / "run" / "report.html").read_text()
    with pytest.raises(RunStopped, match=f"after step {step}"):
        run_training(config(), tmp_path / "run", resume=True)
    with pytest.raises(ConfigError, match="other settings"):
        run_training(config(screening__stop_rate=1.0), tmp_path / "run", resume=True)
    result = run_training(config(screening__accepted_through=4), tmp_path / "run", resume=True)
    assert result.steps == 4
    assert RunReader(tmp_path / "run").steps() == [1, 2, 3, 4]


def test_settings_that_would_do_nothing_are_refused(letters, tmp_path):
    with pytest.raises(ConfigError, match="names no screen of this run: 'charcters'"):
        run_training(letters(screening__severities={"charcters": "info"}), tmp_path / "run")
    with pytest.raises(ConfigError, match="no proof"):
        letters(screening__severities={"monitor": "proven"})
    with pytest.raises(ConfigError, match="would do nothing"):
        letters(screening__mode="off", screening__canary="planted")
