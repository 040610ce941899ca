"""Trajectories of a run as ATIF 1.8 documents."""

from __future__ import annotations

import json

import numpy as np
import pytest
from pydantic import ValidationError

from sanderling.errors import RunFolderError
from sanderling.store.atif import export_atif
from sanderling.store.atif_model import AtifTrajectory
from sanderling.store.reader import RunReader
from sanderling.store.run_folder import RunFolder
from sanderling.testing import records
from sanderling.types import Task

TASK = Task(id="toy/train/one", prompt="Fix it.", base={}, metadata={"family": "f"})


@pytest.fixture
def run(tmp_path):
    with RunFolder.at(tmp_path / "run", "policy = 'tiny'\nenvironment = 'toy'\n", {}) as folder:
        group = records.group([1.0, None, 0.0], id="g7")
        tasks = {member.trajectory.task_id: TASK for member in group.members}
        advantages = {m.trajectory.id: np.full(len(m.trajectory.turns), 0.5) for m in group.members}
        folder.write_rollouts(2, [group], tasks=tasks, advantages=advantages)
        folder.write_evaluation("after", [records.group([1.0], id="e0")], step=2)
        yield RunReader(folder.path), group


def test_every_trajectory_is_a_valid_document_with_its_tokens(run, tmp_path):
    reader, group = run
    assert export_atif(reader, tmp_path / "out") == 4
    files = sorted((tmp_path / "out").rglob("*.json"))
    assert [str(f.relative_to(tmp_path / "out")) for f in files][:2] == [
        "eval=after/e0__0.0.json",
        "step=000002/g7__0.0.json",
    ]
    documents = {f.stem: AtifTrajectory.model_validate_json(f.read_text("utf-8")) for f in files}
    assert {d.session_id for d in documents.values()} == {"run"}
    assert len({d.trajectory_id for d in documents.values()}) == 4
    for member in group.members:
        item = member.trajectory
        document = documents[item.id.replace("/", "__")]
        assert (document.agent.model_name, document.steps[0].message) == ("tiny", "Fix it.")
        assert len(document.steps) == len(item.turns) + 1
        whole = item.token_ids().tolist()
        for turn, step in zip(item.turns, document.steps[1:], strict=True):
            seen = step.metrics.prompt_token_ids
            assert seen == whole[: len(seen)]
            assert seen + step.metrics.completion_token_ids == whole[: len(seen) + len(turn.action.token_ids)]
            assert step.metrics.logprobs == turn.action.rollout_logprobs.tolist()
            assert step.message == turn.action.text
            assert step.observation.results[0].content == turn.observation.text
            assert step.extra["advantage"] == 0.5


def test_an_ungraded_trajectory_has_no_reward(run, tmp_path):
    reader, _ = run
    export_atif(reader, tmp_path / "out", ["step=000002"])
    outcomes = {
        f.stem: json.loads(f.read_text("utf-8"))["final_metrics"]["extra"] for f in (tmp_path / "out").rglob("*.json")
    }
    assert {name: outcome.get("reward") for name, outcome in outcomes.items()} == {
        "g7__0.0": 1.0, "g7__1.0": None, "g7__2.0": 0.0
    }  # fmt: skip
    assert outcomes["g7__1.0"]["ungraded"]["phase"]


def test_rollouts_that_are_not_there_are_one_clear_error(run, tmp_path):
    with pytest.raises(RunFolderError, match="no rollouts 'step=000009'; it has step=000002, eval=after"):
        export_atif(run[0], tmp_path / "out", ["step=000009"])
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(RunFolderError, match="write"):
        export_atif(run[0], tmp_path / "file")


@pytest.mark.parametrize(
    "change",
    [
        {"unknown": 1},
        {"steps": []},
        {"steps": [{"step_id": 2, "source": "user", "message": ""}]},
        {"steps": [{"step_id": 1, "source": "user", "message": "", "metrics": {}}]},
        {
            "steps": [
                {
                    "step_id": 1,
                    "source": "agent",
                    "message": "",
                    "metrics": {"completion_token_ids": [1], "logprobs": []},
                }
            ]
        },
        {
            "steps": [
                {"step_id": 1, "source": "agent", "message": "", "observation": {"results": [{"source_call_id": "x"}]}}
            ]
        },
        {"schema_version": "ATIF-v1.0"},
    ],
)
def test_the_model_takes_nothing_else(change):
    good = {"agent": {"name": "a", "version": "1"}, "steps": [{"step_id": 1, "source": "user", "message": ""}]}
    AtifTrajectory.model_validate(good)
    with pytest.raises(ValidationError):
        AtifTrajectory.model_validate({**good, **change})
