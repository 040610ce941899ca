"""From a repository to task folders."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from sanderling.errors import ConfigError, TaskError
from sanderling.sandbox.protocol import Command, SandboxSpec
from sanderling.synthesis.layout import find_layout
from sanderling.synthesis.leaks import check_installed
from sanderling.synthesis.making import MakeSettings, make_tasks
from sanderling.tasks.folder import read_task_folder, read_tree
from sanderling.tasks.folders import TaskFolders
from sanderling.types import Submission
from sanderling.verify.suites.verifier import SuiteVerifier

SETTINGS = MakeSettings(n=4, seed=1, workers=2, runs=3)


class Interrupted(Exception):
    pass


def quiet(what, progress) -> None:
    pass


@pytest.mark.slow
def test_tasks_are_made_and_a_killed_run_gives_the_same(bubblewrap, shelf, tmp_path: Path) -> None:
    def interrupting(what, progress):
        if progress is not None and progress.admitted == 2:
            raise Interrupted

    async def both(backend):
        whole = await make_tasks(shelf, tmp_path / "whole", SETTINGS, backend, quiet)
        with pytest.raises(Interrupted):
            await make_tasks(shelf, tmp_path / "cut", replace(SETTINGS, workers=1), backend, interrupting)
        rest = await make_tasks(shelf, tmp_path / "cut", SETTINGS, backend, quiet)
        return whole, rest

    whole, rest = bubblewrap(both)
    assert whole.progress.admitted == rest.progress.admitted == 4
    assert rest.resumed > 0
    assert rest.progress.outcomes == whole.progress.outcomes
    tasks = TaskFolders(tmp_path / "whole")
    assert sum(len(tasks.ids(split)) for split in tasks.splits()) == 4
    for split in tasks.splits():
        first, second = (read_tree(tmp_path / name / split) for name in ("whole", "cut"))
        assert first.keys() == second.keys()
        for name in first:
            assert untimed(first[name]) == untimed(second[name]), name
    check_tasks(tasks, shelf)
    check_journal(tmp_path / "whole", shelf)


def untimed(content: bytes) -> bytes:
    """A file without the seconds that the right solution took: they are measured for each directory."""
    return re.sub(rb'"gold_s": [0-9.]+', b"", content)


def check_tasks(tasks: TaskFolders, shelf) -> None:
    units: dict[str, set[str]] = {}
    for split in tasks.splits():
        for task_id in tasks.ids(split):
            folder = tasks.folder(task_id)
            units.setdefault(folder.header.metadata["function"].partition(".")[0], set()).add(split)
            assert folder.gold()["src/shelf/__init__.py"] == shelf.files["src/shelf/__init__.py"]
            assert folder.base["src/shelf/__init__.py"] != shelf.files["src/shelf/__init__.py"]
            assert folder.header.visible_tests[-1] == "--root=src"
            visible = folder.base["tests/test_shelf.py"].decode()
            names = {name.partition("[")[0].rpartition("::")[2] for name in folder.expected.fail_to_pass}
            assert any(f"def {name}(" not in visible for name in names)
            assert not any("flaky" in name or "fails" in name for name in folder.expected.pass_to_pass)
            gold = [line[1:].strip() for line in folder.gold_patch.splitlines() if line.startswith("+    ")]
            assert not any(line in folder.instruction for line in gold if len(line) > 12)
            assert not any("pycache" in path or path.endswith(".pyc") for path in folder.base)
    assert all(len(splits) == 1 for splits in units.values()), units


def check_journal(out: Path, shelf) -> None:
    lines = [json.loads(line) for line in (out / "journal.jsonl").read_text().splitlines()]
    assert lines[0]["code"] == "shelf 1.0"
    assert [line["number"] for line in lines[1:]] == list(range(len(lines) - 1))
    assert json.loads((out / "census.json").read_text())["aside"]["tests/test_shelf.py::test_flaky"] == "flaky"
    with pytest.raises(ConfigError, match="seed"):
        asyncio.run(make_tasks(shelf, out, replace(SETTINGS, seed=2), None, quiet))


def test_a_directory_of_something_else_is_left_alone(shelf, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ConfigError, match="no journal"):
        asyncio.run(make_tasks(shelf, tmp_path, SETTINGS, None, quiet))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.slow
def test_a_copy_on_the_sandbox_disk_is_refused(bubblewrap, shelf) -> None:
    """An installed release of the very package that tasks are made of, or a wheel of it, shows what is right."""
    files = {**shelf.files, "src/shelf/core.py": b"x = 1\n"}
    layout = find_layout(files)
    plants = {
        "/home/agent/lib/shelf/core.py": "mkdir -p /home/agent/lib/shelf && touch /home/agent/lib/shelf/core.py",
        "core.cpython-311.pyc": "mkdir -p /tmp/shelf/__pycache__ && touch /tmp/shelf/__pycache__/core.cpython-311.pyc",
        "shelf-2.0-py3-none-any.whl": "touch /tmp/shelf-2.0-py3-none-any.whl",
    }

    async def look(backend):
        refused = {}
        for name, command in plants.items():
            sandbox = await backend.create(SandboxSpec(files=files))
            await check_installed(sandbox, "shelf", layout)  # its own source in the workspace is none
            assert (await sandbox.exec(Command(argv=("sh", "-c", command)))).exit_code == 0
            with pytest.raises(TaskError) as error:
                await check_installed(sandbox, "shelf", layout)
            refused[name] = str(error.value)
            await sandbox.destroy()
        return refused

    assert all(name in said for name, said in bubblewrap(look).items())


@pytest.mark.slow
def test_a_cancelled_run_stops_at_once(bubblewrap, shelf, tmp_path: Path) -> None:
    """Even where an attempt has just ended when the cancellation comes, it isn't lost."""
    told: list[int] = []

    async def cancel(backend):
        loop = asyncio.get_running_loop()

        def tell(what, progress):
            if progress is not None:
                told.append(progress.tried)
                loop.call_soon(making.cancel)

        making = asyncio.create_task(make_tasks(shelf, tmp_path / "out", SETTINGS, backend, tell))
        with pytest.raises(asyncio.CancelledError):
            await making

    bubblewrap(cancel)
    assert told[-1] <= 2
    assert len((tmp_path / "out" / "journal.jsonl").read_text().splitlines()) == 1 + len(told)


def test_settings_out_of_range_are_refused() -> None:
    for change in ({"n": 0}, {"workers": 0}, {"runs": 1}, {"hide_share": 0.0}, {"hide_share": 1.5}):
        with pytest.raises(ConfigError):
            replace(SETTINGS, **change)


@pytest.mark.slow
def test_the_verifier_pays_the_fix_and_nothing_else(bubblewrap, shelf, tmp_path: Path) -> None:
    async def make(backend):
        return await make_tasks(shelf, tmp_path / "out", replace(SETTINGS, n=1), backend, quiet)

    assert bubblewrap(make).progress.admitted == 1
    place = next((tmp_path / "out").glob("*/*/task.toml")).parent
    folder = read_task_folder(place)
    assert folder.expected.recording
    verifier = SuiteVerifier(TaskFolders(tmp_path / "out"))

    async def grade(backend):
        task = folder.task()
        source = "src/shelf/__init__.py"
        right = Submission(files={source: shelf.files[source]})
        return [
            (await verifier.grade(task, right, backend, 0)).reward,
            (await verifier.grade(task, Submission(files={}), backend, 0)).reward,
        ]

    assert bubblewrap(grade) == [1.0, 0.0]
