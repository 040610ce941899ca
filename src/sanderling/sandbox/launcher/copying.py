"""Copying directory trees that an adversary arranged, by descriptors and never through a link."""

from __future__ import annotations

import errno
import os
import stat

DEEPEST = 300
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK = 1 << 20


def copy_tree(source: int, target: int) -> None:
    """Copy what is in the directory `source` into the directory `target`: kinds, modes, owners, times, holes, hard links.

    `source` may be changed by others meanwhile, `target` belongs to us alone. Sockets are left out: nothing listens to
    them any more.

    Raises:
        OSError: ELOOP where directories are nested deeper than `DEEPEST`; ENOSPC and the like.
    """
    _Copier(target).copy(source, target, "", 0)


class _Copier:
    def __init__(self, top: int) -> None:
        self._top = top
        self._copied: dict[tuple[int, int], str] = {}  # files with several names: where the first one went

    def copy(self, source: int, target: int, where: str, depth: int) -> None:
        if depth > DEEPEST:
            raise OSError(errno.ELOOP, f"directories are nested deeper than {DEEPEST}")
        for name in os.listdir(source):
            try:
                status = os.stat(name, dir_fd=source, follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISDIR(status.st_mode):
                self._copy_directory(name, source, target, f"{where}{name}/", depth)
            elif stat.S_ISREG(status.st_mode):
                self._copy_file(name, status, source, target, where)
            elif stat.S_ISLNK(status.st_mode):
                os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
                os.chown(name, status.st_uid, status.st_gid, dir_fd=target, follow_symlinks=False)
            elif stat.S_ISFIFO(status.st_mode):
                os.mkfifo(name, stat.S_IMODE(status.st_mode), dir_fd=target)
                os.chown(name, status.st_uid, status.st_gid, dir_fd=target, follow_symlinks=False)
        _take_over(target, os.fstat(source))

    def _copy_directory(self, name: str, source: int, target: int, where: str, depth: int) -> None:
        inner_source = os.open(name, _DIRECTORY, dir_fd=source)
        try:
            os.mkdir(name, 0o700, dir_fd=target)
            inner_target = os.open(name, _DIRECTORY, dir_fd=target)
            try:
                self.copy(inner_source, inner_target, where, depth + 1)
            finally:
                os.close(inner_target)
        finally:
            os.close(inner_source)

    def _copy_file(self, name: str, status: os.stat_result, source: int, target: int, where: str) -> None:
        key = (status.st_dev, status.st_ino)
        if status.st_nlink > 1 and key in self._copied:
            os.link(self._copied[key], name, src_dir_fd=self._top, dst_dir_fd=target)
            return
        fd = os.open(name, _FILE, dir_fd=source)
        try:
            copy = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=target)
            try:
                _copy_data(fd, copy)
                _take_over(copy, os.fstat(fd))
            finally:
                os.close(copy)
        finally:
            os.close(fd)
        if status.st_nlink > 1:
            self._copied[key] = f"{where}{name}"


def _copy_data(source: int, target: int) -> None:
    end = os.fstat(source).st_size
    position = 0
    while position < end:
        try:
            position = os.lseek(source, position, os.SEEK_DATA)
            hole = os.lseek(source, position, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:  # nothing but a hole follows
                raise
            break
        while position < hole:
            chunk = os.pread(source, min(_CHUNK, hole - position), position)
            if not chunk:
                break
            os.pwrite(target, chunk, position)
            position += len(chunk)
        position = max(position, hole)
    os.ftruncate(target, end)


def _take_over(target: int, status: os.stat_result) -> None:
    os.fchown(target, status.st_uid, status.st_gid)
    os.fchmod(target, stat.S_IMODE(status.st_mode))
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def remove_tree(name: str, directory: int, depth: int = 0) -> None:
    """Remove what is called `name` in `directory`, whatever it is."""
    try:
        os.unlink(name, dir_fd=directory)
        return
    except IsADirectoryError:
        pass
    if depth > 2 * DEEPEST:
        raise OSError(errno.ELOOP, f"directories are nested deeper than {2 * DEEPEST}")
    inner = os.open(name, _DIRECTORY, dir_fd=directory)
    try:
        for entry in os.listdir(inner):
            remove_tree(entry, inner, depth + 1)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=directory)
