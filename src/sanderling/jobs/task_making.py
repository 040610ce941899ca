"""Make bug-fixing tasks from a code base, with progress for people."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from sanderling.assemble import check_backend, load_backend
from sanderling.synthesis.code_base import read_code_base
from sanderling.synthesis.making import MakeResult, MakeSettings, Progress, make_tasks

_EVERY_S = 10.0  # between two lines of progress where nobody watches them change
_BAR = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeTasks:
    """What a finished making says of itself."""

    out: Path
    result: MakeResult

    def as_json(self) -> dict[str, Any]:
        result, progress = self.result, self.result.progress
        aside = sorted((reason.value, name) for name, reason in result.census.aside.items())
        making_s = progress.wall_s - result.prepared_s
        return {
            "out": str(self.out),
            "code": result.code.name,
            "version": result.code.version,
            "admitted": progress.admitted,
            "wanted": progress.wanted,
            "tried": progress.tried,
            "outcomes": dict(sorted(progress.outcomes.items())),
            "families": dict(sorted(result.families.items())),
            "splits": dict(sorted(result.splits.items())),
            "stable_tests": len(result.census.stable),
            "set_aside": [{"test": name, "reason": reason} for reason, name in aside],
            "not_importable": list(result.census.broken),
            "left_out": list(result.code.left_out),
            "resumed": result.resumed,
            "wall_s": round(progress.wall_s, 1),
            "prepared_s": round(result.prepared_s, 1),
            "tried_per_minute": round(60 * (progress.tried - result.resumed) / making_s, 2) if making_s > 0 else 0.0,
        }

    def lines(self) -> list[str]:
        """Return the summary by reason."""
        data = self.as_json()
        found = [
            f"{data['admitted']} of {data['wanted']} tasks from {data['code']} {data['version']} in {data['wall_s']:.0f} s, "
            f"{data['tried']} bugs tried ({data['tried_per_minute']:.1f} a minute): {self.out}"
        ]
        found += [f"  {count:5d}  {outcome}" for outcome, count in by_count(data["outcomes"])]
        found.append("splits: " + ", ".join(f"{name} {count}" for name, count in data["splits"].items()))
        found.append("families: " + ", ".join(f"{name} {count}" for name, count in by_count(data["families"])))
        found.append(f"suite: {data['stable_tests']} stable tests, {len(data['set_aside'])} set aside")
        found += [f"  {entry['reason']}: {entry['test']}" for entry in data["set_aside"]]
        found += [f"  not importable: {name}" for name in data["not_importable"]]
        if data["left_out"]:
            found.append("left out of the workspace:")
            found += [f"  {name}" for name in data["left_out"]]
        return found


def by_count(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return names with their counts, most frequent first."""
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


async def make_tasks_from(path: Path, out: Path, settings: MakeSettings, backend: str, stream: TextIO) -> MadeTasks:
    """Make tasks below `out` from the code base at `path`; see `synthesis.making.make_tasks`.

    Args:
        backend: name of the sandbox backend.
        stream: takes the progress: a line that changes on a terminal, one every ten seconds elsewhere.
    """
    code = await asyncio.to_thread(read_code_base, path)
    chosen = load_backend(backend)
    shown = MakingProgress(stream)
    try:
        await asyncio.to_thread(check_backend, chosen)
        result = await make_tasks(code, out, settings, chosen, shown.tell)
    finally:
        shown.end()
        await chosen.close()
    return MadeTasks(out=out, result=result)


class MakingProgress:
    """Writes where a making stands."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._written = 0.0
        self._open = False

    def tell(self, what: str, progress: Progress | None) -> None:
        """Implements `synthesis.making.Listener`."""
        now = time.monotonic()
        last = progress is not None and progress.admitted >= progress.wanted
        if progress is None:
            self.end()
            self._stream.write(f"{what}\n")
        elif self._live:
            self._stream.write(f"\r\033[K{progress_line(progress)}")
            self._open = True
        elif last or now - self._written >= _EVERY_S:
            self._stream.write(f"{progress_line(progress)}; last: {what}\n")
            self._written = now
        self._stream.flush()

    def end(self) -> None:
        """End the line that is being changed."""
        if self._open:
            self._stream.write("\n")
            self._open = False


def progress_line(progress: Progress) -> str:
    """Return one line: a bar, tasks of tasks wanted, bugs tried, and why others were rejected."""
    full = _BAR * progress.admitted // max(1, progress.wanted)
    rejected = ", ".join(f"{count} {name}" for name, count in by_count(progress.outcomes) if name != "admitted")
    bar = "#" * full + "." * (_BAR - full)
    return f"[{bar}] {progress.admitted}/{progress.wanted} tasks, {progress.tried} bugs tried; {rejected or 'none rejected'}"
