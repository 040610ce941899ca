"""What a backend created on this machine, on disk before it exists, so that a later one can clear up after a crash.

Each backend has a directory of its own with an `owner.lock` that it holds with flock for as long as it lives, and a
`journal.jsonl`. Mounts and processes need no clearing: they belong to the launcher's namespaces and end with it. Containers
are found by their label.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import Any

_LOCK = "owner.lock"
_JOURNAL = "journal.jsonl"
_PREFIX = "backend-"


def default_state_dir() -> Path:
    return Path(tempfile.gettempdir()) / f"sanderling-{os.getuid()}"


class Journal:
    """The directory of one living backend below a shared state directory."""

    def __init__(self, state_dir: Path) -> None:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        for status in (state_dir.lstat(), state_dir.stat()):  # a link, too, may be somebody else's
            if status.st_uid != os.getuid():
                raise PermissionError(f"{state_dir} belongs to uid {status.st_uid}, not to us; name another state_dir")
        sweep(state_dir)
        self.path = state_dir / f"{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
        self.path.mkdir(mode=0o700)
        self._lock = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._file = (self.path / _JOURNAL).open("a", buffering=1)

    def record(self, event: str, kind: str, name: str) -> None:
        """Append that a thing is about to exist ("create") or is gone ("remove")."""
        self._file.write(json.dumps({"event": event, "kind": kind, "name": name}) + "\n")

    def leave(self) -> None:
        """Give the directory up as if we had crashed: what couldn't be removed is left to the next backend's sweep."""
        if not self._file.closed:
            self._file.close()
            os.close(self._lock)

    def close(self) -> None:
        """Remove the directory. May be called twice."""
        if not self._file.closed:
            self._file.close()
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)


def sweep(state_dir: Path) -> list[str]:
    """Remove what dead backends left below `state_dir` and return the names of their directories."""
    swept: list[str] = []
    for directory in sorted(state_dir.glob(f"{_PREFIX}*")):
        try:
            lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            lock = None
        try:
            if lock is not None:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock) if lock is not None else None
            continue
        if not (directory / _JOURNAL).exists() and _age_s(directory) < 60:  # being created at this moment
            os.close(lock) if lock is not None else None
            continue
        if _clear(directory):
            shutil.rmtree(directory, ignore_errors=True)
            swept.append(directory.name)
        if lock is not None:
            os.close(lock)
    return swept


def _clear(directory: Path) -> bool:
    """Remove what the journal of a dead backend holds; False where something has to be tried again another time."""
    done = True
    for left in leftovers(directory / _JOURNAL):
        if left["kind"] == "cgroup":
            _remove_cgroup(Path(left["name"]))
        elif left["kind"] == "engine":
            from sanderling.sandbox.container_engine import remove_leftovers

            done = remove_leftovers(left["name"], directory.name) and done
    return done


def leftovers(journal: Path) -> list[dict[str, Any]]:
    """Return the records of a journal that were created and never removed."""
    alive: dict[tuple[str, str], dict[str, Any]] = {}
    try:
        lines = journal.read_text(errors="replace").splitlines()
    except OSError:
        return []
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # torn by the crash
        key = (entry["kind"], entry["name"])
        if entry["event"] == "create":
            alive[key] = entry
        else:
            alive.pop(key, None)
    return list(alive.values())


def _age_s(directory: Path) -> float:
    import time

    try:
        return time.time() - directory.stat().st_mtime
    except OSError:
        return 0.0


def _remove_cgroup(path: Path) -> None:
    for inner in [*(p for p in path.glob("*") if p.is_dir()), path]:
        try:
            inner.rmdir()
        except OSError:
            continue
