"""Append-only files of one JSON object per line. A line is on disk before `append` returns; a torn last line is no error."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sanderling.errors import RunFolderError
from sanderling.store.failures import failed


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    """Append one object and force it to disk. Numbers that aren't finite are written as "nan", "inf", "-inf".

    Raises:
        RunFolderError: the disk is full, read-only, ...
    """
    line = json.dumps(_plain(record), ensure_ascii=True, allow_nan=False) + "\n"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            _write_whole(descriptor, line.encode("ascii"))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise failed("append to", path, error) from error


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file; a last line without its newline, or broken, was torn by a crash and is left out.

    Raises:
        RunFolderError: unreadable, or a line other than the last is no JSON object.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise failed("read", path, error) from error
    records, whole = [], lines[:-1]  # after the last newline stands nothing or a torn line
    for number, line in enumerate(whole, start=1):
        try:
            record = json.loads(line)
            if not isinstance(record, dict):
                raise ValueError(f"a JSON object was expected, got {type(record).__name__}")
            records.append(record)
        except ValueError as error:
            if number == len(whole) and not lines[-1]:
                break
            raise RunFolderError(f"line {number} of {path} is damaged: {error}; repair or remove that line") from error
    return records


def cut_torn_line(path: Path) -> str | None:
    """Cut a last line that a crash tore, so that the next append starts a fresh one; return what was cut.

    Raises:
        RunFolderError: the file can't be changed.
    """
    try:
        content = path.read_bytes() if path.exists() else b""
        keep = content.rfind(b"\n") + 1
        last = content[content.rfind(b"\n", 0, max(keep - 1, 0)) + 1 : keep]
        if keep == len(content) and last and not _is_json(last):
            keep -= len(last)  # a whole line of damage: the file grew, its blocks were never written
        if keep == len(content):
            return None
        os.truncate(path, keep)
    except OSError as error:
        raise failed("repair", path, error) from error
    return content[keep:].decode("utf-8", "replace")


def number_of(value: Any) -> float:
    """Return a number written by `append_line`, "nan" and "inf" included."""
    return float(value)


def _is_json(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _write_whole(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _plain(value: Any) -> Any:
    """Return `value` made of what JSON knows."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(part) for part in value]
    if isinstance(value, bool | int | str) or value is None:
        return str(value) if isinstance(value, str) else value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(float(value))
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return _plain(value.tolist())
    return str(value)
