"""What the first process of a container does with files: all as the unprivileged user that commands are, following no link.

It travels into the container with `container_init`; see there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Protocol

from sanderling.errors import UnsafePath
from sanderling.sandbox import digests, safe_files

PLACES = {"work": "/work", "tmp": "/tmp", "home": "/home/agent"}


class Entries(Protocol):
    """The conversation that entries come from and go to."""

    def receive(self) -> dict[str, Any] | None: ...

    def blob(self, size: int) -> bytes: ...

    def send(self, answer: dict[str, Any], blob: bytes = b"") -> None: ...


def _open_workspace() -> int:
    return os.open(PLACES["work"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)


def scan(*, with_digests: bool) -> list[list[Any]]:
    """Return path, kind, size, mode and, if asked for, digest (hexadecimal) of everything in the workspace."""
    root = _open_workspace()
    try:
        return [
            [entry.path, entry.kind, entry.size, entry.mode]
            + ([digests.entry_digest(root, entry).hex()] if with_digests else [])
            for entry in safe_files.walk(root)
        ]
    finally:
        os.close(root)


def read(request: dict[str, Any]) -> bytes:
    """Return the content of a plain file; see `safe_files.read_plain`."""
    root = _open_workspace()
    try:
        return safe_files.read_plain(root, request["path"], request["max_bytes"])
    finally:
        os.close(root)


def write(request: dict[str, Any], content: bytes) -> None:
    """Create or replace a plain file; see `safe_files.write_plain`."""
    root = _open_workspace()
    try:
        safe_files.write_plain(root, request["path"], content)
    finally:
        os.close(root)


def _packed(place: str) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yield what a fork needs of every entry of a place, directories before what is in them."""
    root = os.open(PLACES[place], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    seen: dict[tuple[int, int], str] = {}
    try:
        for entry in safe_files.walk(root):
            record: dict[str, Any] = {"place": place, "path": entry.path, "kind": entry.kind, "mode": entry.mode}
            if entry.kind in ("unreadable", "too deep", "device"):
                raise OSError(f"{entry.path!r} can't be copied: {entry.kind}")
            if entry.kind == "socket":
                continue  # nobody listens to it any more
            content = b""
            fd = safe_files.open_beneath(root, entry.path, os.O_PATH)
            try:
                status = os.fstat(fd)
                record["mtime_ns"] = status.st_mtime_ns
                if entry.kind == "link":
                    record["target"] = os.readlink("", dir_fd=fd)
                elif entry.kind == "hard link":
                    record["first"] = seen.setdefault((status.st_dev, status.st_ino), entry.path)
            finally:
                os.close(fd)
            if entry.kind == "file" or record.get("first") == entry.path:
                content = _content(root, entry.path)
            yield record, content
    finally:
        os.close(root)


def _content(root: int, path: str) -> bytes:
    fd = safe_files.open_beneath(root, path, os.O_RDONLY | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        return file.read()


def pack(channel: Entries) -> None:
    """Send everything: one message an entry, then one that ends it."""
    for place in PLACES:
        for record, content in _packed(place):
            channel.send({"entry": record}, content)
    channel.send({})


def unpack(channel: Entries, count: int) -> None:
    """Receive `count` entries into places in which nobody else is at work."""
    directories: list[tuple[str, int, int]] = []
    failure: Exception | None = None
    for _ in range(count):
        request = channel.receive() or {}
        content = channel.blob(request["size"])
        if failure is None:
            try:
                _make(request["entry"], content, directories)
            except (OSError, UnsafePath) as error:
                failure = error  # the rest is still received, so that the conversation can go on
    for path, mode, mtime in reversed(directories):
        os.chmod(path, mode)
        os.utime(path, ns=(mtime, mtime))
    if failure is not None:
        raise failure


def _make(record: dict[str, Any], content: bytes, directories: list[tuple[str, int, int]]) -> None:
    top = PLACES[record["place"]]
    path = f"{top}/{record['path']}"
    kind = record["kind"]
    if kind == "directory":
        os.mkdir(path, 0o700)
        directories.append((path, record["mode"], record["mtime_ns"]))
        return
    if kind == "link":
        os.symlink(record["target"], path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif record.get("first", record["path"]) != record["path"]:
        os.link(f"{top}/{record['first']}", path)
        return
    else:
        root = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
        try:
            safe_files.write_plain(root, record["path"], content)
        finally:
            os.close(root)
    if kind != "link" and "mode" in record:
        os.chmod(path, record["mode"])
    if "mtime_ns" in record:
        os.utime(path, ns=(record["mtime_ns"],) * 2, follow_symlinks=False)
