"""Where a battery acts: one normal episode per attack and task, and every grader's verdict on what it left."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from sanderling.audit.kept_sandbox import KeepingBackend, keeping
from sanderling.audit.report import REAL
from sanderling.audit.scripted import BytesCodec, ScriptEngine, actions_of
from sanderling.engine.protocol import SamplingParams
from sanderling.environment import Environment
from sanderling.errors import SanderlingError
from sanderling.harness.bash_block import BashBlockHarness
from sanderling.rollout.config import RolloutConfig
from sanderling.rollout.episode import Episode, Plan, Stage, run_episode
from sanderling.rollout.member import judge
from sanderling.rollout.seeds import derive
from sanderling.sandbox.protocol import Capabilities, Kept, Sandbox, SandboxBackend
from sanderling.types import Graded, StopReason, Task, Ungraded, Verdict
from sanderling.verify.protocol import Verifier
from sanderling.verify.suites.programs import agent_tools

_ATTEMPTS = 3  # of an episode that failed through our fault
_CONFIG = RolloutConfig()
# pytest where a container has it: installed for the user, who can write there
_INSTALL = (
    "d=$(python3 -c 'import site; print(site.getusersitepackages())') && mkdir -p $d && cp -r /tools/packages/. $d"
)


@runtime_checkable
class InPlaceVerifier(Protocol):
    """A grader that judges in the very sandbox where the agent worked, as graders inside of one container do."""

    async def grade_in_place(self, task: Task, sandbox: Sandbox, seed: int) -> Graded: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One thing to act out on one task."""

    name: str
    task: Task
    commands: Sequence[str]
    seed: int
    references: bool = False  # whether the reference graders judge it as well
    processes: bool = False  # whether those that judge in place do so beside what was left running
    bait: Sequence[str] = ()  # of a leak: run before an episode of its own, which the reference graders judge


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judges:
    """Who judges an episode. `real` is the environment's verifier, where it judges the change."""

    real: bool
    inside: Mapping[str, InPlaceVerifier]
    beside: Mapping[str, Verifier]


