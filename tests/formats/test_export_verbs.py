"""The verbs, as they are typed: what they print, and one clear error for bad input."""

from __future__ import annotations

import json
import sys

import pytest

from sanderling import cli
from sanderling.store.run_folder import RunFolder
from sanderling.tasks.formats.harbor_tasks import HarborTasks
from sanderling.testing import records


def command(capsys, monkeypatch, *arguments):
    """Run the command line in this process; return exit code, standard output and standard error."""
    monkeypatch.setattr(sys, "argv", ["sanderling", *map(str, arguments)])
    try:
        cli.main()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_tasks_of_an_environment_become_harbor_folders(capsys, monkeypatch, tmp_path):
    flags = ["--env", "fix_python", "--split", "held-out", "--n", 3, "--out", tmp_path / "out", "--json"]
    code, out, _ = command(capsys, monkeypatch, "tasks", "export", "--format", "harbor", *flags)
    assert (code, json.loads(out)) == (0, {"out": str(tmp_path / "out"), "count": 3, "refused": {}})
    assert len(HarborTasks(tmp_path / "out").ids("held-out")) == 3
    listed = ["--env", "sanderling.formats:harbor", f"--environment_settings.path={tmp_path / 'out'}"]
    code, out, _ = command(capsys, monkeypatch, "tasks", "list", *listed)
    assert (code, len(out.splitlines())) == (0, 3)


def test_trajectories_of_a_run_become_atif_documents(capsys, monkeypatch, tmp_path):
    with RunFolder.at(tmp_path / "run", "", {}) as folder:
        folder.write_rollouts(1, [records.group([1.0, 0.0], id="g0")])
    code, out, _ = command(capsys, monkeypatch, "export", tmp_path / "run", "--format", "atif")
    assert (code, out) == (0, f"2 trajectories written to {tmp_path / 'run/export/atif'}\n")
    assert len(list((tmp_path / "run/export/atif/step=000001").iterdir())) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tasks", "export", "--format", "harbor"], "give either a directory of task folders or --env"),
        (["tasks", "export", "nowhere", "--format", "harbor"], "no directory nowhere"),
        (["tasks", "export", "nowhere", "--format", "swebench"], "no directory nowhere"),
        (["tasks", "export", "x", "--env", "fix_python", "--format", "harbor"], "give either"),
        (["tasks", "export", "--env", "fix_python", "--format", "swebench"], "no repository and no pytest ids"),
        (
            ["tasks", "export", "--env", "sanderling.testing.letters:letter_environment", "--format", "harbor"],
            "can't pack",
        ),
        (["tasks", "export", "--env", "fix_python", "--split", "dev", "--format", "harbor"], "no split 'dev'"),
        (["tasks", "import", "nowhere.jsonl", "--repos", ".", "--out", "x"], "nowhere.jsonl can't be read"),
        (["export", "nowhere"], "nowhere is no run folder"),
        (["tasks", "list", "--env", "sanderling.formats:harbor"], "lack 'path'"),
    ],
)
def test_bad_input_is_one_clear_error(capsys, monkeypatch, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = command(capsys, monkeypatch, *arguments)
    assert code in (1, 2)
    assert message in err
    assert err.count("\n") == 1
    assert not out
    assert not list(tmp_path.iterdir())


def test_a_wrong_format_is_said_with_the_right_ones(capsys, monkeypatch, tmp_path):
    code, out, err = command(capsys, monkeypatch, "tasks", "export", tmp_path, "--format", "verifiers")
    assert code == 2
    assert "harbor" in out + err and "swebench" in out + err
