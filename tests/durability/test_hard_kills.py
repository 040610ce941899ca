"""Killed at any moment, a run goes on: every task is trained once per epoch, and the accounts add up."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from controller import EPOCHS, PER_STEP

from sanderling.store.episode_log import files, lines
from sanderling.store.reader import RunReader
from sanderling.store.run_check import check_run


def run_cases(folder: Path, tasks: int, cases: list[str]) -> None:
    script = Path(__file__).with_name("controller.py")
    done = subprocess.run(
        [sys.executable, str(script), str(folder), str(tasks), *cases], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def check_nothing_lost(run: Path, tasks: int) -> None:
    reader = RunReader(run)
    steps = tasks * EPOCHS // PER_STEP
    reports = reader.reports()
    assert [(report.step, report.policy_version) for report in reports] == [(n, n) for n in range(1, steps + 1)]
    assert reader.steps() == list(range(1, steps + 1))
    total: Counter[str] = Counter()
    trained: list[tuple[str, str]] = []
    seen: set[str] = set()
    for report in reports:
        total.update({name: value for name, value in report.counts.items() if name != "running"})
        assert total["submitted"] == total["graded"] + total["ungraded"] + report.counts["running"]
        for group in reader.rollouts(report.step).groups:
            graded = group.graded()
            if graded:
                trained.append((group.id, group.task_id))
            for member in group.members:
                assert member.trajectory.id not in seen
                seen.add(member.trajectory.id)
            for member in graded:
                assert len(member.trajectory.turns) == int(group.task_id.rpartition("/")[2]) + 1
    assert report.counts["running"] == 0
    assert len(seen) == total["submitted"]
    assert [name for name, _ in trained] == [f"train-{n:07d}" for n in range(tasks * EPOCHS)]
    assert [check.problems for check in check_run(run) if not check.ok] == []
    for epoch in range(EPOCHS):
        tasks_of_epoch = {task for _, task in trained[epoch * tasks : (epoch + 1) * tasks]}
        assert len(tasks_of_epoch) == tasks


def kinds(run: Path) -> Counter[str]:
    return Counter(record["kind"] for file, _, _ in files(run / "episodes") for _, _, record in lines(file) if record)


def tokens(run: Path) -> list[tuple[str, list[int], list[float]]]:
    reader = RunReader(run)
    return [
        (
            m.trajectory.id,
            m.trajectory.token_ids().tolist(),
            [t.action.rollout_logprobs.tolist() for t in m.trajectory.turns],
        )
        for step in reader.steps()
        for m in reader.rollouts(step).members()
    ]


def test_probe_d11_each_task_is_trained_once_per_epoch_whenever_the_controller_is_killed(tmp_path):
    cases = ["0:1:0", "0:1:3", "2:2:3"]
    run_cases(tmp_path, 8, cases)
    for case in cases:
        check_nothing_lost(tmp_path / case, 8)
    assert tokens(tmp_path / "0:1:3") == tokens(tmp_path / "0:1:0")


@pytest.mark.slow
def test_random_kill_points(tmp_path):
    cases = [f"{staleness}:{seed}:{3 + seed % 4}" for staleness in (0, 1, 3) for seed in range(10)]
    run_cases(tmp_path, 12, cases)
    for case in cases:
        check_nothing_lost(tmp_path / case, 12)
    logged = sum((kinds(tmp_path / case) for case in cases), Counter())
    assert logged["recalled"] > 0
    assert logged["refused"] > 0


@pytest.mark.slow
def test_probe_d11_on_forty_tasks_of_lengths_1_to_40(tmp_path):
    cases = ["0:1:0", "0:1:3", "2:2:3", "3:3:3"]
    run_cases(tmp_path, 40, cases)
    for case in cases:
        check_nothing_lost(tmp_path / case, 40)
    assert tokens(tmp_path / "0:1:3") == tokens(tmp_path / "0:1:0")
