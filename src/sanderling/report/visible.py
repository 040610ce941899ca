"""Text that a policy or a tool wrote, made safe to look at: control characters are shown, never obeyed."""

from __future__ import annotations

import re

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Return `text` with control characters other than newline and tab as symbols (␛) or escapes (<U+202E>).

    A terminal would obey them, and direction marks could make text read as something else.
    """
    return _CONTROLS.sub(_symbol, text)


def _symbol(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code == 0x7F:
        return "␡"
    return chr(0x2400 + code) if code < 0x20 else f"<U+{code:04X}>"
