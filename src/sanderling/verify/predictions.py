"""Keeps what was handed in, beside the verdict: for a predictions file that other tools grade."""

from __future__ import annotations

from pathlib import Path

from sanderling.errors import TaskError
from sanderling.sandbox.protocol import SandboxBackend
from sanderling.tasks.formats.swebench import model_patch, prediction, write_lines
from sanderling.types import Graded, Submission, Task
from sanderling.verify.protocol import Verifier


class PredictionRecorder:
    """Implements `verify.protocol.Verifier` by another one, and keeps the last submission of each task as a patch.

    A submission that no patch can hold (a file that isn't text) is kept as an empty one.

    Args:
        verifier: judges.
        model: name of the policy, `model_name_or_path` of each line.
    """

    def __init__(self, verifier: Verifier, model: str) -> None:
        self._verifier = verifier
        self._model = model
        self._kept: dict[str, dict[str, str]] = {}

    async def grade(self, task: Task, submission: Submission, backend: SandboxBackend, seed: int) -> Graded:
        """Keep the submission and judge it; see `Verifier.grade`."""
        try:
            patch = model_patch(task, submission)
        except TaskError:
            patch = ""
        self._kept[task.id] = prediction(task, patch, self._model)
        return await self._verifier.grade(task, submission, backend, seed)

    async def control(self, task: Task, backend: SandboxBackend, seed: int) -> Graded:
        """Grade the right solution; see `Verifier.control`."""
        return await self._verifier.control(task, backend, seed)

    def write(self, path: Path) -> int:
        """Write one line per task in the order of first grading; return their number. TaskError: it can't be written."""
        return write_lines(path, self._kept.values())
