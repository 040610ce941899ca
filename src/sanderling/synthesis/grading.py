"""The last gate: the verifier itself must pass the right solution and fail the bug."""

from __future__ import annotations

from dataclasses import dataclass

from sanderling.sandbox.protocol import SandboxBackend
from sanderling.synthesis.drafting import Draft
from sanderling.tasks.folder import TaskFolder


@dataclass(frozen=True, slots=True)
class Grader:
    backend: SandboxBackend

    @classmethod
    async def prepare(cls, code, layout, census, backend, tell) -> Grader:
        return cls(backend)

    async def admit(self, folder: TaskFolder) -> Draft:
        return Draft(folder=folder)
