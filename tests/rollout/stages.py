"""Builders shared by the rollout tests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from sanderling.engine.protocol import Engine, SampleRequest, SamplingParams
from sanderling.environment import Environment
from sanderling.harness.tool_call_harness import ToolCallHarness
from sanderling.rollout.config import RolloutConfig
from sanderling.rollout.episode import Plan, Stage
from sanderling.rollout.ledger import Ledger
from sanderling.rollout.scheduler import start_group
from sanderling.testing.chat_templates import KINDS
from sanderling.testing.engines import ScriptedEngine
from sanderling.testing.environments import calc_commands, calc_environment
from sanderling.testing.sandboxes import MemoryBackend
from sanderling.testing.toy_tokenizer import ToyTokenizer
from sanderling.types import Action, Group, Limits, Member

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


def thinking_stage(actions: Sequence[str]) -> Stage:
    """Return a stage for tool calls under a template that rewrites history; the k-th answer is followed by `actions[k]`."""
    chosen = KINDS["thinking"]
    tokenizer = ToyTokenizer(special_tokens=chosen.special, eos=chosen.end, chat_template=chosen.template)

    class _Engine(ScriptedEngine):
        async def generate(self, request: SampleRequest) -> Action:
            answered = tokenizer.decode_marked(request.context_ids.tolist()).count("<tool_response>")
            self.policy = lambda context: actions[answered]
            return await super().generate(request)

    engine = _Engine(policy=lambda context: "", tokenizer=tokenizer, end_token=chosen.end)
    environment = calc_environment(limits=Limits(max_context_tokens=20_000))
    environment = replace(environment, harness=ToolCallHarness(test_argv=("test",)))
    return stage(engine, environment, tokenizer=tokenizer)
