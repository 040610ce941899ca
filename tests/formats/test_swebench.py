"""SWE-bench rows: read with their variants, turned into task folders from a local repository, and written."""

from __future__ import annotations

import json
import subprocess

import pytest
from format_sandboxes import in_sandboxes

from sanderling.errors import TaskError
from sanderling.jobs.exports import Choice, TaskFormat, export_tasks, import_swebench
from sanderling.tasks.folder import write_task_folder
from sanderling.tasks.folders import TaskFolders
from sanderling.tasks.formats.git_trees import read_commit, write_commit
from sanderling.tasks.formats.swebench import (
    find_repository,
    model_patch,
    prediction,
    read_instances,
    resolve_test_ids,
    task_folder_of,
)
from sanderling.tasks.patches import apply_patch, make_patch
from sanderling.types import Submission
from sanderling.verify.suites.verifier import SuiteVerifier

BASE = {
    "pkg/__init__.py": b"",
    "pkg/core.py": b"def add(a, b):\n    return a - b\n",
    "tests/test_core.py": b"def test_nothing():\n    pass\n",
    "README.md": b"A package.\n",
}
GOLD = {**BASE, "pkg/core.py": b"def add(a, b):\n    return a + b\n"}
HIDDEN = b"""\
import pytest
from pkg.core import add


@pytest.mark.parametrize(("a", "b"), [(1, 2)])
def test_add(a, b):
    assert add(a, b) == 3


def test_zero():
    assert add(0, 0) == 0
"""
TESTED = {**BASE, "tests/test_core.py": HIDDEN}


def row(commit, **changes):
    fields = {
        "repo": "owner/pkg",
        "instance_id": "owner__pkg-1",
        "base_commit": commit,
        "patch": make_patch(BASE, GOLD),
        "test_patch": make_patch(BASE, TESTED),
        "problem_statement": "add subtracts.",
        "FAIL_TO_PASS": '["tests/test_core.py::test_add[1-2]"]',
        "PASS_TO_PASS": ["tests/test_core.py::test_zero"],
        "image": "unused",
    }
    return {key: value for key, value in {**fields, **changes}.items() if value is not None}


@pytest.fixture
def clones(tmp_path):
    """A folder with one clone, and the commit that rows name."""
    return tmp_path / "clones", write_commit(tmp_path / "clones/owner__pkg", BASE, "main")


def rows_of(tmp_path, *rows):
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(item) + "\n" for item in rows), "utf-8")
    return file


def test_commits_come_back_and_links_are_left_out(tmp_path):
    place = tmp_path / "work"
    place.mkdir()
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    (place / "a b.txt").write_bytes(b"\x00x")
    (place / "link").symlink_to("/etc/passwd")
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *arguments], cwd=place, check=True, capture_output=True)
    assert read_commit(place, "HEAD") == ({"a b.txt": b"\x00x"}, ("link",))
    with pytest.raises(TaskError, match="git ls-tree failed"):
        read_commit(place, "0" * 40)
    with pytest.raises(TaskError, match="no commit"):
        read_commit(place, "--output=x")


def test_equal_files_give_equal_commits_without_parents(tmp_path):
    first, second = (write_commit(tmp_path / name, BASE, "x") for name in ("a", "b"))
    assert first == second
    assert read_commit(tmp_path / "a", first) == (dict(sorted(BASE.items())), ())
    count = subprocess.run(["git", "rev-list", "--count", "--all"], cwd=tmp_path / "a", capture_output=True, check=True)
    assert count.stdout == b"1\n"


def test_a_row_becomes_a_task_folder(clones, tmp_path):
    root, commit = clones
    [item] = read_instances(rows_of(tmp_path, row(commit)))
    folder = task_folder_of(item, find_repository(root, item.repo))
    assert (dict(folder.base), dict(folder.tests)) == (dict(sorted(BASE.items())), {"tests/test_core.py": HIDDEN})
    assert folder.expected.fail_to_pass == ("tests/test_core.py::test_add[1-2]",)
    assert folder.expected.pass_to_pass == ("tests/test_core.py::test_zero",)
    assert folder.gold()["pkg/core.py"] == GOLD["pkg/core.py"]
    task = folder.task()
    assert (task.id, task.editable) == ("pkg/test/owner__pkg-1", ("*.py",))
    assert "a + b" not in repr(task)


@pytest.mark.parametrize(
    "changes",
    [
        {
            "FAIL_TO_PASS": None,
            "PASS_TO_PASS": None,
            "fail_to_pass": ["tests/test_core.py::test_add[1-2]"],
            "pass_to_pass": "[]",
        },
        {"FAIL_TO_PASS": ["tests/test_core.py::test_add[1-2]"], "PASS_TO_PASS": None, "hints_text": None, "version": 3},
    ],
)
def test_the_spellings_of_the_family(clones, tmp_path, changes):
    if "version" in changes:
        changes = {**changes, "version": "3"}
    [item] = read_instances(rows_of(tmp_path, row(clones[1], **changes)))
    assert item.fail_to_pass == ("tests/test_core.py::test_add[1-2]",)
    assert item.pass_to_pass == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base_commit": None}, "entry 1: base_commit"),
        ({"FAIL_TO_PASS": "not json"}, "expected a list, or a list as JSON text"),
        ({"FAIL_TO_PASS": None}, "FAIL_TO_PASS"),
    ],
)
def test_bad_rows_are_one_clear_error(clones, tmp_path, changes, message):
    with pytest.raises(TaskError, match=message):
        read_instances(rows_of(tmp_path, row(clones[1], **changes)))


