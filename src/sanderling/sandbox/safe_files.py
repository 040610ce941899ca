"""Reading and writing files that an adversary arranged, below a directory descriptor.

`openat2` with RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS and RESOLVE_NO_MAGICLINKS resolves a whole path without following
anything; O_NOFOLLOW and O_NONBLOCK keep a last component that is a link or a FIFO from being followed or waited for;
`fstat` of what was opened (never of a name) decides whether it is a plain file. Kernels before 5.6 get the same by
opening one component at a time.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from sanderling.errors import UnsafePath

_OPENAT2 = 437  # the same on every architecture
_RESOLVE = 0x04 | 0x02 | 0x08  # NO_SYMLINKS | NO_MAGICLINKS | BENEATH
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LONGEST_PATH = 4000  # below PATH_MAX; deeper trees are reported, not entered
_READ_BYTES = 1 << 20

_OURS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO)  # our process or machine failed, not the workspace

_libc = ctypes.CDLL(None, use_errno=True)
_missing_calls: set[int] = set()  # learnt from the kernel once


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """One entry of a directory tree, as `walk` saw it. `path` may hold surrogates where a name isn't UTF-8."""

    path: str
    kind: str  # "file", "directory", "link", "fifo", "socket", "device", "hard link", "unreadable", "too deep"
    size: int
    mode: int  # permission bits, set-id bits included


