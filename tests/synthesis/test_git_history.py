"""Probe D8: no object of a later commit reaches a task, whichever way it was kept, and each way is named."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sanderling.synthesis.code_base import read_code_base
from sanderling.synthesis.git_folder import git_folder
from sanderling.tasks.folder import write_tree

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
BASE = {"calc.py": b"def add(a, b):\n    return a - b\n", "tests/test_calc.py": b"def test(): pass\n", "tests/z": b""}
FIX = b"def add(a, b):\n    return a + b\n"
WHO = {f"GIT_{role}_{part}": "a@b.c" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}


def git(folder: Path, *arguments: str) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", **WHO}
    done = subprocess.run(
        ["git", "-C", str(folder), "-c", "gc.auto=0", *arguments], check=True, capture_output=True, env=environment
    )
    return done.stdout.decode().strip()


def clean(folder: Path) -> str:
    """Make a repository with one commit and no reflog; return the name of a second commit's tree that isn't in it."""
    write_tree(folder, BASE)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "config", "core.logAllRefUpdates", "false")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "bug")
    return git(folder, "rev-parse", "HEAD")


def fixed(folder: Path) -> str:
    """Add a commit with the fix on a branch of its own, go back, and delete the branch; return its name."""
    git(folder, "switch", "-q", "-c", "later")
    (folder / "calc.py").write_bytes(FIX)
    git(folder, "commit", "-q", "-a", "-m", "fix")
    value = git(folder, "rev-parse", "HEAD")
    git(folder, "switch", "-q", "main")
    git(folder, "branch", "-q", "-D", "later")
    return value


def tag(folder: Path) -> str:
    git(folder, "tag", "v2", fixed(folder))
    return "refs/tags/v2"


def remote(folder: Path) -> str:
    git(folder, "update-ref", "refs/remotes/origin/main", fixed(folder))
    return "refs/remotes/origin/main"


def reflog(folder: Path) -> str:
    git(folder, "config", "core.logAllRefUpdates", "true")
    fixed(folder)
    return "reflog HEAD"


def stash(folder: Path) -> str:
    (folder / "calc.py").write_bytes(FIX)
    git(folder, "stash", "-q")
    return "refs/stash"


def packed(folder: Path) -> str:
    git(folder, "tag", "v2", fixed(folder))
    git(folder, "pack-refs", "--all")
    return "(packed ref)"


def loose(folder: Path) -> str:
    return f"object {fixed(folder)} commit"


def alternates(folder: Path) -> str:
    other = folder.parent / "other"
    other.mkdir()
    clean(other)
    fixed(other)
    (folder / ".git/objects/info").mkdir(exist_ok=True)
    (folder / ".git/objects/info/alternates").write_text(f"{other}/.git/objects\n")
    return "alternates"


@pytest.mark.parametrize("keep", [tag, remote, reflog, stash, packed, loose, alternates])
def test_each_way_to_a_later_commit_is_named_and_left_out(tmp_path: Path, keep: Callable[[Path], str]) -> None:
    folder = tmp_path / "repo"
    folder.mkdir()
    clean(folder)
    way = keep(folder)
    code = read_code_base(folder)
    assert any(way in said for said in code.left_out), code.left_out
    assert any("object" in said for said in code.left_out), code.left_out
    assert dict(code.files) == BASE


def test_a_clean_checkout_has_nothing_to_leave_out(tmp_path: Path) -> None:
    clean(tmp_path)
    (tmp_path / "untracked.py").write_text("x = 1\n")
    code = read_code_base(tmp_path)
    assert code.left_out == ()
    assert dict(code.files) == BASE


def test_the_git_folder_of_a_task_holds_one_commit_and_nothing_beyond(tmp_path: Path) -> None:
    files = {**BASE, "deep/er/ä.txt": b"x" * 5000, "deep.txt": b"", "deep-er": b"1"}
    write_tree(tmp_path, {**files, **git_folder(files)})
    objects = git(tmp_path, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split("\n")
    reachable = [line.split(" ")[0] for line in git(tmp_path, "rev-list", "--objects", "HEAD").split("\n")]
    assert sorted(objects) == sorted(reachable)
    git(tmp_path, "fsck", "--strict", "--no-dangling")
    assert git(tmp_path, "for-each-ref", "--format=%(refname)") == "refs/heads/main"
    assert git(tmp_path, "log", "--all", "--oneline").count("\n") == 0
    assert git(tmp_path, "fsck", "--lost-found") == ""
    assert git(tmp_path, "reflog") == ""
    for name in ("logs", "packed-refs", "ORIG_HEAD", "FETCH_HEAD", "objects/info/alternates", "hooks"):
        assert not (tmp_path / ".git" / name).exists()


def test_status_diff_and_blame_work_on_it(tmp_path: Path) -> None:
    write_tree(tmp_path, {**BASE, **git_folder(BASE)})
    assert git(tmp_path, "status", "--porcelain") == ""
    assert "a - b" in git(tmp_path, "blame", "calc.py")
    (tmp_path / "calc.py").write_bytes(FIX)
    assert git(tmp_path, "status", "--porcelain") == "M calc.py"
    assert "+    return a + b" in git(tmp_path, "diff")


def test_equal_files_give_equal_bytes() -> None:
    assert git_folder(BASE) == git_folder(dict(reversed(BASE.items())))