REFUSED = {
    "no clone of owner/other": {"repo": "owner/other"},
    "git ls-tree failed": {"base_commit": "0" * 40},
    "has no hidden test": {"test_patch": ""},
    "has no FAIL_TO_PASS": {"FAIL_TO_PASS": "[]"},
    "isn't in a file that its test patch adds or changes": {"PASS_TO_PASS": ["tests/test_old.py::test_x"]},
    "doesn't apply": {"patch": "--- a/pkg/core.py\n+++ b/pkg/core.py\n@@ -1,1 +1,1 @@\n-nothing\n+x\n"},
    "stands for no test": {"PASS_TO_PASS": ["tests/test_core.py::test_gone"]},
    "passes without the solution already": {
        "FAIL_TO_PASS": ["tests/test_core.py::test_add[1", "tests/test_core.py::test_zero"], "PASS_TO_PASS": []
    },
}  # fmt: skip


@pytest.mark.slow
def test_rows_become_tasks_that_are_graded_and_unusable_ones_are_refused_by_name(clones, tmp_path):
    root, commit = clones
    bad = [row(commit, instance_id=f"bad-{n}", **changes) for n, changes in enumerate(REFUSED.values())]
    good = row(commit, FAIL_TO_PASS=["tests/test_core.py::test_add[1"])  # cut inside its parameters
    out = tmp_path / "out"

    async def work(backend):
        done = await import_swebench(rows_of(tmp_path, good, *bad), root, out, "test")
        tasks = TaskFolders(out)
        [task_id] = tasks.ids("test")
        task, verifier = tasks.get(task_id), SuiteVerifier(tasks)
        rewards = [
            (await verifier.control(task, backend, 0)).reward,
            (await verifier.grade(task, Submission(files={}), backend, 0)).reward,
        ]
        return done, tasks.folder(task_id), rewards

    done, folder, rewards = in_sandboxes(work)
    assert done.count == 1
    assert folder.expected.fail_to_pass == ("tests/test_core.py::test_add[1-2]",)
    assert rewards == [1.0, 0.0]
    for reason, message in zip(REFUSED, done.refused.values(), strict=True):
        assert reason in message


def test_task_folders_make_the_round_trip(clones, tmp_path):
    root, commit = clones
    [item] = read_instances(rows_of(tmp_path, row(commit)))
    folder = task_folder_of(item, find_repository(root, item.repo))
    write_task_folder(tmp_path / "native/one", folder)
    out = tmp_path / "out"
    assert export_tasks(Choice(directory=tmp_path / "native"), TaskFormat.SWEBENCH, out).count == 1
    [written] = read_instances(out / "instances.jsonl")
    assert isinstance(json.loads((out / "instances.jsonl").read_text("utf-8"))["FAIL_TO_PASS"], str)
    back = task_folder_of(written, find_repository(out / "repos", written.repo))
    assert (back.base, back.tests, back.expected, back.gold()) == (
        folder.base,
        folder.tests,
        folder.expected,
        folder.gold(),
    )
    assert back.instruction == folder.instruction


def test_cut_ids_stand_for_what_they_begin():
    known = ["t.py::a", "t.py::b[1-x y]", "t.py::b[1-z]", "t.py::b[2]", "t.py::b[2]c"]
    assert resolve_test_ids(["t.py::a", "t.py::b[1-x"], known) == ("t.py::a", "t.py::b[1-x y]")
    assert resolve_test_ids(["t.py::b[1-", "t.py::b[2]"], known) == ("t.py::b[1-x y]", "t.py::b[1-z]", "t.py::b[2]")
    for wrong in ("t.py::", "t.py::b", "t.py::b[3", "t.py::b[2-x]"):
        with pytest.raises(TaskError, match="stands for no test"):
            resolve_test_ids([wrong], known)


def test_a_submission_is_a_patch_that_git_applies(clones, tmp_path):
    root, commit = clones
    [item] = read_instances(rows_of(tmp_path, row(commit)))
    task = task_folder_of(item, find_repository(root, item.repo)).task()
    work = Submission(files={"pkg/core.py": GOLD["pkg/core.py"], "pkg/new.py": b"x = 1\n"})
    patch = model_patch(task, work)
    assert apply_patch(task.base, patch) == {**task.base, **work.files}
    tree = tmp_path / "tree"
    subprocess.run(["git", "clone", "-q", "-b", "main", str(root / "owner__pkg"), str(tree)], check=True)
    subprocess.run(["git", "apply", "-"], cwd=tree, input=patch.encode(), check=True)
    assert (tree / "pkg/new.py").read_bytes() == b"x = 1\n"
    assert (tree / "pkg/core.py").read_bytes() == GOLD["pkg/core.py"]
    assert prediction(task, patch, "tiny") == {
        "instance_id": "owner__pkg-1", "model_name_or_path": "tiny", "model_patch": patch
    }  # fmt: skip
    assert model_patch(task, Submission(files={})) == ""
