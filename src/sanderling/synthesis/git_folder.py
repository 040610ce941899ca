"""A git repository of one synthetic commit, made of nothing but the files: no reflog, no other ref, no object beyond.

Written without git, so that equal files give equal bytes on every machine. Formats: git's own documentation of packs
(version 2), pack indexes (version 2) and the index file (version 2).
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Mapping

_WHO = "Sanderling <tasks@sanderling.invalid> 946684800 +0000"
_CONFIG = (
    "[core]\n\trepositoryformatversion = 0\n\tfilemode = false\n\tbare = false\n\tlogallrefupdates = false\n"
    "[user]\n\tname = agent\n\temail = agent@sandbox.invalid\n"
)
_KINDS = {"commit": 1, "tree": 2, "blob": 3}
_FILE_MODE = 0o100644


def git_folder(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files of a `.git` folder whose only commit holds `files`, with a clean working tree.

    Args:
        files: the workspace by relative POSIX path; its own `.git/` must not be a part of it.
    """
    objects: dict[bytes, tuple[str, bytes]] = {}
    blobs = {path: _add(objects, "blob", content) for path, content in files.items()}
    tree = _add_tree(objects, blobs)
    message = f"tree {tree.hex()}\nauthor {_WHO}\ncommitter {_WHO}\n\nThe state to work on.\n"
    commit = _add(objects, "commit", message.encode())
    pack, index = _pack(objects)
    name = f".git/objects/pack/pack-{pack[-20:].hex()}"
    return {
        ".git/HEAD": b"ref: refs/heads/main\n",
        ".git/config": _CONFIG.encode(),
        ".git/index": _staged(files, blobs),
        ".git/refs/heads/main": commit.hex().encode() + b"\n",
        f"{name}.idx": index,
        f"{name}.pack": pack,
    }


def _add(objects: dict[bytes, tuple[str, bytes]], kind: str, content: bytes) -> bytes:
    value = hashlib.sha1(f"{kind} {len(content)}\0".encode() + content, usedforsecurity=False).digest()
    objects[value] = (kind, content)
    return value


def _add_tree(objects: dict[bytes, tuple[str, bytes]], blobs: Mapping[str, bytes]) -> bytes:
    """Add the tree of these paths and return its name. Folders are sorted as if their names ended with a slash."""
    entries: dict[bytes, tuple[bytes, bytes]] = {}
    folders: dict[str, dict[str, bytes]] = {}
    for path, value in blobs.items():
        first, _, rest = path.partition("/")
        if rest:
            folders.setdefault(first, {})[rest] = value
        else:
            entries[first.encode()] = (b"100644 " + first.encode(), value)
    for name, inner in folders.items():
        entries[name.encode() + b"/"] = (b"40000 " + name.encode(), _add_tree(objects, inner))
    content = b"".join(entries[key][0] + b"\0" + entries[key][1] for key in sorted(entries))
    return _add(objects, "tree", content)


def _pack(objects: Mapping[bytes, tuple[str, bytes]]) -> tuple[bytes, bytes]:
    """Return a pack of these objects and its index."""
    names = sorted(objects)
    body = bytearray(b"PACK" + struct.pack(">II", 2, len(names)))
    offsets, checks = [], []
    for name in names:
        kind, content = objects[name]
        entry = _entry_head(_KINDS[kind], len(content)) + zlib.compress(content, 9)
        offsets.append(len(body))
        checks.append(zlib.crc32(entry))
        body += entry
    pack = bytes(body) + hashlib.sha1(body, usedforsecurity=False).digest()
    counts = [sum(name[0] <= first for name in names) for first in range(256)]
    index = b"\xfftOc" + struct.pack(">I256I", 2, *counts) + b"".join(names)
    index += struct.pack(f">{len(names)}I", *checks) + struct.pack(f">{len(names)}I", *offsets) + pack[-20:]
    return pack, index + hashlib.sha1(index, usedforsecurity=False).digest()


def _entry_head(kind: int, size: int) -> bytes:
    """Return kind and size: four bits of the size beside the kind, then seven a byte, low ones first."""
    head = bytearray()
    byte = kind << 4 | size & 15
    size >>= 4
    while size:
        head.append(byte | 0x80)
        byte = size & 0x7F
        size >>= 7
    head.append(byte)
    return bytes(head)


def _staged(files: Mapping[str, bytes], blobs: Mapping[str, bytes]) -> bytes:
    """Return an index that knows no file's times: git looks at the content once, and the working tree is clean."""
    body = bytearray(b"DIRC" + struct.pack(">II", 2, len(files)))
    for name, path in sorted((path.encode(), path) for path in files):
        entry = struct.pack(">10I", 0, 0, 0, 0, 0, 0, _FILE_MODE, 0, 0, 0) + blobs[path]
        entry += struct.pack(">H", min(len(name), 0xFFF)) + name
        body += entry + bytes(8 - len(entry) % 8)
    return bytes(body) + hashlib.sha1(body, usedforsecurity=False).digest()
