"""A whole run on episodes of several rows: accounts, evaluations and the folder count episodes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from forgetful_letters import TEMPLATE
from letter_runs import run_training

from sanderling.errors import ModelError
from sanderling.report.digest import evaluations, step_summaries
from sanderling.store.reader import RunReader

HARNESS = str(Path(__file__).with_name("forgetful_letters.py")) + ":ChatLetters"


def test_a_run_counts_episodes_however_many_rows_they_have(letters, tiny_policy, tmp_path):
    policy = shutil.copytree(tiny_policy, tmp_path / "chat")
    (policy / "chat_template.jinja").write_text(TEMPLATE)
    config = letters(
        policy=str(policy),
        harness=HARNESS,
        steps=2,
        rollout__groups_per_step=2,
        rollout__group_size=12,
        evaluation__tasks=4,
    )
    result = run_training(config, tmp_path / "run")
    reader = RunReader(tmp_path / "run")
    assert reader.environment()["harness"] == HARNESS
    assert result.counts["submitted"] == result.counts["graded"] == 2 * 24
    dropped = sum(value for name, value in result.counts.items() if name.startswith("dropped_"))
    assert result.counts["trained"] + dropped == 2 * 24
    assert result.counts["trained"] > 0, "the rewards of at least one group differ, or the test says nothing"
    assert result.eval_before["n"] == result.eval_after["n"] == 4
    for step in (1, 2):
        rows = [member.trajectory for member in reader.rollouts(step).members()]
        assert [row.parent_id is None for row in rows] == [True, False] * 24
        assert [len(row.turns) for row in rows] == [2, 1] * 24
        assert all(row.id == f"{row.parent_id}+1" for row in rows if row.parent_id is not None)
    reports = reader.reports()
    assert [report.metrics["turns_mean"] for report in reports] == [3.0, 3.0]
    assert all(report.metrics["logprob_gap_max"] < 1e-4 for report in reports if report.counts["updates"])
    assert [summary.total for summary in step_summaries(reader)] == [24, 24]
    assert [one.rate.graded for one in evaluations(reader)] == [4, 4]


def test_a_policy_without_a_chat_template_is_refused_before_anything_starts(letters, tmp_path):
    with pytest.raises(ModelError, match="the policy has no chat template, which this harness needs"):
        run_training(letters(harness="tool-calls"), tmp_path / "run")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
