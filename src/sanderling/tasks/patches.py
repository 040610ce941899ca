"""Unified diffs between two sets of files: made, and applied strictly.

A patch that we apply is ours or a task author's; still nothing is guessed: every line of context must be where the hunk
says, and a path stays inside the workspace.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from sanderling.errors import TaskError

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_NO_NEWLINE = "\\ No newline at end of file"
_NOTHING = "/dev/null"


def make_patch(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> str:
    """Return the unified diff that turns `before` into `after`; empty where they are equal.

    Raises:
        TaskError: a changed file isn't UTF-8 text.
    """
    pieces = []
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        names = (_NOTHING if old is None else f"a/{path}", _NOTHING if new is None else f"b/{path}")
        lines = difflib.unified_diff(_lines(path, old), _lines(path, new), *names)
        shown = (line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}\n" for line in lines)
        # an empty file that comes or goes has no hunk, so its header has to be written by hand
        pieces.append("".join(shown) or f"--- {names[0]}\n+++ {names[1]}\n")
    return "".join(pieces)


def apply_patch(files: Mapping[str, bytes], patch: str) -> dict[str, bytes]:
    """Return the files with a unified diff applied, without fuzz.

    Raises:
        TaskError: the patch is malformed, or a line isn't where it says; names file and line.
    """
    after = dict(files)
    lines = _split(patch)
    at = 0
    while at < len(lines):
        if not lines[at].startswith("--- "):
            at += 1  # "diff --git", "index" and other headers
            continue
        if at + 1 >= len(lines) or not lines[at + 1].startswith("+++ "):
            raise TaskError(f"line {at + 1} of the patch is '---' without '+++' below it; expected a unified diff")
        old, new = _name(lines[at]), _name(lines[at + 1])
        end = at + 2
        while end < len(lines) and not lines[end].startswith(("--- ", "diff --git ")):
            end = _hunk_end(lines, end)
        _apply_to_file(after, old, new, lines[at + 2 : end])
        at = end
    return after


def _hunk_end(lines: list[str], at: int) -> int:
    """Return the index behind the hunk at `at`, by its own counts: a removed line can look like a header."""
    header = _HUNK.match(lines[at])
    if header is None:
        return at + 1
    left_old, left_new = int(header[2] or 1), int(header[4] or 1)
    at += 1
    while at < len(lines) and (left_old > 0 or left_new > 0):
        left_old -= lines[at][:1] in (" ", "-", "\n")
        left_new -= lines[at][:1] in (" ", "+", "\n")
        at += 1
    return at


def _apply_to_file(files: dict[str, bytes], old: str | None, new: str | None, hunks: list[str]) -> None:
    path = new or old
    if path is None:
        raise TaskError("the patch changes /dev/null into /dev/null; expected a file on one side")
    if old is not None and old not in files:
        raise TaskError(f"the patch changes {old!r}, which doesn't exist")
    if old is None and path in files:
        raise TaskError(f"the patch creates {path!r}, which exists already")
    before = _lines(path, files.pop(old)) if old is not None else []
    after, position, at = [], 0, 0
    while at < len(hunks):
        header = _HUNK.match(hunks[at])
        if header is None:
            at += 1
            continue
        end = _hunk_end(hunks, at)
        if end < len(hunks) and hunks[end].startswith("\\"):
            end += 1
        start = int(header[1]) - (header[2] != "0")  # an empty old side names the line before it
        taken, made = _sides(hunks[at + 1 : end])
        if start < position or before[start : start + len(taken)] != taken:
            raise TaskError(f"the patch doesn't apply to {path!r} at line {start + 1}: the lines there are others")
        after += before[position:start] + made
        position = start + len(taken)
        at = end
    after += before[position:]
    if new is not None:
        files[new] = "".join(after).encode()


def _sides(body: list[str]) -> tuple[list[str], list[str]]:
    """Return the lines that a hunk takes away (context included) and those that it puts there."""
    old: list[str] = []
    new: list[str] = []
    for number, line in enumerate(body):
        mark, text = line[:1], line[1:]
        if mark == "\\":
            continue
        if number + 1 < len(body) and body[number + 1].startswith("\\"):
            text = text.removesuffix("\n")
        if mark in (" ", "-", "\n"):
            old.append(text or "\n")  # some tools strip the blank of an empty line of context
        if mark in (" ", "+", "\n"):
            new.append(text or "\n")
    return old, new


def _name(line: str) -> str | None:
    name = line[4:].rstrip("\n").partition("\t")[0]
    if name == _NOTHING:
        return None
    path = name[2:] if name.startswith(("a/", "b/")) else name
    if not path or path.startswith("/") or ".." in path.split("/"):
        raise TaskError(f"the patch names {name!r}; expected a path inside the workspace")
    return path


def _lines(path: str, content: bytes | None) -> list[str]:
    try:
        return _split((content or b"").decode())
    except UnicodeDecodeError as error:
        raise TaskError(f"{path!r} isn't UTF-8 text ({error}); a patch can't hold it") from error


def _split(text: str) -> list[str]:
    """Split after each newline and nowhere else: a form feed or a lone carriage return is a part of its line."""
    lines = text.split("\n")
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
