"""What `ObservationVerifier` must know of a task: where to call in, what is right, and which calls to make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from sanderling.types import JsonValue, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The function that is called."""

    file: str  # of the workspace, such as "solution.py"; loaded as a module of its own
    function: str


class CallSource(Protocol):
    """Gives the calls on which a submission is compared with the right function. Arguments are encoded (see `values`)."""

    def entry(self, task: Task) -> Entry: ...

    def gold(self, task: Task) -> str:
        """Return the source of `entry.file` that is right. It runs in our own process: it must be ours."""
        ...

    def examples(self, task: Task) -> Sequence[JsonValue]:
        """Return the argument lists of the visible calls, which are checked as well."""
        ...

    def draw(self, task: Task, rng: Random, count: int) -> Sequence[JsonValue]:
        """Return the argument lists of `count` hidden calls, a function of `rng` only."""
        ...
