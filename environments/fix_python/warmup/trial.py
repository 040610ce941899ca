"""Runs the visible tests of an exercise in this process, for code that we made ourselves.

The report is made by the agent's own test program, `fix_python.visible`, so that what a policy learns here holds there.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fix_python import visible
from sanderling.types import JsonValue
from sanderling.verify.recording import RecordedFunction
from sanderling.verify.values import encode, has_opaque

REPORT_CHARACTERS = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """Calls of a function with what is right, as in the environment's examples.json."""

    name: str
    examples: tuple[dict[str, JsonValue], ...]


@contextmanager
def cut_off_after(seconds: float) -> Generator[None]:
    """Raise `visible.Timeout` in the block after so many seconds of processor time. Main thread only.

    Standard output and the signals' handlers are as before afterwards.
    """
    stdout = sys.stdout
    handlers = [(number, signal.signal(number, visible.cut_off)) for number in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        visible.limit(0, 0)
        for number, handler in handlers:
            signal.signal(number, handler)
        sys.stdout = stdout


def recorded_calls(source: str, name: str, arguments: Sequence[tuple[Any, ...]]) -> Calls | None:
    """Run the right function; None where it does not end or shows a value of an unknown type."""
    try:
        with cut_off_after(visible.CALL_CPU_S):
            function = RecordedFunction(source, name)
            encoded = [encode(list(values)) for values in arguments]
            examples = tuple({"call": values, **function(values).as_json()} for values in encoded)
    except visible.Timeout:
        return None
    return Calls(name=name, examples=examples) if _shown(examples) else None


def _shown(examples: tuple[dict[str, JsonValue], ...]) -> bool:
    """Return whether the visible tests know all the kinds of values, which leaves out huge numbers for one."""
    try:
        for example in examples:
            visible.decode([example["call"], example["arguments"], example["value"]])
    except KeyError:
        return False
    return not has_opaque(list(examples))


def visible_report(source: str, calls: Calls) -> tuple[str, bool]:
    """Return what the visible tests print about `source`, as the harness shows it, and whether all calls are right."""
    try:
        with cut_off_after(visible.CALL_CPU_S):
            lines, passed = _report(source, calls)
    except visible.Timeout:  # at the top level, or a second alarm just after a call that was cut off
        lines, passed = [f"ok 0 of {len(calls.examples)}", "timeout"], False
    return "\n".join(lines)[:REPORT_CHARACTERS].strip(), passed


def _report(source: str, calls: Calls) -> tuple[list[str], bool]:
    namespace: dict[str, Any] = {"__name__": "solution"}
    try:
        exec(compile(source, "solution.py", "exec"), namespace)
    except visible.Timeout:
        raise
    except BaseException as error:
        return [f"error: {type(error).__name__}{visible.place(error)}"], False
    visible.limit(0, 0)
    if calls.name not in namespace:
        return [f"error: no function {calls.name}"], False
    return visible.report(namespace[calls.name], calls.name, calls.examples)
