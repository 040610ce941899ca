"""An environment is a composition: tasks + harness + verifier. The sandbox backend and the limits come from the run."""

from __future__ import annotations

from dataclasses import dataclass

from sanderling.harness.protocol import Harness
from sanderling.sandbox.protocol import Kept, SandboxSpec
from sanderling.tasks.protocol import TaskSet
from sanderling.types import Signal, Task
from sanderling.verify.protocol import Verifier


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Everything that defines the work. Two environments with equal `name` and `version` give equal tasks and verdicts.

    Example::

        Environment(name="my_env", version="1", tasks=MyTasks(), harness=LineEditHarness(...), verifier=MyVerifier())
    """

    name: str
    version: str
    tasks: TaskSet
    harness: Harness
    verifier: Verifier
    tools: dict[str, bytes]  # read-only files at /tools in the agent's sandbox, such as the visible test runner
    test_argv: tuple[
        str, ...
    ] = ()  # the visible tests, for a harness that is named apart from the environment; (): none
    task_kind: str = ""  # key of the tasks' metadata that says what kind they are of; "": no kinds (see `TaskStream`)
    kept: Kept = Kept.NOTHING  # between the commands of an episode; INTERPRETER where those are warm scripts
    provides: frozenset[Signal] = frozenset()  # TURN_REWARDS, TURN_SCORES: what its harness says of single turns

    def sandbox_spec(self, task: Task) -> SandboxSpec:
        return SandboxSpec(
            files=task.base,
            readonly=self.tools,
            limits=task.limits,
            kept=self.kept,
            env=task.env,
            image=task.image,
            links={task.workdir: "/work"} if task.workdir else {},
        )
