from __future__ import annotations

import asyncio
import io
import json
import threading
import time

import numpy as np
import pytest
from letter_runs import run_training

from sanderling import jobs
from sanderling.errors import CheckpointError, MeasurementError, RunFolderError, VerifierError
from sanderling.jobs.run_checks import check_run
from sanderling.learn.learner import Learner
from sanderling.learn.loop import deal_out_rewards
from sanderling.report.terminal import ProgressStyle
from sanderling.store.reader import RunReader


def _numbers(run) -> list[dict]:
    """Return what a run computed, without the times it took."""
    return [
        {"step": r.step, "version": r.policy_version, "metrics": dict(r.metrics), "counts": dict(r.counts)}
        for r in RunReader(run).reports()
    ]


def _tokens(run, step: int) -> list[list[int]]:
    return [m.trajectory.token_ids().tolist() for m in RunReader(run).rollouts(step).members()]


def test_a_run_learns_and_its_folder_holds_everything(letters, tmp_path):
    result = run_training(letters(steps=30), tmp_path / "run")
    assert result.eval_before["solve_rate"] < 0.2
    assert result.eval_after["solve_rate"] > 0.8
    assert result.counts["submitted"] == result.counts["graded"] == 30 * 64
    dropped = sum(value for name, value in result.counts.items() if name.startswith("dropped_"))
    assert result.counts["trained"] + dropped == result.counts["graded"]
    reader = RunReader(tmp_path / "run")
    assert reader.steps() == list(range(1, 31))
    assert set(reader.evaluations()) == {"before", "after"}
    assert [len(list(reader.rollouts(step).members())) for step in (1, 30)] == [64, 64]
    assert all(report.metrics["logprob_gap_max"] < 1e-4 for report in reader.reports() if report.counts["updates"])
    assert "none: rewards were not audited" in (tmp_path / "run" / "report.html").read_text("utf-8")
    assert reader.environment()["certificate"].startswith("none: ")
    assert (tmp_path / "run" / "report.html").stat().st_size > 1000
    assert [check.problems for check in check_run(tmp_path / "run") if not check.ok] == []
    kinds = [event["kind"] for event in reader.events()]
    assert kinds[0] == "created"
    assert kinds[-1] == "finished"


@pytest.mark.slow
def test_shuffled_rewards_teach_nothing(letters, tmp_path):
    result = run_training(letters(steps=20, control="shuffled_rewards"), tmp_path / "run")
    assert result.eval_after["solve_rate"] < 0.5


def test_the_same_seed_gives_the_same_tokens_and_losses(letters, tmp_path):
    for name in ("one", "two"):
        run_training(letters(seed=3), tmp_path / name)
    run_training(letters(seed=4), tmp_path / "other")
    assert _numbers(tmp_path / "one") == _numbers(tmp_path / "two")
    assert _tokens(tmp_path / "one", 8) == _tokens(tmp_path / "two", 8)
    assert _tokens(tmp_path / "one", 1) != _tokens(tmp_path / "other", 1)


def test_an_interrupted_run_resumes_to_the_same_end(letters, tmp_path):
    run_training(letters(), tmp_path / "whole")

    async def interrupted() -> None:
        stream = io.StringIO()
        training = asyncio.ensure_future(
            jobs.train(letters(), tmp_path / "cut", resume=False, stream=stream, style=ProgressStyle.PLAIN)
        )
        while "step 5/8" not in stream.getvalue():
            await asyncio.sleep(0.005)
        training.cancel()
        await training

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(interrupted())
    assert [event["kind"] for event in RunReader(tmp_path / "cut").events()][-1] == "interrupted"
    result = run_training(letters(), tmp_path / "cut", resume=True)
    assert _numbers(tmp_path / "cut") == _numbers(tmp_path / "whole")
    assert _tokens(tmp_path / "cut", 8) == _tokens(tmp_path / "whole", 8)
    whole = next(e for e in RunReader(tmp_path / "whole").events() if e["kind"] == "finished")
    assert result.eval_after == whole["eval_after"]
    assert result.eval_before == whole["eval_before"]


