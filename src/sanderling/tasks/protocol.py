"""Where work comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sanderling.types import Task


class TaskSet(Protocol):
    """Tasks by id, in named splits. The split of a task is a part of its id, so that it can't be mixed up later."""

    def splits(self) -> tuple[str, ...]:
        """Return the names of the splits, such as ("train", "held-out")."""
        ...

    def ids(self, split: str) -> Sequence[str]:
        """Return the ids of a split in a fixed order.

        Raises:
            TaskError: no such split.
        """
        ...

    def get(self, task_id: str) -> Task:
        """Return a task.

        Raises:
            TaskError: no such task.
        """
        ...
