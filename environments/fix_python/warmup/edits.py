"""The smallest call of the line editor that turns one line into another."""

from __future__ import annotations

import re
from random import Random

from fix_python.warmup.tokenizer import PIECES
from sanderling.harness.line_edit import substituted

_PIECE = re.compile(PIECES)


def change_call(before: str, after: str) -> str:
    """Return the `sub` call that makes the current line read `after` instead of `before` (both without indentation).

    What is replaced is the shortest run of whole pieces (as the tokenizer sees them) that the editor finds at the right
    place: longer to the left, then to the right, as long as an earlier part of the line reads the same.

    Raises:
        ValueError: the lines are equal.
    """
    if before == after:
        raise ValueError(f"the line would stay as it is: {before!r}")
    old, new = _PIECE.findall(before), _PIECE.findall(after)
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    while True:
        what, by = "".join(old[start : len(old) - end]), "".join(new[start : len(new) - end])
        if what.strip() and substituted(before, what, by) == after:
            return f"sub|{what}=>{by}"
        if start == 0 and end == 0:
            raise ValueError(f"no edit turns {before!r} into {after!r}")
        if start > 0:
            start -= 1
        else:
            end -= 1


def missing_call(source: str, line: str, rng: Random) -> str:
    """Return a `sub` call that replaces a piece of the source that the line lacks by another one."""
    pieces = sorted({piece for piece in _PIECE.findall(source) if piece.strip()})
    missing = [piece for piece in pieces if substituted(line, piece, "") is None] or ["..."]
    return f"sub|{rng.choice(missing)}=>{rng.choice(pieces)}"
