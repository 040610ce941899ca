"""Control groups for commands: memory and processes of the whole tree.

The backend makes a home group per hierarchy and passes descriptors of their directories; here groups are made below them.
A group serves one command after another. What earlier ones wrote to their stores stays charged to it until those are
dropped, so a limit is set on top of what is charged already.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field

_BOOKKEEPING = 4  # the seat, bubblewrap's monitor, its first process, and one that is being replaced


@dataclass(kw_only=True)
class Home:
    """Directories below which groups are made. Version 1 has one per controller, version 2 one for both."""

    version: int
    memory: int
    pids: int
    retired: list[str] = field(default_factory=list)  # groups that the kernel wasn't ready to remove

    def directories(self) -> tuple[int, ...]:
        return (self.memory,) if self.version == 2 else (self.memory, self.pids)

    def create(self, name: str) -> list[int]:
        """Make a group and return descriptors of the files that a process joins it by."""
        for directory in self.directories():
            with contextlib.suppress(FileExistsError):  # of a launcher that was killed
                os.mkdir(name, dir_fd=directory)
        if self.version == 2:
            with contextlib.suppress(OSError):  # no swap accounting
                _write(self.memory, f"{name}/memory.swap.max", 0)
        return [
            os.open(f"{name}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC, dir_fd=directory)
            for directory in self.directories()
        ]

    def limit(self, name: str, memory_bytes: int, processes: int) -> None:
        """Bound what the next command in the group may use."""
        _write(self.pids, f"{name}/pids.max", processes + _BOOKKEEPING)
        if self.version == 2:
            charged = int(_read(self.memory, f"{name}/memory.current"))
            _write(self.memory, f"{name}/memory.max", charged + memory_bytes)
            return
        total = int(_read(self.memory, f"{name}/memory.usage_in_bytes")) + memory_bytes
        with contextlib.suppress(OSError):  # no swap accounting, or it has to follow the other limit
            _write(self.memory, f"{name}/memory.memsw.limit_in_bytes", total)
        _write(self.memory, f"{name}/memory.limit_in_bytes", total)
        with contextlib.suppress(OSError):
            _write(self.memory, f"{name}/memory.memsw.limit_in_bytes", total)

    def open_kills(self, name: str) -> int:
        """Return a descriptor of the file in which the kernel counts what it killed in a group; see `Kills`."""
        file = "memory.events" if self.version == 2 else "memory.oom_control"
        return os.open(f"{name}/{file}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.memory)

    def remove(self, name: str) -> None:
        """Remove a group now, or at a later call where the kernel still holds it."""
        self.retired.append(name)
        self.retired = [left for left in self.retired if not self._try_remove(left)]

    def _try_remove(self, name: str) -> bool:
        gone = True
        for directory in self.directories():
            try:
                os.rmdir(name, dir_fd=directory)
            except FileNotFoundError:
                continue
            except OSError:
                gone = False
        return gone


class Kills:
    """What the kernel killed in a group for want of memory. `fd` comes from `Home.open_kills`."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._seen = self._count()

    def anew(self) -> bool:
        """Whether something was killed since this was asked last."""
        before, self._seen = self._seen, self._count()
        return self._seen > before

    def _count(self) -> int:
        with contextlib.suppress(OSError):
            for line in os.pread(self.fd, 4096, 0).decode().splitlines():
                key, _, value = line.partition(" ")
                if key == "oom_kill":
                    return int(value)
        return 0


def _write(directory: int, path: str, value: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.write(fd, str(value).encode())
    finally:
        os.close(fd)


def _read(directory: int, path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        return os.read(fd, 4096).decode()
    finally:
        os.close(fd)
