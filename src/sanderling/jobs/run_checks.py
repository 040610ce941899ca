"""Check a run: its folder, and what its killed processes left on this machine."""

from __future__ import annotations

from pathlib import Path

from sanderling.sandbox.orphans import find_orphans
from sanderling.store import run_check
from sanderling.store.reader import RunReader
from sanderling.store.run_check import Check


def check_run(path: Path) -> list[Check]:
    """Return every check of a run.

    Raises:
        RunFolderError: there is no run at `path`.
    """
    return [*run_check.check_run(path), _orphans(RunReader(path))]


def _orphans(reader: RunReader) -> Check:
    events = reader.events()
    owners = {int(event["pid"]) for event in events if "pid" in event}
    state_dirs = {Path(event["state_dir"]) for event in events if "state_dir" in event}
    found = find_orphans(sorted(state_dirs), owners)
    return Check(name="orphans", problems=tuple(str(orphan) for orphan in found))
