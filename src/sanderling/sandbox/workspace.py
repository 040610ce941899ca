"""What a workspace holds: how layers change its state, its plain files, and the change against the base that may leave it."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Iterable, Mapping, Sequence

from sanderling.errors import UnsafePath
from sanderling.sandbox import safe_files
from sanderling.sandbox.digests import State, entry_digest
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
SET_ID = 0o6000
_OVERLAY_ATTRIBUTES = ("trusted.overlay.", "user.overlay.")

Read = Callable[[FoundFile, int], bytes]


def _was_directory(state: State, path: str) -> bool:
    return state.get(path, b"").startswith(b"d")


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


def plain_files(root: int) -> tuple[str, ...]:
    """Return the sorted paths of plain files below `root` whose names are UTF-8."""
    return plain_paths(safe_files.walk(root))


def plain_paths(entries: Iterable[FoundFile]) -> tuple[str, ...]:
    """Return the sorted paths of the plain files among `entries` whose names are UTF-8."""
    return tuple(sorted(e.path for e in entries if e.kind == "file" and safe_files.is_text_name(e.path)))


def submission(root: int, base: Mapping[str, bytes], editable: Sequence[str], max_bytes: int) -> Submission:
    """Return the change of the tree below `root` against `base`, as `Sandbox.submission` describes."""
    read: Read = lambda entry, most: safe_files.read_plain(root, entry.path, most)  # noqa: E731
    return changes(safe_files.walk(root), read, base, editable, max_bytes)


def changes(
    entries: Iterable[FoundFile], read: Read, base: Mapping[str, bytes], editable: Sequence[str], max_bytes: int
) -> Submission:
    """Return the change that `entries`, a whole tree, make against `base`, as `Sandbox.submission` describes.

    `read` is asked for the content of plain files, at most so many bytes, and raises `UnsafePath` where there is none.
    """
    files: dict[str, bytes] = {}
    refused: list[Refusal] = []
    seen: set[str] = set()
    pristine = {_normal(path): content for path, content in base.items()}
    for entry in entries:
        seen.add(entry.path)
        if entry.kind == "directory" and entry.path not in pristine and not entry.mode & SET_ID:
            continue
        outcome = _judge(entry, read, pristine.get(entry.path), editable, max_bytes)
        if isinstance(outcome, bytes):
            files[entry.path] = outcome
        elif outcome:
            refused.append(Refusal(path=_printable(entry.path), reason=outcome))
    refused += [Refusal(path=path, reason="deleted") for path in sorted(set(pristine) - seen)]
    if len(refused) > _REFUSALS:
        more = Refusal(path="", reason=f"{len(refused) - _REFUSALS} more changes were refused")
        refused = [*refused[:_REFUSALS], more]
    return Submission(files=files, refused=tuple(refused))


def is_editable(path: str, editable: Sequence[str]) -> bool:
    """Whether a path matches one of the fnmatch patterns."""
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in editable)


def _judge(
    entry: FoundFile, read: Read, before: bytes | None, editable: Sequence[str], max_bytes: int
) -> bytes | str | None:
    """Return the content to take over, the reason to refuse, or None where nothing changed."""
    if not safe_files.is_text_name(entry.path):
        return "name isn't UTF-8"
    if entry.kind in _SPECIAL:
        return _SPECIAL[entry.kind]
    if entry.mode & SET_ID:
        return "setuid or setgid bit"
    if entry.kind == "directory":
        return "directory in place of a file"
    allowed = is_editable(entry.path, editable)
    if before is None or entry.size != len(before):
        if not allowed:
            return "not an editable path"
        if entry.size > max_bytes:
            return f"larger than {max_bytes} bytes"
    try:
        content = read(entry, max(max_bytes, len(before or b"")))
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
