"""The letter environment with other limits for each split: no turn to answer while training, too much room when measured."""

from __future__ import annotations

from dataclasses import replace

from sanderling.environment import Environment
from sanderling.testing.letters import LetterTasks, letter_environment
from sanderling.types import Task


class HurriedTasks(LetterTasks):
    def get(self, task_id: str) -> Task:
        task = super().get(task_id)
        changes = {"max_turns": 1} if "/train/" in task_id else {"max_context_tokens": 100_000}
        return replace(task, limits=replace(task.limits, **changes))


def environment() -> Environment:
    return replace(letter_environment(), tasks=HurriedTasks())
