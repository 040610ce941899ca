"""What is true: a verifier judges the change that left the sandbox, elsewhere, after every process of the agent is dead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from sanderling.sandbox.protocol import SandboxBackend
from sanderling.types import Graded, Submission, Task


class Verifier(Protocol):
    async def grade(self, task: Task, submission: Submission, backend: SandboxBackend, seed: int) -> Graded:
        """Judge a submission in a fresh place.

        Anything that the submission does (crash, hang, forged output) is a reward of 0; only our own failure raises.
        `seed` is secret from the agent and fresh per grading; the same seed gives the same hidden inputs.

        Raises:
            VerifierError: grading failed for a reason that says nothing about the work.
            SandboxLost: the grading sandbox was lost.
        """
        ...

    async def control(self, task: Task, backend: SandboxBackend, seed: int) -> Graded:
        """Grade the known-right solution in the same way: tells a broken verifier from a submission that crashed it."""
        ...


@runtime_checkable
class DisclosingVerifier(Verifier, Protocol):
    """A verifier that gives its right solution to an audit. Nothing of it may reach an agent."""

    def right_files(self, task: Task) -> Mapping[str, bytes]:
        """Return the files of the right solution that differ from the task's own, by path in the workspace."""
        ...
