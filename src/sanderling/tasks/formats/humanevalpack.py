"""HumanEvalPack rows (HumanEvalFix): Python functions with a right and a buggy body and a hidden test.

The rows are MIT-licensed, (c) 2023 N. Muennighoff (bigcode/humanevalpack; arXiv 2308.07124), and built on HumanEval (MIT,
OpenAI). They are read from a file of yours and are no part of this package.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sanderling.errors import TaskError
from sanderling.types import Limits, Task

FILE, EXAMPLE = "solution.py", "example_test.py"
LIMITS = Limits(memory_mb=512, disk_mb=16, processes=16, output_bytes=8192, max_context_tokens=2048)
FIELDS = ("task_id", "declaration", "canonical_solution", "buggy_solution", "test", "example_test", "entry_point")


class HumanEvalPackRow(BaseModel):
    """One row; fields that are not named here are kept but not used."""

    model_config = ConfigDict(extra="allow", frozen=True)

    task_id: str  # such as "Python/0"
    prompt: str = ""
    declaration: str  # imports, helpers and the signature
    canonical_solution: str  # right body
    buggy_solution: str  # body with one bug
    test: str  # defines check(f) and calls it
    example_test: str  # the same with the examples of the docstring
    entry_point: str = Field(min_length=1)
    docstring: str = ""
    bug_type: str = ""
    failure_symptoms: str = ""

    @property
    def name(self) -> str:
        return f"{self.task_id.replace('/', '-').lower()}-{self.entry_point}"

    def source(self, body: str) -> str:
        """Return the module with a body below the signature and its docstring."""
        return f"{(self.prompt or self.declaration).strip()}\n{body.rstrip()}\n"

    @property
    def gold(self) -> str:
        return self.source(self.canonical_solution)

    @property
    def buggy(self) -> str:
        return self.source(self.buggy_solution)


def read_rows(path: Path) -> list[HumanEvalPackRow]:
    """Read a JSON Lines file of rows.

    Raises:
        TaskError: it can't be read, a line is no row, two rows have one id, or a body doesn't compile; names the line.
    """
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"{path} can't be read: {error}; expected HumanEvalPack rows as JSON Lines") from error
    rows: dict[str, HumanEvalPackRow] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            row = _row(line, f"line {number} of {path}")
            if row.task_id in rows:
                raise TaskError(f"line {number} of {path}: a second row {row.task_id!r}")
            rows[row.task_id] = row
    if not rows:
        raise TaskError(f"{path} holds no row")
    return list(rows.values())


def _row(line: str, where: str) -> HumanEvalPackRow:
    try:
        data: Any = json.loads(line)
        row = HumanEvalPackRow.model_validate(data)
    except ValidationError as error:
        detail = error.errors()[0]
        field = ".".join(map(str, detail["loc"])) or "the row"
        raise TaskError(f"{where}: {field}: {detail['msg']}; a row has {', '.join(FIELDS)}") from None
    except ValueError as error:
        raise TaskError(f"{where} is no JSON: {error}") from error
    for kind, source in (("canonical", row.gold), ("buggy", row.buggy), ("test", row.test)):
        try:
            ast.parse(source)
        except (SyntaxError, ValueError) as error:
            raise TaskError(f"{where}: the {kind} source of {row.task_id} is no Python: {error}") from error
    return row


class HumanEvalPackTasks:
    """Implements `tasks.protocol.TaskSet` over rows: fix the bug in a function whose docstring says what is right.

    The workspace holds the buggy module and the docstring's examples as a visible test. A row's split follows from a digest of
    its id, so that nobody chose it and no other row changes it.

    Args:
        rows: from `read_rows`.
        held_out: share of rows, about, in the split "held-out"; the others are "train".
    """

    def __init__(self, rows: Iterable[HumanEvalPackRow], held_out: float = 0.3) -> None:
        if not 0 <= held_out <= 1:
            raise TaskError(f"held_out is {held_out}; expected a share between 0 and 1")
        self._rows: dict[str, HumanEvalPackRow] = {}
        for row in rows:
            split = "held-out" if _fraction(row.task_id) < held_out else "train"
            self._rows[f"humanevalpack/{split}/{row.name}"] = row

    def splits(self) -> tuple[str, ...]:
        """Return the splits that have a row, "train" first."""
        found = {task_id.split("/")[1] for task_id in self._rows}
        return tuple(name for name in ("train", "held-out") if name in found)

    def ids(self, split: str) -> Sequence[str]:
        """Return the ids of a split in the order of the file; see `TaskSet.ids`."""
        if split not in self.splits():
            raise TaskError(f"these rows have no split {split!r}; they have {', '.join(self.splits())}")
        return tuple(task_id for task_id in self._rows if task_id.split("/")[1] == split)

    def get(self, task_id: str) -> Task:
        """Return a task; see `TaskSet.get`."""
        row = self.row(task_id)
        return Task(
            id=task_id,
            prompt=f"Fix the bug in {row.entry_point}.",
            base={FILE: row.buggy.encode(), EXAMPLE: row.example_test.strip().encode() + b"\n"},
            editable=(FILE,),
            limits=LIMITS,
            metadata={
                "split": task_id.split("/")[1],
                "family": row.bug_type or "unknown",
                "symptoms": row.failure_symptoms or "unknown",
                "function": row.entry_point,
                "source": f"HumanEvalPack {row.task_id}",
                "licence": "MIT, (c) 2023 Muennighoff; HumanEval: MIT, OpenAI",
            },
        )

    def row(self, task_id: str) -> HumanEvalPackRow:
        """Return the row behind a task: for the verifier, never for the agent.

        Raises:
            TaskError: no such task.
        """
        if task_id not in self._rows:
            close = difflib.get_close_matches(task_id, self._rows, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise TaskError(f"no task {task_id!r} among {len(self._rows)}{hint}")
        return self._rows[task_id]


def _fraction(text: str) -> float:
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 16**8
