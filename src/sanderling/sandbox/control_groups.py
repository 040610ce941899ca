"""Finding out where control groups for sandboxes can be made, and making the home of one backend there."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sanderling.sandbox.journal import Journal

_NEEDED = ("memory", "pids")
_JOIN = "import os, sys; [os.write(os.open(path, os.O_WRONLY), b'0') for path in sys.argv[1:]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlGroupHome:
    """Directories of one backend's groups; equal in version 2."""

    version: int
    memory: Path
    pids: Path

    @property
    def paths(self) -> tuple[Path, ...]:
        return (self.memory,) if self.version == 2 else (self.memory, self.pids)

    def remove(self, journal: Journal) -> None:
        """Remove the home; nothing runs in it any more."""
        for path in self.paths:
            for inner in [*(p for p in path.glob("*") if p.is_dir()), path]:
                with contextlib.suppress(OSError):
                    inner.rmdir()
            journal.record("remove", "cgroup", str(path))


def available() -> str | None:
    """Return a line about the control groups that a backend could use, None where there are none."""
    for version, memory, _ in _candidates("trial"):
        if os.access(memory.parent, os.W_OK):
            return f"version {version} at {memory.parent}"
    return None


def create_home(journal: Journal, name: str) -> ControlGroupHome | None:
    """Make a home that a process of ours can really join; None where this machine or user offers none."""
    for version, memory, pids in _candidates(name):
        home = ControlGroupHome(version=version, memory=memory, pids=pids)
        for path in home.paths:
            journal.record("create", "cgroup", str(path))
        if _make(home) and _can_join(home):
            return home
        home.remove(journal)
    return None


def _make(home: ControlGroupHome) -> bool:
    try:
        for path in home.paths:
            path.mkdir()
        if home.version == 2:
            (home.memory / "cgroup.subtree_control").write_text("+memory +pids")
    except OSError:
        return False
    return True


def _can_join(home: ControlGroupHome) -> bool:
    """Try with a process that ends at once: permissions on the way between groups can't be read off anywhere."""
    trials = [path / "trial" for path in home.paths]
    try:
        for trial in trials:
            trial.mkdir()
        procs = [str(trial / "cgroup.procs") for trial in trials]
        limit = "memory.max" if home.version == 2 else "memory.limit_in_bytes"
        (trials[0] / limit).write_text(str(1 << 30))
        done = subprocess.run([sys.executable, "-I", "-S", "-c", _JOIN, *procs], check=False, capture_output=True)
        return done.returncode == 0
    except OSError:
        return False
    finally:
        for trial in trials:
            with contextlib.suppress(OSError):
                trial.rmdir()


def _candidates(name: str) -> Iterator[tuple[int, Path, Path]]:
    own = _own_groups()
    mounts = _mounts()
    unified = mounts.get("")
    if unified is not None:
        group = unified / own.get("", "/").lstrip("/")
        for place in (group, *(parent for parent in group.parents if parent.is_relative_to(unified))):
            with contextlib.suppress(OSError):
                if set(_NEEDED) <= set((place / "cgroup.subtree_control").read_text().split()):
                    yield 2, place / name, place / name
    if all(controller in mounts for controller in _NEEDED):
        for inside in (own, {}):
            memory, pids = (mounts[c] / inside.get(c, "/").lstrip("/") for c in _NEEDED)
            if memory.is_dir() and pids.is_dir():
                yield 1, memory / name, pids / name


def _own_groups() -> dict[str, str]:
    """Return the path of this process's group by controller; "" stands for version 2."""
    groups: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            groups |= dict.fromkeys(controllers.split(","), path)
    return groups


def _mounts() -> dict[str, Path]:
    """Return the mount points of control groups by controller; "" stands for version 2."""
    found: dict[str, Path] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            left, _, right = line.partition(" - ")
            place, kind, options = left.split()[4], right.split()[0], right.split()[2]
            if kind == "cgroup2":
                found[""] = Path(place)
            elif kind == "cgroup":
                found |= {c: Path(place) for c in options.split(",") if c in _NEEDED}
    return {c: place for c, place in found.items() if os.access(place, os.R_OK)}
