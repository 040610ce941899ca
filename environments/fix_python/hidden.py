"""What the verifier needs of a task: the right function, the visible calls and fresh hidden ones."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from fix_python.admission import example_arguments
from fix_python.tasks import FILE, FixPythonTasks
from sanderling.types import JsonValue, Task
from sanderling.verify.cases import Entry
from sanderling.verify.values import encode


class HiddenCalls:
    """Implements `verify.cases.CallSource` for fix_python."""

    def __init__(self, tasks: FixPythonTasks) -> None:
        self._tasks = tasks

    def entry(self, task: Task) -> Entry:
        return Entry(file=FILE, function=self._tasks.problem(task.id).name)

    def gold(self, task: Task) -> str:
        return self._tasks.problem(task.id).source

    def examples(self, task: Task) -> Sequence[JsonValue]:
        return example_arguments(self._tasks.problem(task.id))

    def draw(self, task: Task, rng: Random, count: int) -> Sequence[JsonValue]:
        return [encode(list(arguments)) for arguments in self._tasks.problem(task.id).draw(rng, count)]
