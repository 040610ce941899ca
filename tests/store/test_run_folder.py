"""A run folder is one writer's, loses nothing, and says what is wrong with the disk."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sanderling.errors import RunFolderError
from sanderling.store.failures import failed
from sanderling.store.jsonl import append_line, read_lines
from sanderling.store.reader import RunReader
from sanderling.store.run_folder import RunFolder
from sanderling.testing import records
from sanderling.types import StepReport


def report(step: int, **metrics: float) -> StepReport:
    return StepReport(
        step=step,
        policy_version=step,
        metrics={"solve_rate": 0.5} | metrics,
        timing={"step_s": 1.5},
        counts={"submitted": 8, "dropped_stale": 1},
    )


def test_a_new_run_has_a_dated_name_of_its_own(tmp_path):
    with RunFolder.create(tmp_path, "fix python / tiny", "seed = 1\n", {"torch": "2"}) as run:
        assert run.path.parent == tmp_path
        assert run.path.name[11:].startswith("fix-python-tiny-")
        assert (run.path / "config.toml").read_text() == "seed = 1\n"
        assert run.reader().environment() == {"torch": "2"}
        assert not run.resumed
        with RunFolder.create(tmp_path, "fix python / tiny", "", {}) as other:
            assert other.path != run.path


def test_step_reports_come_back_numbers_that_are_not_finite_too(tmp_path):
    with RunFolder.at(tmp_path / "run", "", {}) as run:
        run.append_metrics(report(1, loss=float("nan"), ratio_max=float("inf")))
        run.append_metrics(report(2))
        first, second = run.reader().reports()
    assert first.metrics["loss"] != first.metrics["loss"]
    assert first.metrics["ratio_max"] == float("inf")
    assert second == report(2)
    for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_an_undeclared_number_is_refused_and_nothing_is_written(tmp_path):
    with RunFolder.at(tmp_path / "run", "", {}) as run:
        with pytest.raises(ValueError, match=r"'solve_rat' in StepReport.metrics \(did you mean 'solve_rate'"):
            run.append_metrics(report(1, solve_rat=0.1))
        assert run.reader().reports() == []


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(RunFolderError, match=r"thesis\.tex"):
        RunFolder.at(tmp_path, "", {})
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(RunFolderError, match="is a file"):
        RunFolder.at(tmp_path / "thesis.tex", "", {})


def test_resuming_needs_a_run(tmp_path):
    with pytest.raises(RunFolderError, match="no run at"):
        RunFolder.at(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(RunFolderError, match="no run folder"):
        RunReader(tmp_path)


def test_one_process_writes_at_a_time(tmp_path):
    with RunFolder.at(tmp_path / "run", "", {}):
        code = (
            "from pathlib import Path; from sanderling.store.run_folder import RunFolder;"
            f"RunFolder.at(Path(r'{tmp_path / 'run'}'))"
        )
        done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
        assert done.returncode != 0
        assert f"written by another process (pid {os.getpid()})" in done.stderr
        assert RunReader(tmp_path / "run").steps() == []  # reading needs no lock
    RunFolder.at(tmp_path / "run").close()


def test_a_killed_writer_leaves_no_lock_and_whole_lines(tmp_path):
    code = f"""
from pathlib import Path
from sanderling.store.run_folder import RunFolder
from sanderling.testing import records
run = RunFolder.at(Path(r"{tmp_path / "run"}"), "", {{}})
for step in range(100_000):
    run.write_rollouts(step, [records.group([1.0, 0.0])])
    run.append_event("step", number=step)
