"""Task folders: what was written reads back equal, and what is wrong with one is said."""

import shutil
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sanderling.errors import TaskError
from sanderling.tasks.folder import (
    Expected,
    Source,
    TaskFolder,
    TaskHeader,
    read_task_folder,
    write_task_folder,
)
from sanderling.tasks.folders import TaskFolders
from sanderling.tasks.patches import apply_patch, make_patch
from sanderling.types import Limits

BASE = {"pkg/calc.py": b"def add(a, b):\n    return a - b\n", "data/x.bin": bytes(range(256))}
GOLD = {**BASE, "pkg/calc.py": b"def add(a, b):\n    return a + b\n"}


def folder(name="calc/train/add-1"):
    return TaskFolder(
        header=TaskHeader(
            id=name,
            source=Source(name="calc", version="1.0"),
            editable=("pkg/*.py",),
            modules=("pkg",),
            visible_tests=("python3", "-c", "pass"),
            limits=Limits(command_s=3.0, memory_mb=128),
            metadata={"family": "operator", "line": "2"},
        ),
        instruction="`add` is wrong.\r\nFix it: äöü.\n",
        base=BASE,
        tests={"tests/test_calc.py": b"from calc import add\n\ndef test_add():\n    assert add(1, 2) == 3\n"},
        expected=Expected(
            fail_to_pass=("tests/test_calc.py::test_add",), recording={"sites": [1, {"float": "0.1"}], "text": "ü"}
        ),
        gold_patch=make_patch(BASE, GOLD),
    )


def test_a_folder_reads_back_equal(tmp_path):
    write_task_folder(tmp_path / "one", folder())
    assert read_task_folder(tmp_path / "one") == folder()
    assert read_task_folder(tmp_path / "one").gold() == GOLD


def test_the_task_holds_nothing_hidden(tmp_path):
    write_task_folder(tmp_path / "one", folder())
    task = TaskFolders(tmp_path).get("calc/train/add-1")
    assert task.base == BASE
    assert "test_calc" not in repr(task)
    assert task.metadata["family"] == "operator"
    assert task.limits.memory_mb == 128


def test_splits_are_the_second_part_of_the_id(tmp_path):
    for number, name in enumerate(("calc/held-out/a", "calc/train/b", "calc/train/c")):
        write_task_folder(tmp_path / f"{number}", folder(name))
    tasks = TaskFolders(tmp_path)
    assert tasks.splits() == ("train", "held-out")
    assert tasks.ids("train") == ("calc/train/b", "calc/train/c")
    with pytest.raises(TaskError, match="no split 'test'; it has train, held-out"):
        tasks.ids("test")
    with pytest.raises(TaskError, match="did you mean 'calc/train/b'"):
        tasks.get("calc/train/bb")


def test_two_folders_of_one_id_are_refused(tmp_path):
    for name in ("a", "b"):
        write_task_folder(tmp_path / name, folder())
    with pytest.raises(TaskError, match="the same id"):
        TaskFolders(tmp_path)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("task.toml", "schema_version = 2", "schema_version is 2; this version of Sanderling reads 1"),
        ("task.toml", "= 3", "is not TOML"),
        (
            "task.toml",
            'schema_version = 1\nid = "a/b"\neditable = ["x"]\nsource.name = "s"',
            "expected <code base>/<split>",
        ),
        (
            "task.toml",
            'schema_version = 1\nid = "a/b/c"\neditable = "x"\nsource.name = "s"',
            "expected a list of non-empty",
        ),
        ("task.toml", 'schema_version = 1\nid = "a/b/c"\neditable = ["x"]', "source.name is missing"),
        ("task.toml", "schema_version = 1\nidd = 2", "unknown key 'idd'"),
        (
            "task.toml",
            'schema_version = 1\nid = "a/b/c"\neditable = ["x"]\nsource.name = "s"\nlimits.command_s = "1"',
            "limits.command_s is '1'; expected float",
        ),
        (
            "task.toml",
            'schema_version = 1\nid = "a/b/c"\neditable = ["x"]\nsource.name = "s"\nmodules = ["../x"]',
            "expected directories inside the workspace",
        ),
        ("hidden/expected.json", "{}", "expected an object with schema_version 1"),
        ("hidden/expected.json", '{"schema_version": 1, "fail_to_pass": []}', "fail_to_pass is empty"),
        ("hidden/expected.json", '{"schema_version": 1, "fail_to_pass": ["x.py::t"]}', "isn't among the hidden tests"),
        (
            "hidden/expected.json",
            '{"schema_version": 1, "fail_to_pass": ["tests/test_calc.py::t", "tests/test_calc.py::t"]}',
            "name a test twice",
        ),
        ("hidden/gold.patch", "", "changes nothing"),
        ("hidden/gold.patch", "--- a/pkg/calc.py\n+++ b/pkg/calc.py\n@@ -1 +1 @@\n-x\n+y\n", "doesn't apply to"),
        ("base/tests/test_calc.py", folder().tests["tests/test_calc.py"].decode(), "where the agent reads it"),
    ],
)
def test_what_is_wrong_with_a_folder_is_said(tmp_path, file, text, message):
    write_task_folder(tmp_path / "one", folder())
    place = tmp_path / "one" / file
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    with pytest.raises(TaskError, match=message.replace("(", r"\(")):
        read_task_folder(tmp_path / "one")


def test_links_missing_parts_and_paths_outside_are_refused(tmp_path):
    write_task_folder(tmp_path / "one", folder())
    (tmp_path / "one" / "base" / "link").symlink_to("/etc/passwd")
    with pytest.raises(TaskError, match="link or a special file"):
        read_task_folder(tmp_path / "one")
    shutil.rmtree(tmp_path / "one" / "base")
    with pytest.raises(TaskError, match="missing or no directory"):
        read_task_folder(tmp_path / "one")
    with pytest.raises(TaskError, match="exists; remove it first"):
        write_task_folder(tmp_path / "one", folder())
    outside = replace(folder(), base={**BASE, "../x": b""})
    with pytest.raises(TaskError, match="isn't a relative path"):
        write_task_folder(tmp_path / "two", outside)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one"]  # nothing half-written is left


TEXTS = st.lists(
    st.sampled_from(["a\n", "b\n", "\n", "--- a/x\n", "+++ b/x\n", "@@ -1 +1 @@\n", "\x0c\n", "c\r\n"]), max_size=12
)


@settings(deadline=None, max_examples=30)
@given(
    st.dictionaries(st.sampled_from("xyz"), st.tuples(TEXTS, st.sampled_from(["", "end"]))),
    st.dictionaries(st.sampled_from("xyz"), st.tuples(TEXTS, st.sampled_from(["", "end"]))),
)
def test_a_patch_made_is_a_patch_applied(first, second):
    before, after = (
        {path: ("".join(lines) + end).encode() for path, (lines, end) in files.items()} for files in (first, second)
    )
    assert apply_patch(before, make_patch(before, after)) == after


def test_a_patch_of_other_tools_applies():
    patch = "diff --git a/pkg/calc.py b/pkg/calc.py\nindex 1..2 100644\n" + make_patch(BASE, GOLD)
    assert apply_patch(BASE, patch) == GOLD


def test_a_patch_does_not_leave_the_workspace():
    with pytest.raises(TaskError, match="inside the workspace"):
        apply_patch(BASE, "--- a/../x\n+++ b/../x\n@@ -1 +1 @@\n-x\n+y\n")
