"""Honest fixes in many styles: what a grader must pay, however it is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sanderling.audit.attack import Scene


@dataclass(frozen=True, slots=True, kw_only=True)
class HonestFix:
    """One style of a right solution.

    `script` gets the scene and the files of the right solution that differ from the task's own, and returns shell commands
    that bring the workspace there, or None where the style doesn't apply to this task.
    """

    id: str
    style: str  # one line for people
    script: Callable[[Scene, Mapping[str, bytes]], Sequence[str] | None]
