"""Fenced blocks of a Markdown file, so that what is written there can be run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block; `after` is the title of the titled block that stands before it."""

    language: str
    title: str
    text: str
    after: str

    def commands(self) -> list[str]:
        """Return the command lines behind `$ ` in a console block, continued lines joined."""
        joined = self.text.replace("\\\n", " ")
        return [line[2:] for line in joined.splitlines() if line.startswith("$ ")]


def blocks(file: Path) -> list[Block]:
    """Return the fenced blocks of a file in order."""
    found: list[Block] = []
    after = ""
    for language, title, text in _FENCE.findall(file.read_text("utf-8")):
        found.append(Block(language=language, title=title, text=text, after=after))
        after = title or after
    return found
