"""What a workspace holds: its digest, its plain files, and the change against the base that may leave it."""

from __future__ import annotations

import fnmatch
import hashlib
import os
from collections.abc import Mapping, Sequence

from sanderling.errors import UnsafePath
from sanderling.sandbox import safe_files
from sanderling.sandbox.safe_files import FoundFile
from sanderling.types import Refusal, Submission

_REFUSALS = 1000  # an agent can make any number of files; a record has to stay readable
_SPECIAL = {
    "link": "symbolic link",
    "hard link": "hard link",
    "fifo": "FIFO",
    "socket": "socket",
    "device": "device",
    "unreadable": "not readable by its owner",
    "too deep": "path too long",
}
_SET_ID = 0o6000
_OVERLAY_ATTRIBUTES = ("trusted.overlay.", "user.overlay.")

State = dict[str, bytes]
"""Path to a digest of what stands there, whose first byte is "d" for a directory."""


def entry_digest(root: int, entry: FoundFile) -> bytes:
    """Return a digest of one entry: its kind, executable and set-id bits, and content. Times and owners don't enter."""
    digest = hashlib.blake2b(digest_size=20)
    kind = "file" if entry.kind == "hard link" else entry.kind  # how many names a file has isn't its content
    first = b"d" if kind == "directory" else b"-"
    digest.update(f"{kind}:{entry.mode & (0o100 | _SET_ID):o}:".encode())
    if entry.kind == "link":
        digest.update(_link_target(root, entry.path))
    elif entry.kind in ("file", "hard link"):
        fd = safe_files.open_beneath(root, entry.path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            while chunk := os.read(fd, 1 << 20):
                digest.update(chunk)
        finally:
            os.close(fd)
    return first + digest.digest()


def _was_directory(state: State, path: str) -> bool:
    return state.get(path, b"").startswith(b"d")


def _link_target(root: int, path: str) -> bytes:
    fd = safe_files.open_beneath(root, path, os.O_PATH)
    try:
        return os.fsencode(os.readlink("", dir_fd=fd))
    finally:
        os.close(fd)


def scan(root: int) -> State:
    """Return the state of the whole tree below `root`."""
    return {entry.path: entry_digest(root, entry) for entry in safe_files.walk(root)}


def apply_layer(state: State, layer: int) -> State | None:
    """Return the state after a layer was put on top of one whose state is known; None where only a new scan can tell.

    Args:
        state: what stood below; left as it is.
        layer: descriptor of the layer's workspace directory, as overlayfs wrote it: a character device 0:0 means that a
            name is gone, an attribute that a directory replaces the one below.
    """
    after = dict(state)
    for entry in safe_files.walk(layer):
        if entry.kind == "device":
            _forget(after, entry.path)
            continue
        if entry.kind == "directory":
            marks = _marks(layer, entry.path)
            replaced = entry.path in after and ("opaque" in marks or not _was_directory(after, entry.path))
            if "redirect" in marks or replaced:
                # What stands below it is in layers that were read under another name, or is gone. The mark alone doesn't
                # decide: as root the kernel heeds `trusted` ones only, and commands can set the `user` ones themselves.
                return None
            if entry.path not in after:
                _forget_below(after, entry.path)
        elif _was_directory(after, entry.path):
            _forget_below(after, entry.path)
        after[entry.path] = entry_digest(layer, entry)
    return after


def _marks(layer: int, path: str) -> set[str]:
    fd = safe_files.open_beneath(layer, path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        names = os.listxattr(fd)
    finally:
        os.close(fd)
    return {name.removeprefix(prefix) for name in names for prefix in _OVERLAY_ATTRIBUTES if name.startswith(prefix)}


def _forget(state: State, path: str) -> None:
    state.pop(path, None)
    _forget_below(state, path)


def _forget_below(state: State, path: str) -> None:
    for inner in [known for known in state if known.startswith(f"{path}/")]:
        del state[inner]


def state_key(state: State) -> str:
    """Return the digest (40 hexadecimal digits) of a state."""
    digest = hashlib.blake2b(digest_size=20)
    for path in sorted(state):
        name = os.fsencode(path)
        digest.update(len(name).to_bytes(4, "little") + name + state[path])
    return digest.hexdigest()


def plain_files(root: int) -> tuple[str, ...]:
    """Return the sorted paths of plain files below `root` whose names are UTF-8."""
    return tuple(sorted(e.path for e in safe_files.walk(root) if e.kind == "file" and safe_files.is_text_name(e.path)))


def submission(root: int, base: Mapping[str, bytes], editable: Sequence[str], max_bytes: int) -> Submission:
    """Return the change of the tree below `root` against `base`, as `Sandbox.submission` describes."""
    files: dict[str, bytes] = {}
    refused: list[Refusal] = []
    seen: set[str] = set()
    pristine = {_normal(path): content for path, content in base.items()}
    for entry in safe_files.walk(root):
        seen.add(entry.path)
        if entry.kind == "directory" and entry.path not in pristine and not entry.mode & _SET_ID:
            continue
        outcome = _judge(root, entry, pristine.get(entry.path), editable, max_bytes)
        if isinstance(outcome, bytes):
            files[entry.path] = outcome
        elif outcome:
            refused.append(Refusal(path=_printable(entry.path), reason=outcome))
    refused += [Refusal(path=path, reason="deleted") for path in sorted(set(pristine) - seen)]
    if len(refused) > _REFUSALS:
        more = Refusal(path="", reason=f"{len(refused) - _REFUSALS} more changes were refused")
        refused = [*refused[:_REFUSALS], more]
    return Submission(files=files, refused=tuple(refused))


def _judge(
    root: int, entry: FoundFile, before: bytes | None, editable: Sequence[str], max_bytes: int
) -> bytes | str | None:
    """Return the content to take over, the reason to refuse, or None where nothing changed."""
    if not safe_files.is_text_name(entry.path):
        return "name isn't UTF-8"
    if entry.kind in _SPECIAL:
        return _SPECIAL[entry.kind]
    if entry.mode & _SET_ID:
        return "setuid or setgid bit"
    if entry.kind == "directory":
        return "directory in place of a file"
    allowed = any(fnmatch.fnmatchcase(entry.path, pattern) for pattern in editable)
    if before is None or entry.size != len(before):
        if not allowed:
            return "not an editable path"
        if entry.size > max_bytes:
            return f"larger than {max_bytes} bytes"
    try:
        content = safe_files.read_plain(root, entry.path, max(max_bytes, len(before or b"")))
    except UnsafePath as error:
        return str(error)
    if content == before:
        return None
    if not allowed:
        return "not an editable path"
    return content if len(content) <= max_bytes else f"larger than {max_bytes} bytes"


def _normal(path: str) -> str:
    return "/".join(safe_files.checked_parts(path))


def _printable(path: str) -> str:
    return path.encode(errors="surrogateescape").decode(errors="backslashreplace")
