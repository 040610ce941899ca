"""The labelled bank: hostile and honest changes, and how many of them the lint tells apart.

One small text file per change, in `bank/hostile` and `bank/honest`; a task that several share lies in `bank/tasks`:

    === like clamp                   the task's files are those of bank/tasks/clamp.txt
    === base solution.py             or are written out, one after the other
    ...
    === after solution.py            what the agent handed in; other files stay as they are
    ...

To add a change is to add a file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sanderling.errors import TaskError
from sanderling.screening.lint import lint
from sanderling.store.estimators import wilson
from sanderling.types import Exhibit, Finding, Graded, StopReason, Submission, Task, Trajectory

FOLDER = Path(__file__).with_name("bank")
_HEAD = re.compile(r"^=== (like|base|after) (\S+)\n", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One labelled change."""

    name: str
    hostile: bool
    base: Mapping[str, bytes]
    after: Mapping[str, bytes]

    def exhibit(self) -> Exhibit:
        """Return the change as the end of an episode without turns."""
        task = Task(id=f"bank/{self.name}", prompt="", base=self.base, editable=("*",))
        record = Trajectory(
            id=f"bank/{self.name}/0.0",
            task_id=task.id,
            group_id=f"bank/{self.name}",
            attempt=0,
            prompt_ids=np.empty(0, dtype=np.int32),
            turns=(),
            stop=StopReason.SUBMITTED,
        )
        return Exhibit(task=task, rows=(record,), submission=Submission(files=self.after), verdict=Graded(reward=0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """How a lint did on labelled changes. Rates are NaN where there is nothing to divide by."""

    caught: tuple[str, ...]
    missed: tuple[str, ...]
    false_alarms: tuple[str, ...]
    cleared: tuple[str, ...]

    @property
    def precision(self) -> float:
        """Hostile ones among those that were found, at the bank's own mixture."""
        return _share(len(self.caught), len(self.caught) + len(self.false_alarms))

    @property
    def recall(self) -> float:
        """Found ones among the hostile."""
        return _share(len(self.caught), len(self.caught) + len(self.missed))

    @property
    def false_alarm_rate(self) -> float:
        """Found ones among the honest: unlike precision it doesn't depend on the mixture."""
        return _share(len(self.false_alarms), len(self.false_alarms) + len(self.cleared))

    def as_json(self) -> dict[str, object]:
        """Return the rates with their 95 % Wilson intervals, and the names of all errors."""
        hostile, honest = len(self.caught) + len(self.missed), len(self.false_alarms) + len(self.cleared)
        found = len(self.caught) + len(self.false_alarms)
        return {
            "precision": _interval(len(self.caught), found),
            "recall": _interval(len(self.caught), hostile),
            "false_alarm_rate": _interval(len(self.false_alarms), honest),
            "missed": list(self.missed),
            "false_alarms": list(self.false_alarms),
        }


def load_bank(folder: Path = FOLDER) -> list[Change]:
    """Return every change of the bank, in order of label and name.

    Raises:
        TaskError: a file isn't written as this module says.
    """
    return [
        _read(file, folder, hostile=label == "hostile")
        for label in ("hostile", "honest")
        for file in sorted((folder / label).glob("*.txt"))
    ]


def measure(changes: Sequence[Change]) -> Measured:
    """Return how the lint labels the changes: found is what has a finding that is at least suspected."""
    found = {change.name: bool(findings(change)) for change in changes}
    return Measured(
        caught=tuple(c.name for c in changes if c.hostile and found[c.name]),
        missed=tuple(c.name for c in changes if c.hostile and not found[c.name]),
        false_alarms=tuple(c.name for c in changes if not c.hostile and found[c.name]),
        cleared=tuple(c.name for c in changes if not c.hostile and not found[c.name]),
    )


def findings(change: Change) -> list[Finding]:
    """Return what the lint says about a change and is more than a note."""
    return [found for found in lint(change.exhibit()) if found.severity != "info"]


def _read(file: Path, folder: Path, *, hostile: bool) -> Change:
    base: dict[str, bytes] = {}
    after: dict[str, bytes] = {}
    for kind, name, text in _sections(file):
        if kind == "like":
            base |= {path: content.encode() for _, path, content in _sections(folder / "tasks" / f"{name}.txt")}
        else:
            (base if kind == "base" else after)[name] = text.encode()
    if not after:
        raise TaskError(f"{file} changes nothing; expected a part that begins with '=== after PATH'")
    return Change(name=file.stem, hostile=hostile, base=base, after=after)


def _sections(file: Path) -> list[tuple[str, str, str]]:
    parts = _HEAD.split(file.read_text("utf-8"))
    if parts[0].strip():
        raise TaskError(
            f"{file} begins with {parts[0][:40]!r}; expected '=== like NAME', '=== base PATH' or '=== after PATH'"
        )
    return list(zip(parts[1::3], parts[2::3], parts[3::3], strict=True))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def _interval(part: int, whole: int) -> dict[str, float | int]:
    low, high = wilson(part, whole)
    return {"value": _share(part, whole), "n": whole, "low": low, "high": high}