def checked_parts(path: str) -> list[str]:
    """Split a relative POSIX path.

    Raises:
        UnsafePath: it is absolute, empty, has `..`, a NUL, or no name at its end.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or not parts or ".." in parts or "\0" in path or path.endswith(("/", "/.")):
        raise UnsafePath(f"path {path!r} isn't a relative path of a file in the workspace; give one such as 'pkg/a.py'")
    return parts


def open_beneath(root: int, path: str, flags: int, mode: int = 0) -> int:
    """Open `path` below the directory `root` without following any link.

    Raises:
        OSError: as open(2); ELOOP or EXDEV where a link or a way out was met.
    """
    flags |= os.O_NOFOLLOW | os.O_CLOEXEC
    if not flags & os.O_PATH:  # which openat2 takes with hardly any other flag
        flags |= os.O_NOCTTY
    if _OPENAT2 not in _missing_calls:
        how = (ctypes.c_uint64 * 3)(flags, mode, _RESOLVE)
        while True:
            fd = _libc.syscall(_OPENAT2, root, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
            if fd >= 0:
                return fd
            number = ctypes.get_errno()
            if number not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: a rename raced with the check of BENEATH
                break
        if number not in (errno.ENOSYS, errno.EPERM):
            raise OSError(number, os.strerror(number), path)
        if number == errno.ENOSYS:
            _missing_calls.add(_OPENAT2)
    return open_by_components(root, path, flags, mode)


def open_by_components(root: int, path: str, flags: int, mode: int = 0) -> int:
    """Do what `open_beneath` does without openat2: one component at a time, none of them a link."""
    *parents, name = checked_parts(path) if path != "." else ["."]
    current = os.dup(root)
    try:
        for part in parents:
            following = os.open(part, _DIRECTORY, dir_fd=current)
            os.close(current)
            current = following
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=current)
    finally:
        os.close(current)


def read_plain(root: int, path: str, max_bytes: int) -> bytes:
    """Return the content of a plain file below `root`.

    Raises:
        UnsafePath: it is missing, a link or behind one, not a plain file, hard-linked, unreadable, or larger than
            `max_bytes`.
        OSError: our process has no descriptors or memory left: nothing that the file could help.
    """
    checked_parts(path)
    try:
        fd = open_beneath(root, path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in _OURS:
            raise
        raise UnsafePath(f"can't read {path!r}: {_why(error)}") from error
    try:
        return _read_checked(fd, path, max_bytes)
    finally:
        os.close(fd)


def _read_checked(fd: int, path: str, max_bytes: int) -> bytes:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise UnsafePath(f"can't read {path!r}: it is a {kind_of(status)}, not a plain file")
    if status.st_nlink > 1:
        raise UnsafePath(f"can't read {path!r}: it is a hard link ({status.st_nlink} names), not a file of its own")
    if status.st_size > max_bytes:
        raise UnsafePath(f"can't read {path!r}: it has {status.st_size} bytes, at most {max_bytes} are read")
    chunks: list[bytes] = []
    left = max_bytes + 1
    while left > 0 and (chunk := os.read(fd, min(left, _READ_BYTES))):
        chunks.append(chunk)
        left -= len(chunk)
    if left <= 0:
        raise UnsafePath(f"can't read {path!r}: it grew beyond {max_bytes} bytes while it was read")
    return b"".join(chunks)


def write_plain(root: int, path: str, content: bytes, owner: tuple[int, int] | None = None) -> None:
    """Create or replace a plain file below `root`, with the directories above it.

    A file that exists keeps its mode. `owner` (uid, gid) is given to what is created.

    Raises:
        UnsafePath: the path leaves `root`, passes through something that isn't a directory, or ends in something that
            exists and isn't a plain file with one name.
        OSError: the disk is full, or the like.
    """
    parts = checked_parts(path)
    try:
        parent = _make_directories(root, parts[:-1], owner)
        try:
            _write_in(parent, parts[-1], path, content, owner)
        finally:
            os.close(parent)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE):
            raise
        raise UnsafePath(f"can't write {path!r}: {_why(error)}") from error


def _make_directories(root: int, parts: list[str], owner: tuple[int, int] | None) -> int:
    current = os.dup(root)
    try:
        for part in parts:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=current)
                if owner is not None:
                    os.chown(part, *owner, dir_fd=current, follow_symlinks=False)
            following = os.open(part, _DIRECTORY, dir_fd=current)
            os.close(current)
            current = following
    except OSError:
        os.close(current)
        raise
    return current


def _write_in(parent: int, name: str, path: str, content: bytes, owner: tuple[int, int] | None) -> None:
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    created = True
    try:
        fd = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=parent)
    except FileExistsError:
        created = False
        fd = os.open(name, flags, dir_fd=parent)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            kind = "hard link" if stat.S_ISREG(status.st_mode) else kind_of(status)
            raise UnsafePath(f"can't write {path!r}: it is a {kind}, not a plain file of its own")
        if created and owner is not None:
            os.fchown(fd, *owner)
        if created:
            os.fchmod(fd, 0o644)
        os.ftruncate(fd, 0)
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
    finally:
        os.close(fd)


def kind_of(status: os.stat_result) -> str:
    """Name what an inode is: "file", "directory", "link", "fifo", "socket" or "device"."""
    mode = status.st_mode
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    if stat.S_ISLNK(mode):
        return "link"
    if stat.S_ISFIFO(mode):
        return "fifo"
    return "socket" if stat.S_ISSOCK(mode) else "device"


def walk(root: int) -> Iterator[FoundFile]:
    """Yield every entry below `root` in the order of its path within each directory, never following a link.

    What the owner may not read is "unreadable" whoever asks, so that root and a plain user see the same. Directories
    whose path would be too long to open are "too deep" and not entered.
    """
    pending = [""]
    while pending:
        directory = pending.pop()
        try:
            fd = open_beneath(root, directory or ".", _DIRECTORY)
        except OSError as error:
            if error.errno in _OURS:
                raise
            yield FoundFile(path=directory, kind="unreadable", size=0, mode=0)
            continue
        try:
            found = list(_entries(fd, directory))
        finally:
            os.close(fd)
        yield from found
        pending.extend(entry.path for entry in reversed(found) if entry.kind == "directory")


def _entries(fd: int, directory: str) -> Iterator[FoundFile]:
    for name in sorted(os.listdir(fd), key=os.fsencode):
        path = f"{directory}/{name}" if directory else name
        try:
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except OSError:
            continue  # gone meanwhile; only possible while something still runs
        kind = kind_of(status)
        if kind == "file" and status.st_nlink > 1:
            kind = "hard link"
        elif (kind == "file" and not status.st_mode & 0o400) or (
            kind == "directory" and status.st_mode & 0o500 != 0o500
        ):
            kind = "unreadable"
        elif len(os.fsencode(path)) > _LONGEST_PATH:
            kind = "too deep"
        yield FoundFile(path=path, kind=kind, size=status.st_size, mode=stat.S_IMODE(status.st_mode))


def is_text_name(path: str) -> bool:
    """Whether a path is valid UTF-8 (Python holds other bytes as lone surrogates)."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _why(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.EXDEV, errno.EMLINK):
        return "the path passes through a link or leaves the workspace"
    if error.errno == errno.ENOTDIR:
        return "the path passes through something that isn't a directory"
    if error.errno == errno.ENOENT:
        return "no such file"
    if error.errno == errno.ENXIO:
        return "it is a FIFO, a socket or a device, not a plain file"
    return error.strerror or str(error)
