"""One task under examination: what the checks of a task share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sanderling.audit.bench import Attempt, Bench, seed_of
from sanderling.environment import Environment
from sanderling.sandbox.protocol import SandboxBackend
from sanderling.types import Task
from sanderling.verify.protocol import Auditable, Verifier


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """How much is run. The defaults are those of a certificate; less measures less, and the intervals say so."""

    gold_runs: int = 20  # of the right solution, per task
    flake_runs: int = 59  # under load, for the tasks of the sample: excludes flake rates from 5 % on
    wrong_patches: int = 20  # per task, at most
    extra_seeds: int = 6  # gradings of a paid mutant with other hidden inputs, before it is taken for equivalent
    sample: int = 3  # tasks for what belongs to the grader more than to the task: faults, limits, load, hidden inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A task with what its verifier discloses of it."""

    environment: Environment
    task: Task
    bench: Bench
    depth: Depth
    solution: Mapping[str, bytes] | None  # None: the verifier discloses none
    hidden: Mapping[str, bytes]
    undisclosed: str = ""  # why there is no solution

    def seed(self, purpose: str, number: int = 0) -> int:
        return seed_of(self.bench.seed, self.task.id, purpose, number)

    async def grade(self, files: Mapping[str, bytes], purpose: str, number: int = 0) -> Attempt:
        return await self.bench.grade(self.task, files, seed=self.seed(purpose, number))

    async def right(
        self, purpose: str, number: int = 0, *, task: Task | None = None, backend: SandboxBackend | None = None
    ) -> Attempt:
        """Grade the right solution: as a submission where it is known, else by the verifier's own control."""
        task, seed = task or self.task, self.seed(purpose, number)
        if self.solution is None:
            return await self.bench.control(task, seed=seed, backend=backend)
        return await self.bench.grade(task, self.solution, seed=seed, backend=backend)


async def subject_of(
    environment: Environment, task: Task, bench: Bench, depth: Depth, *, reference: Verifier | None = None
) -> Subject:
    """Ask the verifier for what it discloses of a task. `reference`: another verifier that knows the right solution."""
    knows = reference or environment.verifier
    solution, hidden, why = None, {}, ""
    if isinstance(knows, Auditable):
        try:
            hidden = knows.hidden(task)
            solution = await knows.solution(task, bench.backend)
        except Exception as error:  # a broken task is a finding, whatever it raises
            why = f"{type(error).__name__}: {error}"
    else:
        why = f"{type(knows).__name__} discloses no solution (see verify.protocol.Auditable)"
    return Subject(
        environment=environment,
        task=task,
        bench=bench,
        depth=depth,
        solution=solution or None,
        hidden=hidden,
        undisclosed=why if solution else why or "the solution changes nothing",
    )
