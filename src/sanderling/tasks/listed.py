"""A task set from a list of tasks that were made beforehand."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from sanderling.errors import TaskError
from sanderling.types import Task


class TaskList:
    """Implements `tasks.protocol.TaskSet` over tasks in memory. The second part of an id is the split.

    Raises:
        TaskError: two tasks of one id, or an id without a split.

    Example::

        TaskList([Task(id="larger/train/1", ...), Task(id="larger/held-out/1", ...)])
    """

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._tasks: dict[str, Task] = {}
        self._splits: dict[str, list[str]] = {}
        for task in tasks:
            if task.id in self._tasks:
                raise TaskError(f"two tasks have the id {task.id!r}; ids must be unique")
            parts = task.id.split("/")
            if len(parts) < 3 or not all(parts):
                raise TaskError(f"task id {task.id!r} names no split; expected <environment>/<split>/<name>")
            self._tasks[task.id] = task
            self._splits.setdefault(parts[1], []).append(task.id)

    def splits(self) -> tuple[str, ...]:
        """Return the splits in the order in which their first tasks stand in the list."""
        return tuple(self._splits)

    def ids(self, split: str) -> Sequence[str]:
        """Return the ids of a split in the order of the list; see `TaskSet.ids`."""
        if split not in self._splits:
            raise TaskError(f"no split {split!r}; there are {', '.join(self._splits) or 'none'}")
        return tuple(self._splits[split])

    def get(self, task_id: str) -> Task:
        """Return a task; see `TaskSet.get`."""
        if task_id not in self._tasks:
            close = difflib.get_close_matches(task_id, self._tasks, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise TaskError(f"no task {task_id!r} among {len(self._tasks)}{hint}")
        return self._tasks[task_id]
