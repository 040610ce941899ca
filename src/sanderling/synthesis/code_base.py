"""The files of a code base: a folder, a git checkout or an sdist, without caches, builds, environments and history."""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from sanderling.errors import ConfigError
from sanderling.synthesis.history import beyond_head, git_program, tracked_files

_LEFT_OUT = frozenset(
    {
        *(".git", ".hg", ".svn", ".bzr", "CVS", "__pycache__", "__pypackages__", "node_modules", "site-packages"),
        *("venv", ".venv", ".env", ".tox", ".nox", ".eggs", "htmlcov"),
        *(".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".idea", ".vscode", ".cache", "_build"),
    }
)
"""Directories that hold no source, or another copy of it."""
_LEFT_OUT_ON_TOP = frozenset({"build", "dist", "wheels", "sdist", "env"})
_PATTERNS = (
    "*.egg-info",
    "*.dist-info",
    "*.pyc",
    "*.pyo",
    "*.so",
    "*.pyd",
    "*.whl",
    "*.egg",
    "*.orig",
    "*.rej",
    "*.bak",
)
_MAX_FILE = 1 << 20
_MAX_TOTAL = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeBase:
    """What tasks are made of."""

    name: str
    version: str
    files: Mapping[str, bytes]  # by relative POSIX path, sorted
    left_out: tuple[str, ...]  # what was not taken, with the reason: links, caches, large files, objects of the history


def read_code_base(path: Path) -> CodeBase:
    """Read a code base.

    Args:
        path: a folder, the top of a git checkout (its tracked files as they stand in the working tree), or an sdist (.tar.gz).

    Raises:
        ConfigError: there is nothing, it is something else, or it holds no Python file.
    """
    path = Path(path)
    if path.is_dir():
        found, left_out = _read_folder(path)
        name, version = _name_and_version(found, path.resolve().name)
    elif path.name.endswith((".tar.gz", ".tgz")) and path.is_file():
        found, left_out = _read_archive(path)
        name, version = _name_and_version(found, path.name.removesuffix(".tar.gz").removesuffix(".tgz"))
    else:
        raise ConfigError(f"{path} is no code base; expected a folder, a git checkout or an sdist (.tar.gz)")
    files, refused = _scrubbed(found)
    if not any(name.endswith(".py") for name in files):
        raise ConfigError(f"{path} holds no Python file")
    total = sum(map(len, files.values()))
    if total > _MAX_TOTAL:
        raise ConfigError(f"{path} holds {total >> 20} MiB of files; a workspace takes at most {_MAX_TOTAL >> 20} MiB")
    return CodeBase(name=name, version=version, files=files, left_out=(*left_out, *refused))


def _read_folder(path: Path) -> tuple[dict[str, bytes], list[str]]:
    if (path / ".git").exists():
        if git_program() is None:
            raise ConfigError(f"{path} is a git checkout, but there is no `git` on the PATH to list its files with")
        try:
            history = beyond_head(path)
            names: Iterable[str] = tracked_files(path)
        except subprocess.CalledProcessError as error:
            said = error.stderr.decode(errors="replace").strip()
            raise ConfigError(f"the git checkout {path} can't be read: {said or error}") from error
        left_out = [f".git: {found}" for found in history]
    else:
        names = (Path(top, name).relative_to(path).as_posix() for top, name in _walk(path))
        left_out = []
    files = {}
    for name in names:
        file = path / name
        if file.is_symlink() or not file.is_file():
            left_out.append(f"{name}: a link or no plain file")
        elif file.stat().st_size <= _MAX_FILE:
            files[name] = file.read_bytes()
        else:
            left_out.append(f"{name}: larger than {_MAX_FILE >> 20} MiB")
    return files, left_out


def _walk(path: Path) -> Iterable[tuple[str, str]]:
    for top, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        yield from ((top, name) for name in sorted(names))


def _read_archive(path: Path) -> tuple[dict[str, bytes], list[str]]:
    """Read an archive in memory: no member gets to choose a place on the disk."""
    files: dict[str, bytes] = {}
    left_out: list[str] = []
    try:
        with tarfile.open(fileobj=io.BytesIO(path.read_bytes()), mode="r:gz") as archive:
            for member in archive:
                name = "/".join(PurePosixPath(member.name).parts[1:])
                if member.isdir() or not name:
                    continue
                stream = archive.extractfile(member) if member.isreg() and member.size <= _MAX_FILE else None
                if stream is None or ".." in name.split("/") or member.name.startswith("/"):
                    left_out.append(f"{name}: a link, no plain file, outside, or larger than {_MAX_FILE >> 20} MiB")
                else:
                    files[name] = stream.read()
    except (tarfile.TarError, OSError, EOFError) as error:
        raise ConfigError(f"{path} can't be read as a .tar.gz archive: {error}") from error
    return files, left_out


def _scrubbed(found: Mapping[str, bytes]) -> tuple[dict[str, bytes], list[str]]:
    files: dict[str, bytes] = {}
    refused: set[str] = set()
    for name in sorted(found):
        parts = name.split("/")
        hit = [
            i
            for i, part in enumerate(parts)
            if (i < len(parts) - 1 and (part in _LEFT_OUT or (i == 0 and part in _LEFT_OUT_ON_TOP)))
            or part == ".git"
            or _is_product(part)
        ]
        if hit:
            refused.add(f"{'/'.join(parts[: hit[0] + 1])}: a cache, a build, an environment or a copy")
        elif name != name.encode(errors="replace").decode():
            refused.add(f"{name.encode(errors='backslashreplace').decode()}: the name isn't UTF-8")
        else:
            files[name] = found[name]
    return files, sorted(refused)


def _is_product(part: str) -> bool:
    return any(fnmatchcase(part, pattern) for pattern in _PATTERNS)


def _name_and_version(files: Mapping[str, bytes], shown: str) -> tuple[str, str]:
    """Return the names that PKG-INFO or pyproject.toml give, else those in the folder's or archive's own name."""
    for file, pattern in (("PKG-INFO", r"^{}: *(\S+)"), ("pyproject.toml", r"""^{} *= *["']([^"']+)""")):
        text = files.get(file, b"").decode("utf-8", "replace")
        flags = re.MULTILINE | re.IGNORECASE
        name, version = (re.search(pattern.format(key), text, flags) for key in ("name", "version"))
        if name:
            return _plain(name[1]), version[1] if version else ""
    stem, _, version_text = shown.rpartition("-")
    return (_plain(stem), version_text) if stem and version_text[:1].isdigit() else (_plain(shown), "")


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-.") or "code"
