"""HumanEvalPack rows (HumanEvalFix): Python functions with a right and a buggy body and a hidden test.

The rows are MIT-licensed, (c) 2023 N. Muennighoff (bigcode/humanevalpack; arXiv 2308.07124), and built on HumanEval (MIT,
OpenAI). They are read from a file of yours and are no part of this package.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sanderling.errors import TaskError

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
