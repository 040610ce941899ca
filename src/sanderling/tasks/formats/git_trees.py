"""Trees of git commits, read and written through git's plumbing: no checkout, no hook and no filter of the repository runs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from sanderling.errors import TaskError

_SAFE = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "protocol.allow=never")
_PLAIN = ("100644", "100755")
_WHEN = "2000-01-01T00:00:00Z"  # equal trees give equal commits


def read_commit(repository: Path, commit: str) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Return the plain files of a commit by path, and the paths of what isn't one (links, submodules), which is left out.

    Raises:
        TaskError: no git repository there, no such commit, or a name that isn't UTF-8.
    """
    if commit.startswith("-"):
        raise TaskError(f"{commit!r} is no commit")
    listing = _git(repository, ["ls-tree", "-r", "-z", "--full-tree", commit])
    wanted: list[tuple[str, str]] = []
    left_out: list[str] = []
    for entry in listing.split(b"\0"):
        if not entry:
            continue
        about, _, name = entry.partition(b"\t")
        mode, _, digest = about.decode().split()
        try:
            path = name.decode()
        except UnicodeDecodeError as error:
            raise TaskError(f"{repository}, commit {commit}: the name {name!r} isn't UTF-8") from error
        if mode in _PLAIN:
            wanted.append((path, digest))
        else:
            left_out.append(path)
    contents = _objects(repository, [digest for _, digest in wanted])
    return {path: content for (path, _), content in zip(wanted, contents, strict=True)}, tuple(left_out)


def write_commit(repository: Path, files: Mapping[str, bytes], branch: str) -> str:
    """Add one commit without parents that holds these files, under a branch; make the (bare) repository if it is missing.

    Returns its 40 hexadecimal digits, which depend on the files and on nothing else.

    Raises:
        TaskError: git can't write it.
    """
    if not repository.exists():
        repository.mkdir(parents=True)
        _git(repository, ["init", "-q", "--bare", "--initial-branch=none", "--template=", "."])
    index = {"GIT_INDEX_FILE": str(repository.resolve() / f"index.{os.getpid()}")}
    try:
        lines = []
        for path, content in sorted(files.items()):
            digest = _git(repository, ["hash-object", "-w", "--stdin", "--no-filters"], content).decode().strip()
            lines.append(f"100644 {digest}\t{path}\0".encode())
        _git(repository, ["update-index", "-z", "--add", "--index-info"], b"".join(lines), index)
        tree = _git(repository, ["write-tree"], b"", index).decode().strip()
    finally:
        Path(index["GIT_INDEX_FILE"]).unlink(missing_ok=True)
    people = {
        f"GIT_{role}_{key}": value
        for role in ("AUTHOR", "COMMITTER")
        for key, value in (("NAME", "sanderling"), ("EMAIL", "sanderling@localhost"), ("DATE", _WHEN))
    }
    commit = _git(repository, ["commit-tree", tree, "-m", "base"], b"", people).decode().strip()
    _git(repository, ["update-ref", f"refs/heads/{branch}", commit])
    return commit


def _objects(repository: Path, digests: Sequence[str]) -> list[bytes]:
    answer = _git(repository, ["cat-file", "--batch"], "".join(f"{digest}\n" for digest in digests).encode())
    contents, at = [], 0
    for _ in digests:
        end = answer.index(b"\n", at)
        size = int(answer[at:end].rsplit(b" ", 1)[1])
        contents.append(answer[end + 1 : end + 1 + size])
        at = end + 1 + size + 1
    return contents


def _git(repository: Path, arguments: Sequence[str], stdin: bytes = b"", env: Mapping[str, str] | None = None) -> bytes:
    built = {
        "PATH": os.environ.get("PATH", "/usr/bin"),
        "HOME": "/nonexistent",
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    built |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_REPLACE_OBJECTS": "1"}
    command = ["git", "-c", f"safe.directory={repository.resolve()}", *_SAFE, *arguments]
    try:
        done = subprocess.run(
            command, cwd=repository, input=stdin, capture_output=True, env={**built, **(env or {})}, check=False
        )
    except OSError as error:
        raise TaskError(f"git can't be run in {repository}: {error}") from error
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise TaskError(f"{repository}: git {arguments[0]} failed: {said[-1] if said else done.returncode}")
    return done.stdout
