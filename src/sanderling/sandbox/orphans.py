"""What killed processes left on this machine: directories of backends, control groups, mounts and processes in them.

Everything a backend makes carries the name of its directory, `backend-<pid>-<8 hex digits>`: paths of mounts and of open
files, and control groups. So whatever outlived its owner is found by that name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sanderling.sandbox.journal import leftovers

_NAME = re.compile(r"backend-(\d+)-[0-9a-f]{8}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """One thing that outlived the process it belonged to."""

    kind: Literal["folder", "control group", "mount", "process"]
    name: str  # path or process id
    owner: int  # process id of the owner, which is gone

    def __str__(self) -> str:
        return f"{self.kind} {self.name}, of process {self.owner}, which is gone"


def find_orphans(state_dirs: Iterable[Path], owners: Iterable[int]) -> list[Orphan]:
    """Return what processes that are gone left behind.

    Args:
        state_dirs: where their backends kept their directories.
        owners: process ids of controllers; those that live are left out.
    """
    dead = {owner for owner in owners if not Path(f"/proc/{owner}").exists()}
    found = [orphan for state_dir in state_dirs for orphan in _folders(state_dir, dead)]
    return [*found, *_mounts(dead), *_processes(dead)] if dead else []


def _folders(state_dir: Path, dead: set[int]) -> Iterator[Orphan]:
    for directory in sorted(state_dir.glob("*")):
        for owner in _owners(directory.name) & dead:
            yield Orphan(kind="folder", name=str(directory), owner=owner)
            for left in leftovers(directory / "journal.jsonl"):
                if left["kind"] == "cgroup" and Path(left["name"]).exists():
                    yield Orphan(kind="control group", name=left["name"], owner=owner)


def _mounts(dead: set[int]) -> Iterator[Orphan]:
    for line in _text(Path("/proc/self/mountinfo")).splitlines():
        for owner in _owners(line) & dead:
            yield Orphan(kind="mount", name=line.split(" ")[4], owner=owner)


def _processes(dead: set[int]) -> Iterator[Orphan]:
    ours = _text(Path("/proc/self/mountinfo"))
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        mounts = _text(process / "mountinfo")
        said = [_text(process / "cgroup"), _text(process / "environ"), _error_file(process)]
        said += [mounts] if mounts != ours else []  # a mount in our own namespace is reported as such
        for owner in _owners("\n".join(said)) & dead:
            yield Orphan(kind="process", name=process.name, owner=owner)


def _owners(text: str) -> set[int]:
    return {int(match[1]) for match in _NAME.finditer(text)}


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:  # ended meanwhile, or of another user
        return ""


def _error_file(process: Path) -> str:
    try:
        return str((process / "fd" / "2").readlink())
    except OSError:
        return ""
