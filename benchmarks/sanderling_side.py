"""The sides of `against_trl.py` that run Sanderling, and a bare PyTorch loop for the updates.

Episodes go through the scheduler, the episode loop and the engine of a run. What is sampled is real: `action_tokens` tokens a
turn at temperature 1; what they mean is not: every action but the last is a call of the one tool. A sandbox in memory, and a
verifier that pays at once, stand where an environment has real ones.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from side_channel import Channel, Record, peak_mb
from training_overhead import bare_step

from sanderling.batch.config import BatchConfig
from sanderling.engine.protocol import SampleRequest, SamplingParams
from sanderling.engine.torch_engine import TorchEngine
from sanderling.engine.torch_model import ModelDtype, load_model
from sanderling.environment import Environment
from sanderling.harness.codec import PlainCodec
from sanderling.harness.protocol import Codec, Conversation, Reply
from sanderling.harness.tokenizer import FastTokenizer, Tokenizer
from sanderling.learn.config import LearnerConfig, OptimizerConfig
from sanderling.learn.learner import Learner
from sanderling.rollout.config import RolloutConfig
from sanderling.rollout.episode import Stage
from sanderling.rollout.lockstep import LockstepEngine
from sanderling.rollout.scheduler import run_evaluation
from sanderling.sandbox.protocol import Sandbox, SandboxBackend
from sanderling.testing.sandboxes import MemoryBackend
from sanderling.types import Action, Evidence, Graded, Group, Limits, StopReason, Submission, Task, TrainingRow


class WholeActions(TorchEngine):
    """An engine whose actions are whole when they have the most tokens that they may have."""

    async def generate_many(self, requests: Sequence[SampleRequest]) -> list[Action]:
        return [replace(action, finish_reason="stop") for action in await super().generate_many(requests)]


class OpenCodec(PlainCodec):
    """No token ends an action, so all have the same length."""

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        return ()


class LookHarness:
    """Every action calls the tool, which takes `latency_s` and says `text`; action number `turns` submits instead."""

    def __init__(self, turns: int, text: str) -> None:
        self.turns = turns
        self.text = text
        self.latency_s = 0.0
        self.gate: AbstractAsyncContextManager[Any] = nullcontext()  # a lock: one tool at a time

    def prompt(self, task: Task) -> str:
        return task.prompt

    def start(self, task: Task, sandbox: Sandbox) -> Conversation:
        return _Looks(self)

    def codec(self, tokenizer: Tokenizer) -> Codec:
        return OpenCodec(tokenizer)


class _Looks:
    def __init__(self, harness: LookHarness) -> None:
        self._harness = harness
        self._turns = 0

    async def act(self, text: str) -> Reply:
        self._turns += 1
        if self._turns == self._harness.turns:
            return Reply(text="", stop=StopReason.SUBMITTED)
        async with self._harness.gate:
            await asyncio.sleep(self._harness.latency_s)
        return Reply(text=self._harness.text)


class EveryOther:
    """Pays every other episode, at once."""

    async def grade(self, task: Task, submission: Submission, backend: SandboxBackend, seed: int) -> Graded:
        evidence = Evidence(
            required=1,
            executed=1,
            passed=seed % 2,
            canary_failed=True,
            processes_gone=True,
            channel="rule",
            isolation="none",
        )
        return Graded(reward=float(seed % 2), evidence=evidence)

    async def control(self, task: Task, backend: SandboxBackend, seed: int) -> Graded:
        return await self.grade(task, Submission(files={}), backend, 1)


class PromptTasks:
    """A task for each prompt."""

    def __init__(self, prompts: Sequence[str], limits: Limits) -> None:
        self.prompts = prompts
        self.limits = limits

    def splits(self) -> tuple[str, ...]:
        return ("train",)

    def ids(self, split: str) -> Sequence[str]:
        return [str(number) for number in range(len(self.prompts))]

    def get(self, task_id: str) -> Task:
        return Task(id=task_id, prompt=self.prompts[int(task_id)], base={}, limits=self.limits)


class Sampling:
    """Rollouts of one round after another, on one engine."""

    def __init__(self, setup: Mapping[str, Any]) -> None:
        folder = Path(setup["model"])
        self.setup = setup
        self.harness = LookHarness(setup["turns"], setup["tool_text"])
        limits = Limits(
            max_turns=setup["turns"], max_action_tokens=setup["action_tokens"], max_context_tokens=setup["window"]
        )
        self.environment = Environment(
            name="throughput",
            version="1",
            tasks=PromptTasks(setup["prompts"], limits),
            harness=self.harness,
            verifier=EveryOther(),
            tools={},
        )
        model = load_model(folder, dtype=ModelDtype.FLOAT32)
        self.engine = WholeActions(model, threads=setup["threads"])
        self.codec = self.harness.codec(FastTokenizer(folder))

    async def round(self, request: Mapping[str, Any]) -> Record:
        """Run all episodes once. `request` says `latency_s`, `schedule` and whether tools run one at a `time`."""
        config = RolloutConfig(schedule=request["schedule"])
        self.harness.latency_s = request["latency_s"]
        self.harness.gate = asyncio.Lock() if request["tools"] == "one at a time" else nullcontext()
        backend = MemoryBackend()
        stage = Stage(
            environment=self.environment,
            backend=backend,
            engine=LockstepEngine(self.engine) if config.lockstep else self.engine,
            codec=self.codec,
            sampling=SamplingParams(),
            capabilities=backend.probe(),
        )
        tasks = [self.environment.tasks.get(name) for name in self.environment.tasks.ids("train")]
        size = self.setup["group_size"]
        wall, cpu = time.perf_counter(), time.process_time()
        groups, dropped = await run_evaluation(
            tasks, size, stage, config, seed=request["seed"], concurrency=size * len(tasks)
        )
        seconds, cpu_seconds = time.perf_counter() - wall, time.process_time() - cpu
        if dropped:
            raise RuntimeError(f"{len(dropped)} episodes failed: {dropped[0].trajectory.detail}")
        times = {"generate_s": seconds, "generate_cpu_s": cpu_seconds, "generate_peak_mb": peak_mb()}
        return {**times, **_tokens(groups), "peak_mb": peak_mb()}

    async def serve(self, channel: Channel) -> None:
        channel.answer({"start_mb": peak_mb()})
        for request in channel.requests():  # one at a time: nothing else runs on this loop meanwhile
            channel.answer(await self.round(request))
        await self.engine.close()


def _tokens(groups: Sequence[Group]) -> Record:
    """Return what the episodes of a round hold."""
    trajectories = [member.trajectory for group in groups for member in group.members]
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    return {
        "episodes": len(trajectories),
        "prompt_tokens": sum(len(trajectory.prompt_ids) for trajectory in trajectories),
        "action_tokens": sum(len(turn.action.token_ids) for turn in turns),
        "tool_tokens": sum(len(turn.observation.token_ids) for turn in turns),
    }


def training_rows(setup: Mapping[str, Any]) -> list[TrainingRow]:
    """Return the rows with the advantages and weights that TRL gives them.

    Every other row is paid, so advantages are +0.5 and -0.5, unscaled; a token weighs 1 / (rows x tokens of its row).
    """
    rows = []
    for number, row in enumerate(setup["rows"]):
        mask = np.array(row["mask"], dtype=np.bool_)
        values = mask.astype(np.float32)
        rows.append(
            TrainingRow(
                trajectory_id=f"{number:04d}",
                token_ids=np.array(row["ids"], dtype=np.int32),
                loss_mask=mask,
                turn_of_token=np.zeros(len(mask), dtype=np.int32),
                rollout_logprobs=np.zeros_like(values),
                policy_versions=np.zeros(len(mask), dtype=np.int32),
                advantages=values * np.float32(number % 2 - 0.5),
                weights=values / np.float32(len(setup["rows"]) * mask.sum()),
            )
        )
    return rows


class Updates:
    """One update of the same rows after another."""

    def __init__(self, setup: Mapping[str, Any]) -> None:
        """`setup["way"]` is "bare" or a layout of the learner."""
        self.model = model = load_model(Path(setup["model"]), dtype=ModelDtype.FLOAT32)
        self.rows = training_rows(setup)
        budget = setup["micro_rows"] * max(len(row.token_ids) for row in self.rows)
        rate = setup["learning_rate"]
        self.update: Callable[[], float | None]
        if setup["way"] == "bare":
            optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.99), weight_decay=0.0, fused=True)
            self.update = lambda: bare_step(model, optimizer, self.rows, budget)
            return
        config = LearnerConfig(
            batch=BatchConfig(layout=setup["way"], micro_batch_tokens=budget),
            optimizer=OptimizerConfig(learning_rate=rate),
            threads=setup["threads"],
        )
        self.learner = Learner(model, config)
        self.update = self._first

    def _first(self) -> float:
        """Make the first update, with the log-probabilities that a sampler would have reported."""
        sampled = self.learner.logprobs(self.rows)
        self.rows = [replace(row, rollout_logprobs=found) for row, found in zip(self.rows, sampled, strict=True)]
        self.update = self._next
        return self._next()

    def _next(self) -> float:
        return self.learner.step(self.rows).metrics["grad_norm"]

    def serve(self, channel: Channel) -> None:
        channel.answer({"start_mb": peak_mb()})
        for _ in channel.requests():
            wall, cpu = time.perf_counter(), time.process_time()
            norm = self.update()
            times = {"update_s": time.perf_counter() - wall, "update_cpu_s": time.process_time() - cpu}
            channel.answer({**times, "grad_norm": norm, "peak_mb": peak_mb()})


def main() -> None:
    channel = Channel()
    setup = next(channel.requests())
    torch.set_num_threads(setup["threads"])
    if setup["role"] == "rollouts":
        asyncio.run(Sampling(setup).serve(channel))
    else:
        Updates(setup).serve(channel)


if __name__ == "__main__":
    main()
