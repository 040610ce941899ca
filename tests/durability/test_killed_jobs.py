"""The real job in real sandboxes, killed with SIGKILL while it works, goes on and leaves nothing behind. Minutes of work."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sanderling.jobs.run_checks import check_run
from sanderling.sandbox.orphans import find_orphans
from sanderling.store.reader import RunReader
from sanderling.testing.tiny_model import tiny_llama_folder

pytestmark = pytest.mark.slow

STEPS = 18  # so many that no life before the last one comes to the end
SETTINGS = {
    "environment": "sanderling.testing.letters:letter_environment",
    "sandbox.backend": "bubblewrap",
    "trust.certificate": "none",
    "steps": STEPS,
    "evaluation.tasks": 2,
    "rollout.groups_per_step": 2,
    "rollout.group_size": 8,
    "checkpoint.every": 2,
    "engine.threads": 1,
}


def command(run: Path, *more: str, **changes: object) -> list[str]:
    """Return the command line of the letters job; a policy of random weights is made beside the run."""
    policy = run.parent / "policy"
    if not policy.exists():
        tiny_llama_folder(policy)
    settings = {**SETTINGS, "policy": str(policy), **{key.replace("__", "."): value for key, value in changes.items()}}
    flags = [f"--{key}={json.dumps(value)}" for key, value in settings.items()]
    return [sys.executable, "-m", "sanderling.cli", "train", *flags, "--run", str(run), "--json", *more]


def numbers(run: Path) -> list[tuple[int, int, dict[str, float], dict[str, int]]]:
    return [(r.step, r.policy_version, dict(r.metrics), dict(r.counts)) for r in RunReader(run).reports()]


def children_of(pid: int) -> list[int]:
    return [int(child) for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()]


def owners(run: Path) -> set[int]:
    return {event["pid"] for event in RunReader(run).events() if "pid" in event}


def wait_for(run: Path, process: subprocess.Popen, lines: int) -> None:
    """Wait until the log of episodes has so many lines, or the process ended."""
    end = time.monotonic() + 300
    while time.monotonic() < end and process.poll() is None:
        if sum(file.read_bytes().count(b"\n") for file in (run / "episodes").glob("*.jsonl")) >= lines:
            return
        time.sleep(0.01)


@pytest.mark.parametrize("staleness", [0, 1])
def test_killed_at_three_moments_the_run_ends_as_if_it_had_not_been(tmp_path, staleness):
    dice, run = random.Random(staleness), tmp_path / "run"
    changes = {"rollout__max_staleness": staleness}
    for life in range(3):
        process = subprocess.Popen(
            command(run, *(["--resume"] if life else []), **changes), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        before = sum(file.read_bytes().count(b"\n") for file in (run / "episodes").glob("*.jsonl"))
        wait_for(run, process, before + dice.randrange(5, 60))
        time.sleep(dice.random())
        assert process.poll() is None, f"it ended with {process.returncode} before it could be killed"
        process.kill()
        process.communicate()
    finished = subprocess.run(command(run, "--resume", **changes), capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert [(check.name, check.problems) for check in check_run(run) if not check.ok] == []
    assert [report.step for report in RunReader(run).reports()] == list(range(1, STEPS + 1))
    if staleness == 0:
        whole = subprocess.run(command(tmp_path / "whole"), capture_output=True, text=True, check=False)
        assert whole.returncode == 0, whole.stderr
        assert numbers(run) == numbers(tmp_path / "whole")


def test_a_killed_launcher_costs_a_retry(tmp_path):
    run = tmp_path / "run"
    process = subprocess.Popen(command(run), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    wait_for(run, process, 12)
    launchers = [pid for pid in children_of(process.pid) if b"launcher" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert launchers
    for pid in launchers:
        os.kill(pid, signal.SIGKILL)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert [(check.name, check.problems) for check in check_run(run) if not check.ok] == []
    assert sum(report.counts["retried"] for report in RunReader(run).reports()) > 0


def test_a_killed_controller_leaves_no_process_and_no_mount(tmp_path):
    run = tmp_path / "run"
    process = subprocess.Popen(command(run), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    wait_for(run, process, 20)
    process.kill()
    process.wait()
    state_dirs = {Path(event["state_dir"]) for event in RunReader(run).events() if "state_dir" in event}
    end = time.monotonic() + 20
    while time.monotonic() < end:
        found = find_orphans(state_dirs, owners(run))
        if not [orphan for orphan in found if orphan.kind in ("process", "mount")]:
            break
        time.sleep(0.1)
    assert [str(orphan) for orphan in found if orphan.kind in ("process", "mount")] == []
    resumed = subprocess.run(command(run, "--resume"), capture_output=True, text=True, check=False)
    assert resumed.returncode == 0, resumed.stderr
    assert find_orphans(state_dirs, owners(run)) == []
