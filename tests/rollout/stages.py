"""Builders shared by the rollout tests."""

from __future__ import annotations

import asyncio

from sanderling.engine.protocol import Engine, SamplingParams
from sanderling.environment import Environment
from sanderling.rollout.config import RolloutConfig
from sanderling.rollout.episode import Plan, Stage
from sanderling.rollout.ledger import Ledger
from sanderling.rollout.scheduler import start_group
from sanderling.testing.engines import ScriptedEngine
from sanderling.testing.environments import calc_commands, calc_environment
from sanderling.testing.sandboxes import MemoryBackend
from sanderling.testing.toy_tokenizer import ToyTokenizer
from sanderling.types import Group, Member

TOKENIZER = ToyTokenizer()


def text_engine(policy) -> ScriptedEngine:
    return ScriptedEngine(policy=policy, tokenizer=TOKENIZER, end_token="<|end|>")


def stage(
    engine: Engine,
    environment: Environment | None = None,
    backend: MemoryBackend | None = None,
    tokenizer: ToyTokenizer = TOKENIZER,
) -> Stage:
    environment = environment or calc_environment()
    backend = backend or MemoryBackend(commands=calc_commands)
    return Stage(
        environment=environment,
        backend=backend,
        engine=engine,
        codec=environment.harness.codec(tokenizer),
        sampling=SamplingParams(),
        capabilities=backend.probe(),
    )


def run_group(parts: Stage, config: RolloutConfig, size: int = 1, seed: int = 0) -> tuple[Group, Ledger, list[Member]]:
    """Run one group to its end; return it with the accounts and the dropped attempts."""
    ledger, dropped = Ledger(), []

    async def run() -> Group:
        task = parts.environment.tasks.get(parts.environment.tasks.ids("train")[0])
        plan = Plan(task=task, group_id="g", index=0, attempt=0, seed=seed)
        return await start_group(plan, size, parts, config, ledger, dropped.append)

    return asyncio.run(run()), ledger, dropped
