"""Unprivileged host user ids for sandboxes of a backend that runs as root: one per sandbox, never 0.

Blocks of ids are locked machine-wide, so that two backends never hand out the same one.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from sanderling.errors import SandboxLost, SandboxUnavailable

_FIRST_ID = 1_900_000_000  # above every range that systemd and subuid files use
_BLOCK = 100_000
_BLOCKS = 256
_SMALL_BLOCK = 2_000


def _mapped_end() -> int:
    """Return one more than the highest user id that exists in this user namespace."""
    ends = []
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        inside, _, count = (int(field) for field in line.split())
        ends.append(inside + count)
    return max(ends)


class HostUsers:
    """Hands out user ids of one locked block; an id is used again only after it was given back, oldest first."""

    def __init__(self, lock_dir: Path) -> None:
        lock_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        end = _mapped_end()
        full = end > _FIRST_ID + _BLOCK * _BLOCKS
        self._size = _BLOCK if full else _SMALL_BLOCK
        first = _FIRST_ID if full else end - 1 - _SMALL_BLOCK * 8
        if first < 1000:
            raise SandboxUnavailable(
                f"root's user namespace maps user ids only up to {end - 1}; sandboxes need a free range of them. "
                "Run as a plain user, or map more ids into this container"
            )
        self._lock, block = _lock_a_block(lock_dir, _BLOCKS if full else 8)
        self._first = first + block * self._size
        self._next = 0
        self._returned: list[int] = []

    def take(self) -> int:
        """Return an id that no living sandbox has.

        Raises:
            SandboxLost: all are in use.
        """
        if self._next < self._size:
            self._next += 1
            return self._first + self._next - 1
        if not self._returned:
            raise SandboxLost(f"all {self._size} user ids for sandboxes are in use; destroy sandboxes that are done")
        return self._returned.pop(0)

    def give_back(self, uid: int) -> None:
        self._returned.append(uid)

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _lock_a_block(lock_dir: Path, blocks: int) -> tuple[int, int]:
    for block in range(blocks):
        fd = os.open(lock_dir / f"user-ids-{block}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd, block
        except BlockingIOError:
            os.close(fd)
    raise SandboxUnavailable(f"all {blocks} blocks of user ids are locked by other backends on this machine")
