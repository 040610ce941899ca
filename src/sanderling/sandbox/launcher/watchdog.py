"""Watching the memory of whole process trees where no control group can bound it.

A sample, not a limit: what comes and goes between two looks isn't seen. Shared pages are counted once per process that
maps them unless the sum is over the limit, in which case the kernel's proportional shares decide.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

INTERVAL_S = 0.1
_PAGE = os.sysconf("SC_PAGE_SIZE")


def tree_bytes(first: int, children: dict[int, list[int]], limit: int) -> int:
    """Return the resident bytes of `first` and all its descendants."""
    members = list(_descendants(first, children))
    resident = sum(_resident(pid) for pid in members)
    return resident if resident <= limit else sum(_proportional(pid) for pid in members)


def children_by_parent() -> dict[int, list[int]]:
    """Return the process tree of this namespace."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            text = _read(f"/proc/{name}/stat")
            if text:
                children.setdefault(int(text.rpartition(b")")[2].split()[1]), []).append(int(name))
    return children


def _descendants(first: int, children: dict[int, list[int]]) -> Iterable[int]:
    pending = [first]
    while pending:
        pid = pending.pop()
        yield pid
        pending += children.get(pid, ())


def _resident(pid: int) -> int:
    fields = _read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * _PAGE if fields else 0


def _proportional(pid: int) -> int:
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return _resident(pid)


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, 8192)
    except OSError:
        return b""
    finally:
        os.close(fd)
