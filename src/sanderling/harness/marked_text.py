"""Text in which some markers are real and others are only spelled out, such as a file that mentions <|im_end|>.

What comes from tasks and tools is marked before a template sees it: each special token that is spelled out becomes a
placeholder. What the template writes stays. Encoding turns the template's markers into tokens and the placeholders into
plain text.
"""

from __future__ import annotations

import re

from sanderling.harness.tokenizer import ChatTokenizer

_OPEN, _CLOSE = "\ufdd0", "\ufdd1"  # noncharacters: never in text that means something
_PLACEHOLDER = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")


class MarkedText:
    """Marks and encodes text for one tokenizer."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer
        # The placeholder's own characters are replaced as well, or text could spell out a placeholder.
        self._spelled = (_OPEN, _CLOSE, *(token for token in tokenizer.special_tokens if token))
        longest_first = sorted(self._spelled, key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longest_first)))
        self._own = re.compile(f"[{_OPEN}{_CLOSE}]")

    def mark(self, text: str) -> str:
        """Return `text` with a placeholder for each special token that is spelled out in it."""
        return self._special.sub(self._placeholder, text)

    def mark_said(self, text: str) -> str:
        """Return what a model wrote, marked so that it can't spell out a placeholder; its special tokens stay."""
        return self._own.sub(self._placeholder, text)

    def plain(self, text: str) -> str:
        """Return marked text as it was."""
        return _PLACEHOLDER.sub(lambda found: self._spelled[int(found[1])], text)

    def encode(self, text: str) -> list[int]:
        """Return the ids of marked text."""
        ids: list[int] = []
        at = 0
        for found in _PLACEHOLDER.finditer(text):
            ids += self._marked(text[at : found.start()])
            ids += self._tokenizer.encode(self._spelled[int(found[1])])
            at = found.end()
        return ids + self._marked(text[at:])

    def _marked(self, text: str) -> list[int]:
        return self._tokenizer.encode_marked(text) if text else []

    def _placeholder(self, found: re.Match[str]) -> str:
        return f"{_OPEN}{self._spelled.index(found[0])}{_CLOSE}"
