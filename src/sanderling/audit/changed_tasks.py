"""Tasks of an environment with something changed in each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sanderling.tasks.protocol import TaskSet
from sanderling.types import Task


class ChangedTasks:
    """Implements `tasks.protocol.TaskSet`: another's tasks, each with something changed."""

    def __init__(self, tasks: TaskSet, change: Callable[[Task], Task]) -> None:
        self._tasks = tasks
        self._change = change

    def splits(self) -> tuple[str, ...]:
        return self._tasks.splits()

    def ids(self, split: str) -> Sequence[str]:
        return self._tasks.ids(split)

    def get(self, task_id: str) -> Task:
        """Return the changed task; its id stays."""
        return self._change(self._tasks.get(task_id))
