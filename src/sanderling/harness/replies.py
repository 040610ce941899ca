"""Answers to the calls of one action, in order, each bound to its call."""

from __future__ import annotations

from collections.abc import Sequence

from sanderling.harness.protocol import Reply
from sanderling.harness.tools import CallError


def refusal(error: CallError) -> Reply:
    """Return the answer to a call that was not dispatched."""
    return Reply(text=f"error: {error.message}", source="system", bad_calls=(error.kind,))


def merge(replies: Sequence[Reply]) -> Reply:
    """Join the answers to the calls of one action, in order, each bound to its call by number."""
    texts = tuple(f"[{number}] {reply.text}" for number, reply in enumerate(replies, 1))
    return Reply(
        text="\n".join(texts),
        parts=texts,
        source="tests" if any(reply.source == "tests" for reply in replies) else "tool",
        stop=replies[-1].stop,
        fold=replies[-1].fold,
        bad_calls=tuple(kind for reply in replies for kind in reply.bad_calls),
        exit_code=next((reply.exit_code for reply in reversed(replies) if reply.exit_code is not None), None),
        duration_s=sum(reply.duration_s for reply in replies),
        omitted_bytes=sum(reply.omitted_bytes for reply in replies),
        commands=sum(reply.commands for reply in replies),
    )
