"""Digests of what stands in a workspace. Standard library only: it also runs inside containers."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable

from sanderling.sandbox import safe_files
from sanderling.sandbox.safe_files import FoundFile

_COUNTED = 0o100 | 0o6000  # executable and set-id bits

State = dict[str, bytes]
"""Path to a digest of what stands there, whose first byte is "d" for a directory."""


def entry_digest(root: int, entry: FoundFile) -> bytes:
    """Return a digest of one entry: its kind, executable and set-id bits, and content. Times and owners don't enter."""
    if entry.kind == "link":
        return _digest(entry, (_link_target(root, entry.path),))
    if entry.kind not in ("file", "hard link"):
        return _digest(entry, ())
    fd = safe_files.open_beneath(root, entry.path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return _digest(entry, iter(lambda: os.read(fd, 1 << 20), b""))
    finally:
        os.close(fd)


def digest_with(entry: FoundFile, content: bytes) -> bytes:
    """Return the digest that `entry`, a file, would have with this content."""
    return _digest(entry, (content,))


def _digest(entry: FoundFile, chunks: Iterable[bytes]) -> bytes:
    digest = hashlib.blake2b(digest_size=20)
    kind = "file" if entry.kind == "hard link" else entry.kind  # how many names a file has isn't its content
    digest.update(f"{kind}:{entry.mode & _COUNTED:o}:".encode())
    for chunk in chunks:
        digest.update(chunk)
    return (b"d" if kind == "directory" else b"-") + digest.digest()


def _link_target(root: int, path: str) -> bytes:
    fd = safe_files.open_beneath(root, path, os.O_PATH)
    try:
        return os.fsencode(os.readlink("", dir_fd=fd))
    finally:
        os.close(fd)


def scan(root: int) -> State:
    """Return the state of the whole tree below `root`."""
    return {entry.path: entry_digest(root, entry) for entry in safe_files.walk(root)}


def state_key(state: State) -> str:
    """Return the digest (40 hexadecimal digits) of a state."""
    digest = hashlib.blake2b(digest_size=20)
    for path in sorted(state):
        name = os.fsencode(path)
        digest.update(len(name).to_bytes(4, "little") + name + state[path])
    return digest.hexdigest()
