"""What a git folder holds beyond the files that are taken from it: each of it may show the way to a later fix."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
_ENVIRONMENT |= {"HOME": "/nonexistent", "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
_SHOWN = 40


def git_program() -> str | None:
    """Return the path of git, None where it isn't installed."""
    return shutil.which("git")


def tracked_files(checkout: Path) -> list[str]:
    """Return the files that a checkout tracks, sorted.

    Raises:
        subprocess.CalledProcessError: git can't read it.
    """
    names = _git(checkout, "ls-files", "-z").split(b"\0")
    return sorted(name.decode(errors="surrogateescape") for name in names if name)


def beyond_head(checkout: Path) -> list[str]:
    """Return every object that the commit at HEAD doesn't lead to, and every way to it, one line each.

    The ways: branches, tags, remote refs, packed refs, notes, the stash, reflogs, objects borrowed from another repository.
    """
    folder = Path(checkout, _git(checkout, "rev-parse", "--git-common-dir").decode().strip())
    head = _git(checkout, "rev-parse", "--verify", "-q", "HEAD", check=False).decode().strip()
    reachable = (
        set(_git(checkout, "rev-list", "--objects", head).decode(errors="replace").split("\n")) if head else set()
    )
    known = {line.partition(" ")[0] for line in reachable}
    found: list[str] = []
    for line in (
        _git(checkout, "for-each-ref", "--format=%(objectname) %(refname)").decode(errors="replace").splitlines()
    ):
        value, _, name = line.partition(" ")
        if value not in known:
            packed = (folder / "packed-refs").is_file() and name in (folder / "packed-refs").read_text(errors="replace")
            found.append(f"{name} leads to {value}" + (" (packed ref)" if packed else ""))
    for log in sorted((folder / "logs").rglob("*")):
        if log.is_file() and (lost := _of_reflog(log) - known):
            found.append(f"reflog {log.relative_to(folder / 'logs').as_posix()} names {', '.join(sorted(lost)[:3])}")
    if (folder / "objects" / "info" / "alternates").is_file():
        found.append("objects/info/alternates borrows objects of another repository")
    listed = _git(checkout, "cat-file", "--batch-all-objects", "--batch-check").decode().splitlines()
    extra = [line for line in listed if line.partition(" ")[0] not in known]
    found += [f"object {' '.join(line.split(' ')[:2])}" for line in extra[:_SHOWN]]
    if len(extra) > _SHOWN:
        found.append(f"{len(extra) - _SHOWN} more objects")
    return found


def _of_reflog(log: Path) -> set[str]:
    values = {value for line in log.read_text(errors="replace").splitlines() for value in line.split(" ")[:2]}
    return {value for value in values if set(value) - {"0"}}


def _git(checkout: Path, *arguments: str, check: bool = True) -> bytes:
    program = git_program() or "git"
    owned = ["-c", "safe.directory=*"]
    command = [program, "-C", str(checkout), *owned, *arguments]
    return subprocess.run(command, check=check, capture_output=True, env=_ENVIRONMENT).stdout
