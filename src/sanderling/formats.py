"""Environments over tasks of other projects, for the setting `environment`; each takes the place of its files.

    environment = "sanderling.formats:humanevalpack"
    environment_settings = { path = "humanevalpack_python.jsonl" }

See docs/formats.md for what is read and what is refused.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from sanderling.environment import Environment
from sanderling.errors import TaskError
from sanderling.harness import example_check
from sanderling.harness.line_edit import AnswerToChange, LineEditHarness
from sanderling.sandbox.protocol import PYTHON, Kept
from sanderling.tasks.formats.harbor_tasks import HarborTasks
from sanderling.tasks.formats.humanevalpack import FILE, HumanEvalPackTasks, read_rows
from sanderling.types import Task
from sanderling.verify.cases import Entry
from sanderling.verify.harbor import HarborVerifier, provided
from sanderling.verify.replay import ReplayVerifier


class RowTests:
    """Implements `verify.replay.ReplaySource` over HumanEvalPack rows."""

    def __init__(self, tasks: HumanEvalPackTasks) -> None:
        self._tasks = tasks

    def entry(self, task: Task) -> Entry:
        return Entry(file=FILE, function=self._tasks.row(task.id).entry_point)

    def gold(self, task: Task) -> str:
        return self._tasks.row(task.id).gold

    def test(self, task: Task) -> str:
        return self._tasks.row(task.id).test


def humanevalpack(path: str, held_out: float = 0.3, answer: str = "tested") -> Environment:
    """Return the environment of a file of HumanEvalPack rows, graded by replay of their hidden tests.

    Args:
        path: the file, JSON Lines.
        held_out: share of the rows in the split "held-out".
        answer: what a change of the file is answered with, a value of `AnswerToChange`.

    Raises:
        TaskError: the file is missing or holds something else, or there is no such answer.
    """
    if answer not in list(AnswerToChange):
        raise TaskError(f"answer is {answer!r}; expected {', '.join(AnswerToChange)}")
    tasks = HumanEvalPackTasks(read_rows(Path(path)), held_out)
    visible_tests = (*PYTHON, "/tools/example.py")
    return Environment(
        name="humanevalpack",
        version="1",
        tasks=tasks,
        harness=LineEditHarness(file=FILE, test_argv=visible_tests, answer=AnswerToChange(answer)),
        verifier=ReplayVerifier(RowTests(tasks)),
        tools={"example.py": Path(example_check.__file__).read_bytes()},
        test_argv=visible_tests,
        kept=Kept.INTERPRETER,
    )


def harbor(path: str, split: str = "test", file: str = "", test: str = "") -> Environment:
    """Return the environment of a directory of Harbor task folders, edited line by line and graded by their own tests.

    Args:
        path: one folder, or a directory of them.
        split: split of folders that don't name one.
        file: the file that the editor opens first; empty: the one that every task lets change.
        test: command of the visible tests, as in a shell; empty: the file is compiled, nothing more.

    Raises:
        TaskError: no folder is portable, or the tasks have no such file.
    """
    tasks = HarborTasks(Path(path), split)
    every = [tasks.get(task_id) for name in tasks.splits() for task_id in tasks.ids(name)]
    first = file or _common_file(every)
    lacking = [task.id for task in every if first not in task.base]
    if lacking:
        raise TaskError(f"{lacking[0]} has no file {first!r}; name one with the setting `file` that every task has")
    argv = tuple(shlex.split(test)) or ("python3", "-I", "-S", "-m", "py_compile", first)
    return Environment(
        name="harbor",
        version="1",
        tasks=tasks,
        harness=LineEditHarness(file=first, test_argv=argv, answer=AnswerToChange.ACKNOWLEDGED),
        verifier=HarborVerifier(tasks),
        test_argv=argv if test else (),
        tools=harbor_tools(tasks),
    )


def harbor_tools(tasks: HarborTasks) -> dict[str, bytes]:
    """Return what sandboxes of these tasks hold at /tools in place of installed packages."""
    ids = [task_id for split in tasks.splits() for task_id in tasks.ids(split)]
    return dict(provided(sorted({name for task_id in ids for name in tasks.harbor(task_id).packages})))


def _common_file(tasks: list[Task]) -> str:
    """Return the one plain file that all tasks name as editable."""
    common = set.intersection(*({path for path in task.editable if path in task.base} for task in tasks))
    if len(common) != 1:
        raise TaskError(
            f"the tasks share {len(common)} editable files ({', '.join(sorted(common)[:3])}), so it isn't clear which one the "
            "editor opens first; name it with the setting `file`"
        )
    return common.pop()
