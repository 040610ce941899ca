"""What a checkpoint folder holds besides tensors, and whether it is whole. Needs no torch."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from sanderling.types import JsonValue

FORMAT = 1
HIDDEN = ".partial-"
"""Begins the name of a folder that is being written or removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """Where a run stands after a step."""

    step: int
    policy_version: int
    config_hash: str  # of the settings that a resumed run has to share
    data_position: JsonValue = None  # whatever the scheduler needs to neither lose nor repeat a task
    screening: JsonValue = None  # counts of `screening.watch.Watch`


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A checkpoint that can't be used, and why."""

    folder: Path
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """The newest usable checkpoint (None: there is none) and the newer ones that were passed over."""

    folder: Path | None
    skipped: tuple[Skipped, ...]


def latest(run: Path) -> Latest:
    """Find the newest checkpoint that is whole. Every one that is passed over is named with its reason."""
    skipped = []
    for folder in reversed(by_step(run / "checkpoints")):
        defect = find_defect(folder)
        if defect is None:
            return Latest(folder=folder, skipped=tuple(skipped))
        skipped.append(Skipped(folder=folder, reason=defect))
    return Latest(folder=None, skipped=tuple(skipped))


def find_defect(folder: Path) -> str | None:
    """Return why a checkpoint can't be used, or None when every file is there with the size and digest it was saved
    with."""
    try:
        state = json.loads((folder / "state.json").read_text("utf-8"))
        files, saved_format = state["files"], state["format"]
        RunState(**state["run"])
    except FileNotFoundError:
        return "no state.json: the checkpoint is incomplete"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"state.json is damaged: {error!r}"
    if saved_format != FORMAT:
        return f"its format is {saved_format}, this version reads {FORMAT}"
    for name, expected in files.items():
        file = folder / name
        if not file.is_file():
            return f"{name} is missing"
        if file.stat().st_size != expected["bytes"]:
            return f"{name} has {file.stat().st_size} bytes, it was saved with {expected['bytes']}"
        if digest(file) != expected["sha256"]:
            return f"{name} was changed after it was saved: its SHA-256 differs"
    return None


def state_of(folder: Path) -> RunState:
    """Return where the run stood; `find_defect` has found none."""
    return RunState(**json.loads((folder / "state.json").read_text("utf-8"))["run"])


def by_step(parent: Path) -> list[Path]:
    """Return the folders of checkpoints, oldest first."""
    found = [folder for folder in parent.iterdir() if folder.name.isdigit()] if parent.is_dir() else []
    return sorted(found, key=lambda folder: int(folder.name))


def digest(file: Path) -> str:
    """Return the SHA-256 of a file as 64 hex digits."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
