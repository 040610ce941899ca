"""What was done so far, in the order of candidates: a run that was killed goes on where it stopped, with the same tasks."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sanderling.errors import ConfigError
from sanderling.synthesis.census import Aside, Census

ADMITTED = "admitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What became of one candidate."""

    number: int
    key: str
    outcome: str  # ADMITTED or the name of a rejection
    family: str
    function: str  # "path:name"
    task: str = ""  # id
    seconds: float = 0.0  # wall, from the start of its trial

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


class MakingJournal:
    """DIR/journal.jsonl: one line of settings, then one line per candidate, each on disk before the next is looked at.

    Raises:
        ConfigError: DIR holds the journal of another code base, seed or setting, or files of something else.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self._file = folder / "journal.jsonl"
        self.entries: list[Entry] = []
        if self._file.exists():
            self._read(dict(settings))
        else:
            if folder.exists() and any(folder.iterdir()):
                raise ConfigError(f"{folder} holds files, but no journal of ours; give a new or empty directory")
            folder.mkdir(parents=True, exist_ok=True)
            self._append(dict(settings))

    def _read(self, settings: dict[str, Any]) -> None:
        lines = self._file.read_bytes().split(b"\n")
        whole = lines[:-1]  # what follows the last line end was cut off in the middle
        if lines[-1]:
            os.truncate(self._file, sum(len(line) + 1 for line in whole))
        if not whole:
            self._append(settings)
            return
        try:
            stored, *entries = [json.loads(line) for line in whole]
            self.entries = [Entry(**entry) for entry in entries]
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{self._file} is damaged: {error}; give a new directory") from error
        if changed := sorted(key for key in stored.keys() | settings.keys() if stored.get(key) != settings.get(key)):
            key = changed[0]
            raise ConfigError(
                f"{self._file} was begun with {key} = {stored.get(key)!r}, now it is {settings.get(key)!r}; "
                "give a new directory, or the settings that it was begun with"
            )

    def append(self, entry: Entry) -> None:
        """Add what became of the next candidate."""
        self._append(entry.as_json())
        self.entries.append(entry)

    def _append(self, data: Mapping[str, Any]) -> None:
        with self._file.open("ab") as file:
            file.write(json.dumps(data).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def write_census(file: Path, census: Census) -> None:
    """Write a census as JSON, whole or not at all."""
    number = {name: place for place, name in enumerate(census.stable)}
    data = {
        "stable": list(census.stable),
        "aside": {name: reason.value for name, reason in census.aside.items()},
        "broken": list(census.broken),
        "suite_s": census.suite_s,
        "longest_cpu_s": census.longest_cpu_s,
        "reach": {
            path: {str(line): sorted(number[name] for name in tests) for line, tests in sorted(lines.items())}
            for path, lines in census.reach.items()
        },
    }
    draft = file.with_suffix(".draft")
    draft.write_text(json.dumps(data, indent=None), "utf-8")
    draft.rename(file)


def read_census(file: Path) -> Census:
    """Read what `write_census` wrote."""
    data = json.loads(file.read_text("utf-8"))
    stable = tuple(data["stable"])
    reach = {
        path: {int(line): frozenset(stable[i] for i in tests) for line, tests in lines.items()}
        for path, lines in data["reach"].items()
    }
    return Census(
        stable=stable,
        aside={name: Aside(reason) for name, reason in data["aside"].items()},
        broken=tuple(data["broken"]),
        reach=reach,
        suite_s=data["suite_s"],
        longest_cpu_s=data["longest_cpu_s"],
    )
