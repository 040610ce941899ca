"""Runs the visible tests of an exercise in this process, for code that we made ourselves.

The text is the one that the agent's own test command prints, so that what a policy learns here holds there.
"""

from __future__ import annotations

import signal
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from sanderling.types import JsonValue
from sanderling.verify.recording import RecordedFunction, call_text, difference
from sanderling.verify.values import decode, encode, has_opaque

CUT_OFF_S = 0.05


class CutOff(BaseException):
    """A trial took too long. Not an Exception, so that no `except Exception` of a mutant catches it."""


def _cut_off(signum: int, frame: FrameType | None) -> None:
    raise CutOff


@contextmanager
def cut_off_after(seconds: float = CUT_OFF_S) -> Generator[None]:
    """Raise `CutOff` in the block after so many seconds of processor time. Main thread only."""
    previous = signal.signal(signal.SIGPROF, _cut_off)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """Calls of a function with what is right: encoded as in `sanderling.verify.values`."""

    name: str
    arguments: tuple[JsonValue, ...]
    expected: tuple[dict[str, JsonValue], ...]


def recorded_calls(source: str, name: str, arguments: Sequence[tuple[Any, ...]]) -> Calls | None:
    """Run the right function; None where a result is of an unknown type or too long to be shown."""
    function = RecordedFunction(source, name)
    encoded = tuple(encode(list(values)) for values in arguments)
    try:
        expected = tuple(function(values).as_json() for values in encoded)
    except CutOff:
        return None
    if has_opaque(list(expected)):
        return None
    return Calls(name=name, arguments=encoded, expected=expected)


def visible_text(source: str, calls: Calls) -> str:
    """Return what the visible tests print for `source`."""
    try:
        with cut_off_after():
            function = RecordedFunction(source, calls.name)
            for arguments, expected in zip(calls.arguments, calls.expected, strict=True):
                seen = function(arguments).as_json()
                part = difference(expected, seen)
                if part is not None:
                    got, want = (_short(data) for data in (seen, expected))
                    return f"FAIL {call_text(calls.name, arguments)} -> {got}, expected {want}"
    except CutOff:
        return "timeout"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:100]
    return "ok"


def _short(data: dict[str, JsonValue]) -> str:
    return str(data["raised"]).rpartition(".")[2] if data["raised"] else repr(decode(data["value"]))[:80]
