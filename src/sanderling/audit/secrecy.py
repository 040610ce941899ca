"""Whether anything hidden stands in what the agent can read. Lines are compared, so that indentation hides nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from sanderling.sandbox.protocol import Command, ExecResult, SandboxBackend, SandboxSpec
from sanderling.types import Task

_SCAN = Path(__file__).with_name("file_scan.py").read_bytes()
_LEAST_PAIR, _LEAST_LINE = 24, 40  # characters: shorter ones stand in any program
_MOST = 40  # needles of one hidden file
_SCAN_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Needle:
    """Two consecutive lines, or one long line, of something hidden."""

    source: str  # name of what it is from
    first: str
    second: str = ""  # empty: the line alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A needle that was found."""

    place: str
    needle: Needle

    def __str__(self) -> str:
        shown = self.needle.first + (f" / {self.needle.second}" if self.needle.second else "")
        return f"{self.needle.source} in {self.place}: {shown[:100]!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What a search of a whole sandbox read."""

    files: int
    bytes: int
    skipped: int  # larger than a mebibyte, or not readable
    hits: tuple[Hit, ...]


def needles(task: Task, hidden: Mapping[str, bytes]) -> list[Needle]:
    """Return what to search for: pairs of lines that aren't the task's own, and long lines of tests."""
    known = {line for content in task.base.values() for line in _lines(content)}
    found: list[Needle] = []
    for name, content in hidden.items():
        lines = _lines(content)
        fresh: list[Needle] = []
        for first, second in pairwise(lines):
            new = first not in known or second not in known
            if new and len(first) + len(second) >= _LEAST_PAIR and min(len(first), len(second)) >= 4:
                fresh.append(Needle(source=name, first=first, second=second))
        fresh += [Needle(source=name, first=line) for line in lines if line not in known and len(line) >= _LEAST_LINE]
        step = max(1, len(fresh) // _MOST)
        found += fresh[::step][:_MOST]
    return found


def search(places: Mapping[str, bytes], wanted: Iterable[Needle]) -> list[Hit]:
    """Return the needles that stand in texts, by the name of the text."""
    hits = []
    wanted = list(wanted)
    for place, content in places.items():
        lines = _lines(content)
        alone, pairs = set(lines), set(pairwise(lines))
        hits += [
            Hit(place=place, needle=needle)
            for needle in wanted
            if ((needle.first, needle.second) in pairs if needle.second else needle.first in alone)
        ]
    return hits


async def scan_sandbox(
    backend: SandboxBackend, spec: SandboxSpec, setup: Iterable[tuple[str, ...]], wanted: list[Needle]
) -> Scan:
    """Search every file that a command in an agent's sandbox can read, process environments and command lines included.

    Raises:
        SandboxError: the sandbox failed. ValueError: the search came to no end.
    """
    tools = {**spec.readonly, "file_scan.py": _SCAN}
    sandbox = await backend.create(replace(spec, readonly=tools))
    try:
        for argv in setup:
            await sandbox.exec(Command(argv=argv, timeout_s=spec.limits.setup_s))
        asked = json.dumps([[needle.first, needle.second] for needle in wanted]).encode()
        result = await sandbox.exec(
            Command(argv=("python3", "-I", "-S", "/tools/file_scan.py"), stdin=asked, timeout_s=_SCAN_S, cpu_s=_SCAN_S)
        )
        return _read(result, wanted)
    finally:
        await sandbox.destroy()


def _read(result: ExecResult, wanted: list[Needle]) -> Scan:
    if result.exit_code != 0 or result.timed_out:
        said = result.stderr[-200:].decode("utf-8", "replace")
        raise ValueError(
            f"the search ended with exit code {result.exit_code} after {result.duration_s:.0f} s: {said!r}"
        )
    answer = json.loads(result.stdout)
    hits = tuple(Hit(place=place, needle=wanted[index]) for place, index in answer["hits"])
    return Scan(files=answer["files"], bytes=answer["bytes"], skipped=answer["skipped"], hits=hits)


def _lines(content: bytes) -> list[str]:
    return [line.strip() for line in content.decode("utf-8", "replace").splitlines() if line.strip()]
