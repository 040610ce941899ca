"""Reads what the runner said: data from an untrusted process, believed only where it is exactly what was asked for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sanderling.types import JsonValue
from sanderling.verify.report import parse_line

_EXTRA_LINES = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteReport:
    """What came over the channel of one run."""

    started: bool  # the first line came, before any code of the workspace was loaded
    done: bool  # the last line came last
    tests: Mapping[str, Mapping[str, JsonValue]]  # by key; tests that were reported exactly once
    notes: tuple[str, ...]  # what was wrong with it
    uncollected: tuple[str, ...] = ()  # files that could not be imported, with the error


def read_suite_report(output: bytes, nonce: str, keys: Collection[str] | None) -> SuiteReport:
    """Read the answers of a run that was asked for the tests `keys`; None: for all that there are.

    A line that nobody asked for is forged, and one about a test that was reported already takes its answer away.
    """
    lines = output.split(b"\n", -1 if keys is None else len(keys) + _EXTRA_LINES)
    parsed = [parse_line(line) for line in lines if line]
    started = bool(parsed) and parsed[0] == {"nonce": nonce, "ready": True}
    done = bool(parsed) and parsed[-1] == {"nonce": nonce, "done": True}
    tests: dict[str, Mapping[str, JsonValue]] = {}
    seen: set[str] = set()
    uncollected: list[str] = []
    forged = repeated = 0
    for answer in parsed[started : len(parsed) - done]:
        key = None if answer is None else answer.get("test")
        if answer is None or answer.get("nonce") != nonce:
            forged += 1
        elif key is None and isinstance(answer.get("collecting"), str):
            error = str(answer.get("error")).strip().rpartition("\n")[2]
            uncollected.append(f"{answer['collecting']} can't be imported: {error}"[:200])
        elif not isinstance(key, str) or (keys is not None and key not in keys):
            forged += 1
        elif key in seen:
            repeated += 1
            tests.pop(key, None)
        else:
            seen.add(key)
            tests[key] = answer
    notes = [f"forged report: {forged} lines that answer nothing"] if forged else []
    if repeated:
        notes.append(f"forged report: {repeated} tests reported more than once")
    return SuiteReport(started=started, done=done, tests=tests, notes=tuple(notes), uncollected=tuple(uncollected[:20]))
