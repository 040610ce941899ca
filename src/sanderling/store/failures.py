"""What to say when the disk says no."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from sanderling.errors import RunFolderError

_ADVICE = {
    errno.ENOSPC: "free space on that file system, or give another folder with --run; then resume",
    errno.EDQUOT: "the quota of that file system is used up: free space or give another folder with --run",
    errno.EROFS: "that file system is read-only: give a writable folder with --run",
    errno.EACCES: "this user may not write there: give another folder with --run, or change its permissions",
    errno.EPERM: "this user may not write there: give another folder with --run, or change its permissions",
    errno.EMFILE: "too many files are open: raise the limit (ulimit -n)",
    errno.ENAMETOOLONG: "the path is too long: give a shorter name or folder",
    errno.ENOTDIR: "a part of the path is a file: give another folder with --run",
    errno.ENOENT: "it isn't there (any more): check the path, and that nothing removes the folder during a run",
}


def failed(verb: str, path: Path, error: OSError) -> RunFolderError:
    """Return the error to raise: what failed, where, why, and what to do about it. Its cause holds the errno."""
    number = error.errno or 0
    why = os.strerror(number) if number else str(error)
    advice = _ADVICE.get(number, "check the disk and the permissions of that folder")
    return RunFolderError(f"can't {verb} {path}: {why}; {advice}")