"""
    process = subprocess.Popen([sys.executable, "-c", code])
    events = tmp_path / "run/events.jsonl"
    while not events.exists() or len(read_lines(events)) < 6:
        time.sleep(0.02)
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    with RunFolder.at(tmp_path / "run") as run:
        numbers = [event["number"] for event in run.reader().events() if event["kind"] == "step"]
        assert numbers == list(range(len(numbers)))
        assert run.reader().steps()[: len(numbers)] == numbers
        for step in run.reader().steps():
            assert len(run.reader().rollouts(step).groups) == 1
        assert not list((run.path / "rollouts").glob(".*"))


def test_a_torn_last_line_is_left_out_then_moved_to_the_events(tmp_path):
    with RunFolder.at(tmp_path / "run", "", {}) as run:
        run.append_metrics(report(1))
    file = tmp_path / "run/metrics.jsonl"
    with file.open("a") as handle:
        handle.write('{"step": 2, "metr')
    assert [item.step for item in RunReader(tmp_path / "run").reports()] == [1]
    with RunFolder.at(tmp_path / "run") as run:
        run.append_metrics(report(2))
        assert [item.step for item in run.reader().reports()] == [1, 2]
        torn = [event for event in run.reader().events() if event["kind"] == "torn_line"]
    assert torn[0]["text"] == '{"step": 2, "metr'


def test_damage_in_the_middle_is_an_error_with_its_line(tmp_path):
    file = tmp_path / "events.jsonl"
    file.write_text('{"a": 1}\nnonsense\n{"a": 2}\n')
    with pytest.raises(RunFolderError, match="line 2 of"):
        read_lines(file)


def test_a_resume_moves_what_came_after_the_checkpoint_aside(tmp_path):
    group = records.group([1.0, 0.0])
    with RunFolder.at(tmp_path / "run", "", {}) as run:
        run.write_evaluation("before", [group], step=0)
        for step in (1, 2, 3):
            run.write_rollouts(step, [group])
            run.append_metrics(report(step))
        run.write_evaluation("step=000003", [group], step=3)
        run.write_evaluation("after-greedy", [group], step=2)
    with RunFolder.at(tmp_path / "run") as run:
        assert run.resumed
        moved = run.truncate_after(2)
        assert set(moved) == {
            "rollouts/step=000003",
            "rollouts/eval=step=000003",
            "rollouts/eval=after-greedy",
            "metrics.jsonl: 1 lines",
        }
        assert run.reader().steps() == [1, 2]
        assert run.reader().evaluations() == ["before"]
        assert [item.step for item in run.reader().reports()] == [1, 2]
        run.write_rollouts(3, [group])
        run.append_metrics(report(3))
        assert run.truncate_after(3) == ()
        aside = next(event for event in run.reader().events() if event["kind"] == "truncated")["to"]
        assert [line["step"] for line in read_lines(run.path / aside / "metrics.jsonl")] == [3]
        assert (run.path / aside / "rollouts/step=000003/turns.parquet").is_file()


def test_a_step_is_never_overwritten(tmp_path):
    with RunFolder.at(tmp_path / "run", "", {}) as run:
        run.write_rollouts(1, [records.group([1.0])])
        with pytest.raises(RunFolderError, match="truncate_after"):
            run.write_rollouts(1, [records.group([0.0])])
        assert run.reader().rollouts(1).groups[0].rewards().tolist() == [1.0]


def test_an_evaluation_taken_again_keeps_the_older_one_aside(tmp_path):
    with RunFolder.at(tmp_path / "run", "", {}) as run:
        run.write_evaluation("before", [records.group([0.0])])
        run.write_evaluation("before", [records.group([1.0])])
        assert run.reader().evaluation("before").groups[0].rewards().tolist() == [1.0]
        assert (run.path / "aside/01/rollouts/eval=before/turns.parquet").is_file()
        with pytest.raises(RunFolderError, match="can't name a folder"):
            run.write_evaluation("../before", [])


def test_a_changed_configuration_is_kept_beside_the_older_one(tmp_path):
    RunFolder.at(tmp_path / "run", "steps = 5\n", {}).close()
    with RunFolder.at(tmp_path / "run", "steps = 9\n") as run:
        assert run.reader().config_text() == "steps = 9\n"
        assert (run.path / "aside/01/config.toml").read_text() == "steps = 5\n"
        assert "file_changed" in [event["kind"] for event in run.reader().events()]


@pytest.mark.parametrize(
    ("number", "advice"), [(errno.ENOSPC, "free space"), (errno.EROFS, "read-only"), (errno.EACCES, "permissions")]
)
def test_disk_errors_say_what_to_do(number, advice):
    error = failed("write", Path("/some/run"), OSError(number, "x"))
    assert isinstance(error, RunFolderError)
    assert f"can't write /some/run: {os.strerror(number)}" in str(error)
    assert advice in str(error)


def test_a_full_disk_is_reported_with_path_and_advice():
    with pytest.raises(RunFolderError, match=r"can't append to /dev/full: No space left on device; free space"):
        append_line(Path("/dev/full"), {"a": 1})


def test_a_path_through_a_file_is_reported(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunFolderError, match="Not a directory"):
        RunFolder.at(tmp_path / "file" / "run", "", {})
