"""`sanderling runs check` passes a good run and names what is wrong with a damaged one."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import controller
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sanderling import cli
from sanderling.jobs.run_checks import check_run
from sanderling.sandbox.journal import Journal
from sanderling.sandbox.orphans import find_orphans
from sanderling.store.episode_log import files
from sanderling.store.run_folder import RunFolder


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    asyncio.run(controller.run(folder, 8, 5, 1))
    return folder


@pytest.fixture
def run(finished, tmp_path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def wrong(run: Path) -> dict[str, str]:
    return {check.name: "; ".join(check.problems) for check in check_run(run) if not check.ok}


def edit_metrics(run: Path, step: int, change) -> None:
    file = run / "metrics.jsonl"
    records = [json.loads(line) for line in file.read_text().splitlines()]
    change(records[step - 1])
    file.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_a_good_run_is_good(run):
    assert wrong(run) == {}


def _count(name: str, by: int):
    return lambda run: edit_metrics(run, 2, lambda record: record["counts"].update({name: record["counts"][name] + by}))


def _drop_rows(run: Path) -> None:
    folder = run / "rollouts" / "step=000002"
    for name in ("trajectories", "verdicts"):
        table = pq.read_table(folder / f"{name}.parquet")
        pq.write_table(table.slice(1), folder / f"{name}.parquet")


def _twice(run: Path) -> None:
    shutil.rmtree(run / "rollouts" / "step=000003")
    shutil.copytree(run / "rollouts" / "step=000002", run / "rollouts" / "step=000003")


def _shorter(run: Path) -> None:
    file = run / "rollouts" / "step=000001" / "turns.parquet"
    table = pq.read_table(file)
    cut = pa.array([row[:-1] for row in table.column("rollout_logprobs").to_pylist()], type=pa.list_(pa.float32()))
    index = table.schema.get_field_index("rollout_logprobs")
    pq.write_table(table.set_column(index, table.schema.field(index), cut), file)


def _damage_log(run: Path) -> None:
    file = files(run / "episodes")[0][0]
    content = file.read_bytes().split(b"\n")
    content[1] = content[1][:-3] + b"###"
    file.write_bytes(b"\n".join(content))


def _checkpoint(run: Path) -> None:
    (run / "checkpoints" / "000002").mkdir()


@pytest.mark.parametrize(
    ("damage", "check", "message"),
    [
        (_count("graded", 1), "accounts", "until step 2: submitted"),
        (_count("dropped_zero_advantage", -1), "accounts", "is what became of them"),
        (lambda run: edit_metrics(run, 2, lambda r: r.update(step=3)), "steps", "expected 1 to 4, each once"),
        (lambda run: edit_metrics(run, 2, lambda r: r.update(policy_version=7)), "steps", "policy version 7 after 1"),
        (
            lambda run: edit_metrics(run, 2, lambda r: r["metrics"].update(staleness_max=2)),
            "steps",
            "max_staleness is 1",
        ),
        (lambda run: shutil.rmtree(run / "rollouts" / "step=000002"), "steps", "no rollouts of the steps 2"),
        (_drop_rows, "accounts", "are stored with their steps"),
        (_twice, "tasks", "stored more than once"),
        (_shorter, "schema", "differ in number (invariant 1)"),
        (lambda run: (run / "rollouts/step=000001/turns.parquet").write_bytes(b"PAR1"), "schema", "can't be read"),
        (lambda run: (run / "metrics.jsonl").write_text("{\n{}\n"), "files", "line 1 of"),
        (_damage_log, "log", "is damaged"),
        (_checkpoint, "checkpoints", "000002: no state.json"),
    ],
)
def test_damage_is_named(run, damage, check, message):
    damage(run)
    assert message in wrong(run)[check]


def test_what_a_kill_leaves_and_a_resume_clears_is_a_note(run):
    with (run / "events.jsonl").open("a") as stream:
        stream.write('{"at": "2026')
    (run / "rollouts" / ".step=000005.part").mkdir()
    assert wrong(run) == {}
    notes = [note for check in check_run(run) for note in check.notes]
    assert any("events.jsonl is torn" in note for note in notes)
    assert any(".step=000005.part was being written" in note for note in notes)
    RunFolder.at(run).close()
    assert not (run / "rollouts" / ".step=000005.part").exists()


def test_the_verb_prints_one_json_object_and_fails_where_something_is_wrong(run, capsys, monkeypatch):
    def command(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["sanderling", "runs", "check", *arguments])
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        return code, capsys.readouterr().out

    code, out = command(str(run), "--json")
    assert (code, json.loads(out)["ok"]) == (0, True)
    _count("graded", 1)(run)
    code, out = command(str(run), "--json")
    record = json.loads(out)
    assert (code, record["ok"]) == (1, False)
    assert [check["name"] for check in record["checks"] if not check["ok"]] == ["accounts"]
    code, out = command(str(run))
    assert code == 1
    assert "accounts: WRONG" in out
    assert command(str(run / "nowhere"))[0] == 1


def test_what_a_killed_owner_left_is_found_by_its_name(tmp_path):
    def own() -> None:
        journal = Journal(tmp_path)
        journal.record("create", "cgroup", str(tmp_path / "group"))
        child = subprocess.Popen(["sleep", "60"], stderr=(journal.path / "launcher.log").open("wb"))
        (tmp_path / "child").write_text(str(child.pid))
        os.kill(os.getpid(), signal.SIGKILL)

    (tmp_path / "group").mkdir()
    owner = os.fork()
    if owner == 0:
        own()
    assert find_orphans([tmp_path], [os.getpid()]) == []
    os.waitpid(owner, 0)
    child = int((tmp_path / "child").read_text())
    found = find_orphans([tmp_path], [owner, os.getpid()])
    assert {(orphan.kind, orphan.name) for orphan in found} == {
        ("folder", str(next(tmp_path.glob("backend-*")))),
        ("control group", str(tmp_path / "group")),
        ("process", str(child)),
    }
    os.kill(child, signal.SIGKILL)
    Journal(tmp_path).close()  # the next backend sweeps
    end = time.monotonic() + 10
    while find_orphans([tmp_path], [owner]) and time.monotonic() < end:
        time.sleep(0.01)
    assert find_orphans([tmp_path], [owner]) == []
