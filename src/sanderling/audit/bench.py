"""Grading in numbers: one place where an audit's submissions are graded, a few at a time, each with a seed of its own."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from sanderling.errors import UntouchedPaid
from sanderling.sandbox.protocol import SandboxBackend
from sanderling.types import Evidence, Graded, Submission, Task
from sanderling.verify.protocol import Verifier


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What came of one grading."""

    reward: float | None  # None: ungraded, for the reason in `problem`
    seconds: float  # waiting for a slot not included
    evidence: Evidence | None = None
    problem: str = ""
    untouched_paid: bool = False  # the verifier itself found that it pays for doing nothing

    @property
    def paid(self) -> bool:
        """Anything above 0: for work that is wrong."""
        return self.reward is not None and self.reward > 0.0

    @property
    def full(self) -> bool:
        """All that there is: for work that is right."""
        return self.reward is not None and self.reward >= 1.0

    def why(self) -> str:
        """Return one line for people."""
        if self.problem:
            return self.problem[:300]
        notes = self.evidence.notes if self.evidence else ()
        return f"reward {self.reward}" + (f": {notes[-1][:200]}" if notes else "")


def seed_of(seed: int, *parts: str | int) -> int:
    """Return a seed in [0, 2^31) that follows from the audit's seed and from what it is for, in no other order of events."""
    text = "\0".join(map(str, (seed, *parts)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


class Bench:
    """Grades submissions with one verifier on one backend.

    Args:
        verifier: that is examined.
        backend: in which it grades.
        slots: gradings at once.
        seed: of the audit.
    """

    def __init__(self, verifier: Verifier, backend: SandboxBackend, *, slots: int, seed: int) -> None:
        self.verifier = verifier
        self.backend = backend
        self.seed = seed
        self.slots = slots
        self._free = asyncio.Semaphore(slots)
        self.seconds: list[float] = []  # of every grading that came to a verdict

    async def grade(
        self, task: Task, files: Mapping[str, bytes], *, seed: int, backend: SandboxBackend | None = None
    ) -> Attempt:
        """Grade a submission of whole files.

        Anything but a verdict is an attempt without a reward, with the reason in `problem`.
        """
        submission = Submission(files=dict(files))
        return await self._timed(lambda: self.verifier.grade(task, submission, backend or self.backend, seed))

    async def control(self, task: Task, *, seed: int, backend: SandboxBackend | None = None) -> Attempt:
        """Grade what the verifier holds for right."""
        return await self._timed(lambda: self.verifier.control(task, backend or self.backend, seed))

    async def _timed(self, grading: Callable[[], Awaitable[Graded]]) -> Attempt:
        async with self._free:
            began = time.monotonic()
            try:
                graded = await grading()
            except Exception as error:  # whatever a foreign verifier raises is a finding about it, no end of the audit
                return Attempt(
                    reward=None,
                    seconds=time.monotonic() - began,
                    problem=f"{type(error).__name__}: {error}",
                    untouched_paid=isinstance(error, UntouchedPaid),
                )
            seconds = time.monotonic() - began
            self.seconds.append(seconds)
            return Attempt(reward=graded.reward, seconds=seconds, evidence=graded.evidence)
