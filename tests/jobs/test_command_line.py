from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from letter_runs import LETTERS

from sanderling import cli
from sanderling.store.reader import RunReader


def command(capsys, monkeypatch, *arguments: str) -> tuple[int, str, str]:
    """Run the command line in this process; return exit code, standard output and standard error."""
    monkeypatch.setattr(sys, "argv", ["sanderling", *arguments])
    try:
        cli.main()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def letters_flags(policy: Path, **changes: object) -> list[str]:
    settings = {**LETTERS, "policy": str(policy), **{key.replace("__", "."): value for key, value in changes.items()}}
    return [f"--{key}={json.dumps(value)}" for key, value in settings.items()]


def test_train_prints_one_json_object_as_its_last_line(capsys, monkeypatch, tiny_policy, tmp_path):
    flags = letters_flags(tiny_policy, steps=1)
    code, out, err = command(capsys, monkeypatch, "train", *flags, "--run", str(tmp_path / "run"), "--json")
    record = json.loads(out.strip().splitlines()[-1])
    assert code == 0
    assert record["steps"] == 1
    assert record["run"] == str(tmp_path / "run")
    assert "step 1/1" in err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["train", "--rollout.grop_size=4"], 2, "did you mean 'group_size'?"),
        (["train", "--rollout.group_size=0"], 2, "rollout.group_size = 0"),
        (["train", "--rollout.group_size=1"], 2, "compares siblings"),
        (["train", "--batch.constant_tokens=3"], 2, "constant_tokens"),
        (["train", "--steps"], 2, "needs a value"),
        (["train", "nowhere.toml"], 2, "no configuration file nowhere.toml"),
        (["train", "--environment=fix_pyton"], 2, "did you mean 'fix_python'?"),
        (["train", "--environment=no.such.module:thing"], 2, "importing 'no.such.module' failed"),
        (["train", "--environment=nothing.py:thing"], 2, "no file 'nothing.py'"),
        (
            ["train", "--environment=sanderling.testing.letters:letter_enviroment"],
            2,
            "did you mean 'letter_environment'?",
        ),
        (["train", "--policy=/nowhere/model"], 1, "no model folder '/nowhere/model'"),
        (["train", "--split=test"], 1, "test"),
        (["train", "--credit.estimator=gropo"], 2, "did you mean 'grpo'?"),
        (["train", "--evaluation.tasks=100000"], 2, "ask for at most that many"),
        (["eval", "fix-python-tini"], 1, "did you mean 'fix-python-tiny'?"),
        (["tasks", "list", "--split", "dev"], 1, "dev"),
        (["tasks", "show", "fix_python/train/nothing"], 1, "nothing"),
        (["show", "/nowhere"], 1, "/nowhere"),
        (["trian"], 2, ""),
    ],
)
def test_bad_input_is_one_clear_error(capsys, monkeypatch, tmp_path, arguments, code, message):
    monkeypatch.chdir(tmp_path)
    got, out, err = command(capsys, monkeypatch, *arguments)
    assert (got, out) == (code, "")
    assert message in err
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir()), "nothing may be started or written"


def test_a_broken_model_folder_is_named(capsys, monkeypatch, tiny_policy, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(tiny_policy, broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    code, _, err = command(capsys, monkeypatch, "train", *letters_flags(broken), "--run", str(tmp_path / "run"))
    assert code != 0
    assert "model.safetensors" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="hiding bubblewrap from one process needs root")
def test_without_bubblewrap_nothing_starts_and_the_way_out_is_named(tiny_policy, tmp_path):
    flags = letters_flags(tiny_policy, sandbox__backend="bubblewrap")
    train = shlex.join([sys.executable, "-m", "sanderling.cli", "train", *flags, "--run", str(tmp_path / "run")])
    hide = f"mount --bind /dev/null {shlex.quote(shutil.which('bwrap') or '/usr/bin/bwrap')} && {train}"
    done = subprocess.run(["unshare", "-m", "sh", "-c", hide], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "apt-get install bubblewrap" in done.stderr
    assert "--sandbox.backend=local" in done.stderr
    assert "Traceback" not in done.stderr


def test_settings_of_files_are_read_from_left_to_right(capsys, monkeypatch, tmp_path):
    (tmp_path / "a.toml").write_text("steps = 7\n[rollout]\ngroup_size = 4\n")
    (tmp_path / "b.toml").write_text("[rollout]\ngroup_size = 6\n")
    files = [str(tmp_path / "a.toml"), str(tmp_path / "b.toml")]
    code, out, _ = command(capsys, monkeypatch, "train", *files, "--loss.clip_low=0.1", "--seed", "5", "--dry-run")
    assert code == 0
    for line in ("steps = 7", "group_size = 6", "clip_low = 0.1", "seed = 5"):
        assert line in out
    (tmp_path / "c.toml").write_text(out)
    _, again, _ = command(capsys, monkeypatch, "train", str(tmp_path / "c.toml"), "--dry-run")
    assert again == out


def test_an_unknown_key_names_its_file(capsys, monkeypatch, tmp_path):
    (tmp_path / "a.toml").write_text("[rollout]\ngruop_size = 4\n")
    code, _, err = command(capsys, monkeypatch, "train", str(tmp_path / "a.toml"))
    assert code == 2
    assert "a.toml: unknown key 'rollout.gruop_size'; did you mean 'group_size'?" in err


def _steps_done(run: Path) -> int:
    return len(RunReader(run).reports()) if (run / "config.toml").is_file() else 0


def test_ctrl_c_leaves_a_run_that_resumes(tiny_policy, tmp_path):
    run = tmp_path / "run"
    flags = letters_flags(tiny_policy, steps=400)
    arguments = [sys.executable, "-m", "sanderling.cli", "train", *flags, "--run", str(run), "--json"]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not _steps_done(run) >= 5:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert err.strip().endswith("interrupted; the run continues with --run <folder> --resume")
    assert "Traceback" not in err
    done = len(RunReader(run).reports())
    resume = [*arguments[:4], f"--steps={done + 2}", "--run", str(run), "--resume", "--json"]
    resumed = subprocess.run(resume, capture_output=True, text=True, timeout=120, check=False)
    assert resumed.returncode == 0, resumed.stderr
    assert [report.step for report in RunReader(run).reports()] == list(range(1, done + 3))


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_is_one_clear_error_and_the_run_resumes(tiny_policy, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1200k", "tmpfs", str(disk)], check=True)
    try:
        run = disk / "run"
        flags = letters_flags(tiny_policy, steps=400, checkpoint__every=1, checkpoint__keep=1)
        arguments = [sys.executable, "-m", "sanderling.cli", "train", *flags, "--run", str(run), "--json"]
        failed = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
        assert failed.returncode == 1, failed.stderr
        assert "Traceback" not in failed.stderr
        assert "error: " in failed.stderr
        assert "space" in failed.stderr or "MiB free" in failed.stderr
        done = max(int(p.name) for p in (run / "checkpoints").glob("[0-9]*"))
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        resume = [*arguments[:4], f"--steps={done + 2}", "--run", str(run), "--resume", "--json"]
        resumed = subprocess.run(resume, capture_output=True, text=True, timeout=120, check=False)
        assert resumed.returncode == 0, resumed.stderr
        assert [report.step for report in RunReader(run).reports()] == list(range(1, done + 3))
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)
