"""A whole run whose learner has two processes: it repeats, survives the loss of one, and resumes to the same end."""

from __future__ import annotations

import asyncio
import io
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from letter_runs import run_training

from sanderling import jobs
from sanderling.errors import LearnerError
from sanderling.jobs.run_checks import check_run
from sanderling.report.terminal import ProgressStyle
from sanderling.store.reader import RunReader

pytestmark = pytest.mark.slow


def numbers(run):
    return [(r.step, r.policy_version, dict(r.metrics), dict(r.counts)) for r in RunReader(run).reports()]


def workers_of_this_process() -> list[int]:
    children: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            children += map(int, (task / "children").read_text().split())
    return [pid for pid in children if b"sanderling.learn.worker" in command_line(pid)]


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return b""


def test_a_run_that_loses_a_worker_resumes_to_the_same_end(letters, tmp_path):
    run_training(letters(trainer__processes=2), tmp_path / "whole")
    assert workers_of_this_process() == []

    async def cut_short() -> None:
        stream = io.StringIO()
        job = jobs.train(
            letters(trainer__processes=2), tmp_path / "cut", resume=False, stream=stream, style=ProgressStyle.PLAIN
        )
        training = asyncio.ensure_future(job)
        while "step 5/8" not in stream.getvalue() and not training.done():
            await asyncio.sleep(0.005)
        (worker,) = workers_of_this_process()
        os.kill(worker, signal.SIGKILL)
        await training

    with pytest.raises(LearnerError, match=r"rank 1 .* ended with exit code -9"):
        asyncio.run(cut_short())
    assert workers_of_this_process() == []
    run_training(letters(trainer__processes=2), tmp_path / "cut", resume=True)
    assert numbers(tmp_path / "cut") == numbers(tmp_path / "whole")
    assert [check.problems for check in check_run(tmp_path / "cut") if not check.ok] == []


def test_the_first_step_is_that_of_one_process_and_the_run_learns(letters, tmp_path):
    result = run_training(letters(steps=30, trainer__processes=2, batch__layout="shared"), tmp_path / "two")
    run_training(letters(steps=1, batch__layout="shared"), tmp_path / "one")
    (_, _, expected, _), (_, _, found, _) = numbers(tmp_path / "one")[0], numbers(tmp_path / "two")[0]
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-5, abs=1e-6), name
    assert result.eval_before["solve_rate"] < 0.2 and result.eval_after["solve_rate"] > 0.8