def test_cancelled_inside_an_update_the_step_is_finished_first(letters, tmp_path):
    """Weights, report and checkpoint of a step come together: no update is applied twice after a resume."""
    run_training(letters(), tmp_path / "whole")

    async def interrupted() -> None:
        update, entered = Learner.step, threading.Event()

        def slow(self, rows):
            report = update(self, rows)
            if self.policy_version >= 3:
                entered.set()
                time.sleep(0.3)
            return report

        Learner.step = slow
        try:
            job = jobs.train(letters(), tmp_path / "cut", resume=False, stream=io.StringIO(), style=ProgressStyle.PLAIN)
            training = asyncio.ensure_future(job)
            while not entered.is_set():
                await asyncio.sleep(0.005)
            training.cancel()
            await training
        finally:
            Learner.step = update

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(interrupted())
    run_training(letters(), tmp_path / "cut", resume=True)
    assert _numbers(tmp_path / "cut") == _numbers(tmp_path / "whole")
    assert _tokens(tmp_path / "cut", 8) == _tokens(tmp_path / "whole", 8)


def test_where_nothing_can_be_graded_the_run_ends_with_the_cause(letters, tmp_path):
    with pytest.raises(MeasurementError, match="none of 16 episodes could be graded; most often: broken grader"):
        run_training(letters(verifier=f"{__file__}:BrokenVerifier"), tmp_path / "run")


class BrokenVerifier:
    async def grade(self, task, submission, backend, seed):
        raise VerifierError("broken grader")

    async def control(self, task, backend, seed):
        raise VerifierError("broken grader")


def test_a_lost_tail_is_done_again(letters, tmp_path):
    """Killed after step 5 with the last checkpoint at 3: steps 4 and 5 are run again, the old ones move aside."""
    run_training(letters(), tmp_path / "whole")
    run_training(letters(steps=5, checkpoint__keep=9), tmp_path / "cut")
    run = tmp_path / "cut"
    checkpoint = run / "checkpoints" / "000005" / "model.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-7])
    run_training(letters(), run, resume=True)
    assert _numbers(run) == _numbers(tmp_path / "whole")
    assert [check.problems for check in check_run(run) if not check.ok] == []
    aside = [path.name for path in (run / "aside").rglob("step=*")]
    assert "step=000004" in aside


def test_asynchronous_training_learns_within_its_bound(letters, tmp_path):
    result = run_training(letters(steps=40, rollout__max_staleness=2), tmp_path / "run")
    reports = RunReader(tmp_path / "run").reports()
    staleness = [report.metrics["staleness_max"] for report in reports if "staleness_max" in report.metrics]
    assert 0 < max(staleness) <= 2
    assert [check.problems for check in check_run(tmp_path / "run") if not check.ok] == []
    assert result.eval_after["solve_rate"] > 0.6


def test_a_finished_run_and_a_foreign_folder_are_refused(letters, tmp_path):
    run_training(letters(steps=2), tmp_path / "run")
    with pytest.raises(RunFolderError, match="holds a run already; add --resume"):
        run_training(letters(steps=2), tmp_path / "run")
    with pytest.raises(CheckpointError, match="is finished"):
        run_training(letters(steps=2), tmp_path / "run", resume=True)
    with pytest.raises(RunFolderError, match="nothing to resume"):
        run_training(letters(steps=2), tmp_path / "nowhere", resume=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("do not touch")
    with pytest.raises(RunFolderError, match="holds other things"):
        run_training(letters(steps=2), tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "do not touch"


def test_evaluations_while_training_are_points_of_the_curve(letters, tmp_path):
    run_training(letters(steps=6, evaluation__every=2), tmp_path / "run")
    reader = RunReader(tmp_path / "run")
    assert [label for label in reader.evaluations() if label.startswith("step")] == ["step=000002", "step=000004"]
    assert [r.step for r in reader.reports()] == [1, 2, 3, 4, 5, 6]


def test_dealing_out_keeps_the_rewards_of_each_group(letters, tmp_path):
    run_training(letters(steps=6), tmp_path / "run")
    groups = [g for step in range(1, 7) for g in RunReader(tmp_path / "run").rollouts(step).groups]
    dealt = deal_out_rewards(groups, seed=1)
    assert [sorted(g.rewards()) for g in dealt] == [sorted(g.rewards()) for g in groups]
    assert any(not np.array_equal(a.rewards(), b.rewards()) for a, b in zip(dealt, groups, strict=True))


def test_the_result_is_one_json_object(letters, tmp_path):
    record = json.loads(json.dumps(run_training(letters(steps=1), tmp_path / "run").as_json()))
    assert set(record) == {"run", "wall_s", "steps", "eval_before", "eval_after", "counts"}
    assert set(record["eval_before"]) == {"solve_rate", "n", "low", "high", "ungraded"}
