"""Output as a policy reads it: head and tail, with the number of bytes between them stated."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """A bounded text and how many bytes of the whole are not in it."""

    text: str
    omitted_bytes: int


def excerpt(data: bytes, limit_bytes: int, *, already_omitted: int = 0, kept_bytes: int | None = None) -> Excerpt:
    """Return at most `limit_bytes` of the output, its head and its tail, and a line between them that says what is missing.

    Args:
        data: the output; bytes that aren't UTF-8 become U+FFFD.
        limit_bytes: at least 2; the line in the middle comes on top.
        already_omitted: bytes that a sandbox dropped from the middle of `data`.
        kept_bytes: how many bytes that sandbox keeps, the larger half at the head: says where the gap is.
    """
    limit = min(limit_bytes, kept_bytes) if already_omitted and kept_bytes is not None else limit_bytes
    if len(data) <= limit and not already_omitted:
        return Excerpt(text=data.decode("utf-8", "replace"), omitted_bytes=0)
    head, tail = data[: (limit + 1) // 2], data[max((limit + 1) // 2, len(data) - limit // 2) :]
    omitted = len(data) - len(head) - len(tail) + already_omitted
    texts = [part.decode("utf-8", "replace") for part in (head, tail)]
    return Excerpt(text=f"{texts[0]}\n[{omitted} bytes omitted]\n{texts[1]}", omitted_bytes=omitted)
