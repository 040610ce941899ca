"""Reads the observer's answers: data from an untrusted process, believed only where it is exactly what was asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sanderling.types import JsonValue

MAX_LINE_BYTES = 500_000
_EXTRA_LINES = 100
MAX_NESTING = 200  # levels of JSON; a value is encoded down to `values.MAX_DEPTH`, at most three levels each


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came over the channel."""

    started: bool  # the observer ran: its first line came before any of the agent's code was loaded
    answers: Mapping[str, Mapping[str, JsonValue]]  # by nonce; calls that were answered exactly once, in order
    complete: bool  # every call was answered and the last line came last
    notes: tuple[str, ...]  # what was wrong with it


def read_report(output: bytes, ready: str, nonces: Sequence[str], done: str) -> Report:
    """Read the answers to calls with these nonces.

    The only valid report is: ready, the calls in order, done. A line that is anything else is forged, and a forged line
    takes its call's answer away where it names one.
    """
    lines = output.split(b"\n", len(nonces) + _EXTRA_LINES)  # our time is limited too: what follows is one forged line
    notes: list[str] = []
    if lines and lines[-1] == b"":
        lines.pop()
    elif lines:
        notes.append("the last line of the report is not complete")
    parsed = [parse_line(line) for line in lines]
    started = bool(parsed) and parsed[0] == {"nonce": ready}
    expected = [*nonces, done]
    answers: dict[str, Mapping[str, JsonValue]] = {}
    seen: list[str] = []
    forged = repeated = 0
    for answer in parsed[1:] if started else parsed:
        nonce = None if answer is None else answer.get("nonce")
        if answer is not None and nonce == ready and set(answer) == {"nonce", "failed"}:
            failure = str(answer["failed"])[:60].encode("ascii", "backslashreplace").decode()
            notes.append(f"{failure} when the file was loaded")
        elif not isinstance(nonce, str) or nonce not in expected:
            forged += 1
        elif nonce in seen:
            repeated += 1
            answers.pop(nonce, None)
        else:
            seen.append(nonce)
            answers[nonce] = answer or {}
    if forged:
        notes.append(f"forged report: {forged} lines that answer no call")
    if repeated:
        notes.append(f"forged report: {repeated} calls answered more than once")
    if seen != expected[: len(seen)]:
        notes.append("forged report: answers in another order than the calls")
    complete = started and seen == expected and not notes
    return Report(started=started, answers=answers, complete=complete, notes=tuple(notes))


def parse_line(line: bytes) -> dict[str, JsonValue] | None:
    if len(line) > MAX_LINE_BYTES:
        return None
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):  # a line may nest as deep as it likes
        return None
    return data if isinstance(data, dict) and _is_shallow(data) else None


def _is_shallow(data: JsonValue) -> bool:
    """Whether a value nests no deeper than `MAX_NESTING`, found without recursion."""
    level: list[JsonValue] = [data]
    for _ in range(MAX_NESTING):
        containers = [item for item in level if isinstance(item, list | dict)]
        level = [inner for item in containers for inner in (item.values() if isinstance(item, dict) else item)]
        if not level:
            return True
    return False
