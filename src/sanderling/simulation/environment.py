"""Tasks, sandbox, harness and verifier in simulated time: they wait for what the episode's script says, and fail with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sanderling.engine.protocol import Engine, SamplingParams
from sanderling.environment import Environment
from sanderling.errors import SandboxBroken, SandboxLost, TaskError, VerifierError
from sanderling.harness.protocol import Codec, Continuation, Conversation, Reply
from sanderling.harness.tokenizer import Tokenizer
from sanderling.rollout.episode import Stage
from sanderling.rollout.task_stream import TaskStream
from sanderling.sandbox.protocol import Capabilities, Command, ExecResult, Sandbox, SandboxBackend, SandboxSpec
from sanderling.simulation.world import TokenKind, World
from sanderling.types import Action, Evidence, Graded, Group, Int32Array, Limits, StopReason, Submission, Task

HANDED_IN = "script"  # the one file of a submission: what the verifier has to know
_NO_LIMIT = 10**9  # where the scripts end by the limit themselves
_EVIDENCE = Evidence(
    required=1, executed=1, passed=1, canary_failed=True, processes_gone=True, channel="simulated", isolation="none"
)


class ScriptedStream(TaskStream):
    """A task for each group, without end: the scripts go by the group's number."""

    def __init__(self, environment: Environment, *, seed: int) -> None:
        self.environment = environment
        self.seed = seed

    @property
    def empty(self) -> bool:
        """False: nothing is set aside."""
        return False

    def observe(self, groups: Sequence[Group]) -> None:
        """Do nothing: all tasks are of one kind."""

    def task(self, position: int) -> Task:
        return self.environment.tasks.get(f"simulated/{position}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tasks:
    world: World
    limits: Limits

    def splits(self) -> tuple[str, ...]:
        return ("train",)

    def ids(self, split: str) -> Sequence[str]:
        raise TaskError(f"the tasks of a simulation have no end, so the split {split!r} can't be listed")

    def get(self, task_id: str) -> Task:
        group = int(task_id.rpartition("/")[2])
        return Task(id=task_id, prompt=str(self.world.workload.prompt_tokens(group)), base={}, limits=self.limits)


class _Harness:
    """Implements `Harness`."""

    def __init__(self, world: World) -> None:
        self._world = world

    def prompt(self, task: Task) -> str:
        return task.prompt

    def start(self, task: Task, sandbox: Sandbox) -> Conversation:
        assert isinstance(sandbox, SimulatedSandbox)
        return _Tools(self._world, sandbox)

    def codec(self, tokenizer: Tokenizer) -> Codec:
        return SimulatedCodec(self._world)


class _Tools:
    """Implements `Conversation`: an action is the number of its episode."""

    def __init__(self, world: World, sandbox: SimulatedSandbox) -> None:
        self._world = world
        self._sandbox = sandbox

    async def act(self, text: str) -> Reply:
        play = self._world.plays[int(text)]
        part, script = play.current, play.script
        self._sandbox.handed_in = {"grade_s": script.grade_s, "reward": script.reward, "stop": script.stop.value}
        await self._world.machine.run(part.tools_s)
        if play.at_the_end:
            return self._end(script.stop, part.turns)
        play.move_on()
        return Reply(text=str(part.observation_tokens), commands=part.turns, duration_s=part.tools_s)

    def _end(self, stop: StopReason, commands: int) -> Reply:
        if stop is StopReason.SANDBOX_LOST:
            raise SandboxLost("the sandbox is lost, as the script says")
        if stop is StopReason.SANDBOX_BROKEN:
            raise SandboxBroken("the agent breaks its sandbox, as the script says")
        return Reply(
            text="", stop=StopReason.SUBMITTED if stop is StopReason.VERIFIER_ERROR else stop, commands=commands
        )


class SimulatedCodec:
    """Implements `Codec` and `Transcript`: texts are numbers of tokens, and actions numbers of episodes."""

    def __init__(self, world: World, prompt: str = "1") -> None:
        self._world = world
        self.prompt_ids = self.encode_prompt(prompt)

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        return ()

    def encode_prompt(self, text: str) -> Int32Array:
        return self._world.ids(TokenKind.PROMPT, int(text))

    def open(self, prompt: str) -> SimulatedCodec:
        return SimulatedCodec(self._world, prompt)

    def decode_action(self, token_ids: Int32Array) -> str:
        return str(int(token_ids[0]))

    def extend(self, action: Action, observations: Sequence[str]) -> Continuation:
        return Continuation(token_ids=self._world.ids(TokenKind.OBSERVATION, int(observations[0])))


class SimulatedSandbox:
    """Implements `Sandbox`: it holds what is handed in, and nothing runs in it."""

    def __init__(self, world: World, number: int) -> None:
        self.id = f"simulated-{number}"
        self.handed_in: dict[str, float | str] = {}
        self._world = world
        self._alive = True
        world.count_sandboxes(1)

    async def state_key(self) -> str:
        return ""

    async def exec(self, command: Command) -> ExecResult:
        raise SandboxLost(f"{command.argv[0]}: nothing runs in a simulated sandbox")

    async def read_file(self, path: str, max_bytes: int = 1_048_576) -> bytes:
        raise SandboxLost(f"{path}: a simulated sandbox has no files")

    async def write_file(self, path: str, content: bytes) -> None:
        raise SandboxLost(f"{path}: a simulated sandbox has no files")

    async def list_files(self) -> tuple[str, ...]:
        return ()

    async def fork(self) -> Sandbox:
        raise SandboxLost("a simulated sandbox can't be forked")

    async def submission(self, editable: Sequence[str], max_bytes: int = 1_048_576) -> Submission:
        return Submission(files={HANDED_IN: json.dumps(self.handed_in).encode()})

    async def destroy(self) -> None:
        if self._alive:
            self._alive = False
            self._world.count_sandboxes(-1)


class SimulatedBackend:
    """Implements `SandboxBackend`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._waits: Iterator[float] = world.workload.sandbox_s()
        self._created = 0

    def probe(self) -> Capabilities:
        return Capabilities(
            name="simulated", mode="time", isolation="none", usable=True, open_risks=("runs nothing",), missing=()
        )

    async def create(self, spec: SandboxSpec) -> SimulatedSandbox:
        await asyncio.sleep(next(self._waits))
        self._created += 1
        return SimulatedSandbox(self._world, self._created)

    async def close(self) -> None:
        return


class _Verifier:
    """Implements `Verifier`."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def grade(self, task: Task, submission: Submission, backend: SandboxBackend, seed: int) -> Graded:
        script = json.loads(submission.files[HANDED_IN])
        await self._world.machine.run(script["grade_s"])
        if script["stop"] == StopReason.VERIFIER_ERROR.value:
            raise VerifierError("grading fails, as the script says")
        return Graded(reward=script["reward"], evidence=_EVIDENCE)

    async def control(self, task: Task, backend: SandboxBackend, seed: int) -> Graded:
        return Graded(reward=1.0, evidence=_EVIDENCE)


def simulated_stage(world: World, engine: Engine, episode_s: float) -> Stage:
    """Return the parts of episodes that follow the world's scripts; their tools are cut after `episode_s` seconds."""
    limits = Limits(
        sandbox_create_s=_NO_LIMIT,
        model_call_s=_NO_LIMIT,
        episode_s=episode_s,
        grading_s=_NO_LIMIT,
        max_turns=_NO_LIMIT,
        max_context_tokens=_NO_LIMIT,
        max_action_tokens=_NO_LIMIT,
    )
    environment = Environment(
        name="simulated",
        version="1",
        tasks=_Tasks(world=world, limits=limits),
        harness=_Harness(world),
        verifier=_Verifier(world),
        tools={},
    )
    backend = SimulatedBackend(world)
    return Stage(
        environment=environment,
        backend=backend,
        engine=engine,
        codec=SimulatedCodec(world),
        sampling=SamplingParams(),
        capabilities=backend.probe(),
    )
