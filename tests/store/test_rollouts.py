"""What was written comes back, exactly; readers need pyarrow only."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from sanderling.errors import RunFolderError
from sanderling.store import schema
from sanderling.store.reader import RunReader
from sanderling.store.run_folder import RunFolder
from sanderling.store.tables import tables
from sanderling.testing import records, strategies
from sanderling.types import Finding, Group, Member, StopReason, Task


@pytest.fixture
def run(tmp_path: Path):
    with RunFolder.at(tmp_path / "run", "seed = 1\n", {"python": "3"}) as folder:
        yield folder


@settings(max_examples=20)
@given(groups=strategies.groups())
def test_any_groups_come_back_exactly(groups):
    with tempfile.TemporaryDirectory() as folder, RunFolder.at(Path(folder) / "run", "", {}) as run:
        run.write_rollouts(3, groups)
        back = run.reader().rollouts(3)
    assert records.difference(back.groups, groups) is None
    assert back.step == 3


def test_dropped_and_failed_ones_are_rows_with_their_reason(run):
    lost = records.group([1.0, None, 0.0], id="g7")
    run.write_rollouts(1, [lost])
    turns = pq.read_table(run.path / "rollouts/step=000001/turns.parquet").to_pylist()
    assert len(turns) == 6
    fates = {(row["trajectory_id"], row["stop"], row["membership"], row["disposition_reason"]) for row in turns}
    assert ("g7/1.0", "sandbox_lost", "excluded", "sandbox_lost") in fates
    assert {row["isolation"] for row in turns} == {"namespaces"}


def test_a_trajectory_without_turns_is_kept(run):
    empty = records.member(records.trajectory((), id="g0/0.0", stop=StopReason.SANDBOX_LOST), None)
    run.write_rollouts(1, [Group(id="g0", task_id="toy/train/one", members=(empty,))])
    assert next(run.reader().rollouts(1).members()).trajectory.turns == ()


def test_tasks_and_advantages_are_stored_beside_the_trajectories(run):
    group = records.group([1.0, 0.0], id="g0", task_id="toy/train/one")
    task = Task(id="toy/train/one", prompt="Fix clamp.", base={}, metadata={"family": "boundary"})
    run.write_rollouts(1, [group], tasks={task.id: task}, advantages={"g0/0.0": np.array([0.5, -0.25])})
    back = run.reader().rollouts(1)
    assert back.advantages == {"g0/0.0": (0.5, -0.25), "g0/1.0": (None, None)}
    assert back.task_prompts == {task.id: "Fix clamp."}
    assert back.task_metadata == {task.id: {"family": "boundary"}}


def test_advantages_must_be_one_per_turn():
    with pytest.raises(ValueError, match=r"g0/0\.0 have shape \(3,\), expected \(2,\)"):
        tables([records.group([1.0])], advantages={"g0/0.0": [1.0, 2.0, 3.0]})


def test_half_surrogates_from_file_names_are_escaped_not_fatal(run):
    broken = records.turn("view", "ok")
    seen = type(broken.observation)(token_ids=broken.observation.token_ids, text="name \udcff.py")
    item = records.trajectory([type(broken)(action=broken.action, observation=seen)])
    run.write_rollouts(1, [Group(id="g0", task_id=item.task_id, members=(records.member(item),))])
    back = next(run.reader().rollouts(1).members())
    assert back.trajectory.turns[0].observation.text == "name \\udcff.py"


def test_a_finding_about_another_trajectory_stays_with_its_member(run):
    plain = records.member(records.trajectory([records.turn()], id="g0/0.0"))
    finding = Finding(
        trajectory_id="other", screen="paths", severity="info", turn=None, quote="a", explanation="a path"
    )
    noticed = Member(
        trajectory=plain.trajectory, verdict=plain.verdict, disposition=plain.disposition, findings=(finding,)
    )
    run.write_rollouts(1, [Group(id="g0", task_id="toy/train/one", members=(noticed,))])
    assert next(run.reader().rollouts(1).members()).findings == (finding,)


@pytest.mark.parametrize("name", sorted(schema.FILES))
def test_every_column_of_the_written_files_has_a_doc(run, name):
    run.write_rollouts(1, [records.group([1.0])])
    written = pq.read_schema(run.path / f"rollouts/step=000001/{name}.parquet")
    assert written.names == schema.FILES[name].names
    assert all(len(field.metadata[b"doc"]) > 10 for field in written)


def test_a_damaged_or_newer_file_is_refused_with_its_path(run):
    folder = run.write_rollouts(1, [records.group([1.0])])
    file = folder / "turns.parquet"
    newer = pq.read_table(file)
    pq.write_table(newer.replace_schema_metadata(newer.schema.metadata | {schema.VERSION_KEY: b"99"}), file)
    with pytest.raises(RunFolderError, match=r"turns\.parquet has schema version 99"):
        run.reader().rollouts(1)
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(RunFolderError, match=r"turns\.parquet is damaged"):
        run.reader().rollouts(1)


def test_steps_may_be_missing(run):
    for step in (1, 4, 12):
        run.write_rollouts(step, [records.group([1.0])])
    reader = RunReader(run.path)
    assert reader.steps() == [1, 4, 12]
    with pytest.raises(RunFolderError, match="step=000002"):
        reader.rollouts(2)


def test_a_dataset_of_all_steps_reads_with_pyarrow_alone(run):
    for step in (1, 2):
        run.write_rollouts(step, [records.group([1.0, 0.0])])
    code = (
        "import sys, pyarrow.dataset as ds;"
        f"t = ds.dataset([*__import__('glob').glob(r'{run.path}/rollouts/step=*/turns.parquet')]).to_table();"
        "assert t.num_rows == 8, t.num_rows; assert 'sanderling' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_writing_a_step_of_64_episodes_is_cheap():
    steps = [records.turn("replace 3 " + "x" * 50, "y" * 100) for _ in range(12)]
    items = [
        Group(
            id=f"g{g}",
            task_id="t",
            members=tuple(records.member(records.trajectory(steps, id=f"g{g}/{i}.0")) for i in range(8)),
        )
        for g in range(8)
    ]
    with tempfile.TemporaryDirectory() as folder, RunFolder.at(Path(folder) / "run", "", {}) as run:
        run.write_rollouts(0, items)
        started = time.process_time()
        for step in range(1, 6):
            run.write_rollouts(step, items)
        assert (time.process_time() - started) / 5 < 0.5  # about 0.02 here; the limit leaves room for a loaded machine
