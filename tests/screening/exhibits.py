"""Finished episodes for the tests of screens."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from sanderling.testing import records
from sanderling.testing.sandboxes import MemoryBackend
from sanderling.types import Evidence, Exhibit, Finding, Graded, Refusal, Submission, Task

TASK = Task(
    id="toy/train/one",
    prompt="Fix it.",
    base={"solution.py": b"def f(x):\n    return x\n", "tests/test_f.py": b"def test_f():\n    assert f(1) == 2\n"},
    editable=("solution.py",),
)


def exhibit(
    turns: Sequence[tuple[str, str]] = (),
    *,
    files: Mapping[str, bytes] | None = None,
    refused: Sequence[Refusal] = (),
    reward: float = 0.0,
    evidence: Evidence | None = None,
) -> Exhibit:
    """Return an episode of (action, observation) turns that handed in `files`."""
    record = records.trajectory([records.turn(action, seen) for action, seen in turns])
    return Exhibit(
        task=TASK,
        rows=(record,),
        submission=Submission(files=files or {}, refused=tuple(refused)),
        verdict=Graded(reward=reward, evidence=evidence),
    )


def look(screen, shown: Exhibit) -> list[Finding]:
    return list(asyncio.run(screen.look(shown, MemoryBackend(), 0)))


def named(findings: Sequence[Finding]) -> list[tuple[str, str, int | None]]:
    return [(found.screen, found.severity, found.turn) for found in findings]
