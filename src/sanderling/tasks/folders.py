"""A task set from a directory of task folders."""

from __future__ import annotations

import difflib
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from sanderling.errors import TaskError
from sanderling.tasks.folder import TaskFolder, TaskHeader, read_header, read_task_folder
from sanderling.types import Task

_IN_MEMORY = 64  # folders kept with their files: a repository's base is about a megabyte


class TaskFolders:
    """Implements `tasks.protocol.TaskSet` over every folder below `root` that holds a task.toml.

    The second part of an id is the split, as everywhere. Headers are read at once, files when a task is asked for.

    Raises:
        TaskError: no task there, a malformed header, or two folders of one id.

    Example::

        TaskFolders(Path("tasks/toolz")).ids("train")
    """

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        self._places: dict[str, Path] = {}
        self._headers: dict[str, TaskHeader] = {}
        self._recent: OrderedDict[str, TaskFolder] = OrderedDict()
        for place in find_task_folders(self.root):
            header = read_header(place)
            if header.id in self._places:
                raise TaskError(
                    f"{place} and {self._places[header.id]} have the same id {header.id!r}; ids must be unique"
                )
            self._places[header.id], self._headers[header.id] = place, header

    def splits(self) -> tuple[str, ...]:
        """Return the splits, "train" first and the others by name."""
        return tuple(
            sorted({header.split for header in self._headers.values()}, key=lambda name: (name != "train", name))
        )

    def ids(self, split: str) -> Sequence[str]:
        """Return the ids of a split in the order of their folders' names; see `TaskSet.ids`."""
        if split not in self.splits():
            raise TaskError(f"{self.root} has no split {split!r}; it has {', '.join(self.splits())}")
        return tuple(task_id for task_id, header in self._headers.items() if header.split == split)

    def get(self, task_id: str) -> Task:
        """Return a task without anything hidden; see `TaskSet.get`."""
        return self.folder(task_id).task()

    def folder(self, task_id: str) -> TaskFolder:
        """Return a task with its hidden part: for the verifier, never for the agent.

        Raises:
            TaskError: no such task, or its folder is malformed.
        """
        if task_id not in self._places:
            close = difflib.get_close_matches(task_id, self._places, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise TaskError(f"no task {task_id!r} among {len(self._places)} below {self.root}{hint}")
        if task_id not in self._recent:
            self._recent[task_id] = read_task_folder(self._places[task_id])
        self._recent.move_to_end(task_id)
        while len(self._recent) > _IN_MEMORY:
            self._recent.popitem(last=False)
        return self._recent[task_id]


def find_task_folders(root: Path) -> list[Path]:
    """Return the task folders below `root`, or `root` itself if it is one, sorted by name.

    Raises:
        TaskError: there is none.
    """
    if (root / "task.toml").is_file():
        return [root]
    if not root.is_dir():
        raise TaskError(f"no directory {root}; expected one that holds task folders")
    found = [file.parent for file in root.glob("*/task.toml")] or [file.parent for file in root.glob("*/*/task.toml")]
    shown = sorted(place for place in found if not place.name.startswith("."))
    if not shown:
        raise TaskError(f"no task folder (with a task.toml) below {root}")
    return shown