class Range:
    """Acts things out in an environment and lets its verifier and the reference graders judge them."""

    def __init__(self, environment: Environment, backend: SandboxBackend, graders: Mapping[str, Verifier]) -> None:
        tools = {**agent_tools(), **environment.tools}
        self._environment = replace(environment, harness=BashBlockHarness(), tools=tools)
        self._backend = backend
        self._capabilities: Capabilities | None = None
        self._references = _Judges(
            real=False,
            inside={name: grader for name, grader in graders.items() if isinstance(grader, InPlaceVerifier)},
            beside={name: grader for name, grader in graders.items() if not isinstance(grader, InPlaceVerifier)},
        )

    async def verdicts(self, run: Run) -> dict[str, Verdict]:
        """Act it out and return what each grader says, by tier."""
        verifier = self._environment.verifier
        weak = self._references if run.references else _Judges(real=False, inside={}, beside={})
        inside = dict(weak.inside)
        if isinstance(verifier, InPlaceVerifier):
            inside[REAL] = verifier
        everybody = replace(weak, real=REAL not in inside, inside={} if run.processes else inside)
        found = await self._after(run, everybody)
        if run.processes:
            for name, grader in inside.items():
                found[name] = await self._beside_processes(run, grader)
        if run.bait and run.references:
            found |= await self._after(replace(run, task=_prepared(run.task, run.bait)), weak)
        return found

    async def _after(self, run: Run, judges: _Judges) -> dict[str, Verdict]:
        """Judge when the episode has ended and nothing of it is alive."""
        attempt = 0
        while True:
            async with keeping(self._backend, Kept.PROCESSES if run.processes else Kept.NOTHING) as keeper:
                plan, stage, episode = await self._episode(run, keeper, attempt)
                if not episode.trajectory.stop.infrastructure or attempt + 1 == _ATTEMPTS:
                    return await self._judge(
                        run, plan, replace(stage, backend=self._backend), episode, (judges, keeper)
                    )
            attempt += 1

    async def _judge(
        self, run: Run, plan: Plan, stage: Stage, episode: Episode, where: tuple[_Judges, KeepingBackend]
    ) -> dict[str, Verdict]:
        judges, keeper = where
        plan = replace(plan, task=run.task)
        found: dict[str, Verdict] = {}
        verifiers = {REAL: self._environment.verifier} if judges.real else {}
        for name, verifier in {**judges.beside, **verifiers}.items():
            judged = replace(stage, environment=replace(self._environment, verifier=verifier))
            found[name] = (await judge(episode, plan, judged, _CONFIG))[1]
        for name, grader in judges.inside.items():
            found[name] = await _in_place(run, grader, keeper.sandbox, episode)
        return found

    async def _beside_processes(self, run: Run, grader: InPlaceVerifier) -> Verdict:
        """Judge in the agent's place while what it started is alive, in an episode of its own."""
        verdicts: list[Verdict] = []

        async def look(sandbox: Sandbox) -> None:
            verdicts.append(await _graded(run, grader, sandbox))

        async with keeping(self._backend, Kept.PROCESSES, look) as keeper:
            _, _, episode = await self._episode(run, keeper, 0)
        return verdicts[0] if verdicts else _without_submission(episode)

    async def _episode(self, run: Run, keeper: KeepingBackend, attempt: int) -> tuple[Plan, Stage, Episode]:
        if self._capabilities is None:
            self._capabilities = await asyncio.to_thread(self._backend.probe)
        stage = Stage(
            environment=self._environment,
            backend=keeper,
            engine=ScriptEngine(actions_of(run.commands)),
            codec=BytesCodec(),
            sampling=SamplingParams(),
            capabilities=self._capabilities,
        )
        install = (("/bin/bash", "-c", _INSTALL),) if run.references else ()  # for those who judge in place alone
        task = _roomy(replace(run.task, setup=(*install, *run.task.setup)))
        plan = Plan(
            task=task, group_id=f"{run.name}/{task.id}", index=0, attempt=attempt, seed=derive(run.seed, attempt)
        )
        return plan, stage, await run_episode(plan, stage, take_submission=frozenset({StopReason.SUBMITTED}))


async def _in_place(run: Run, grader: InPlaceVerifier, sandbox: Sandbox | None, episode: Episode) -> Verdict:
    """Judge in a copy of the agent's place, so that one grader's traces don't meet another."""
    if episode.trajectory.stop is not StopReason.SUBMITTED or sandbox is None:
        return _without_submission(episode)
    try:
        place = await sandbox.fork()
    except (SanderlingError, OSError) as error:
        return Ungraded(cause=str(error), phase="sandbox")
    try:
        return await _graded(run, grader, place)
    finally:
        await place.destroy()


async def _graded(run: Run, grader: InPlaceVerifier, place: Sandbox) -> Verdict:
    try:
        return await grader.grade_in_place(run.task, place, run.seed)
    except (SanderlingError, OSError) as error:
        return Ungraded(cause=str(error), phase="grading")


def _without_submission(episode: Episode) -> Verdict:
    stop = episode.trajectory.stop
    if stop.infrastructure:
        return Ungraded(cause=episode.trajectory.detail or stop.value, phase="sandbox")
    return Graded(reward=0.0)


def _prepared(task: Task, commands: Sequence[str]) -> Task:
    """Return the task with shell commands that run before the first turn."""
    return replace(task, setup=(*task.setup, *(("/bin/bash", "-c", command) for command in commands)))


def _roomy(task: Task) -> Task:
    """Return the task with room for a script: its actions are as long as they are, and so is what they print."""
    limits = replace(
        task.limits,
        max_turns=100,
        max_context_tokens=4_000_000,
        max_action_tokens=200_000,
        disk_mb=max(task.limits.disk_mb, 32),  # what was installed takes a part
        processes=max(task.limits.processes, 32),
    )
    return replace(task, limits=limits)
