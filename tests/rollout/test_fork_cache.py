"""What forks cost the sampler: a fork's context is a prefix of its parent's, so nothing of it need be read again."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sanderling.assemble import load_policy_folder
from sanderling.engine.protocol import SamplingParams
from sanderling.engine.torch_decoder import Prompts
from sanderling.engine.torch_engine import TorchEngine
from sanderling.engine.torch_model import load_model
from sanderling.rollout.config import ForkConfig, RolloutConfig
from sanderling.rollout.episode import Plan, Stage
from sanderling.rollout.forking import run_with_forks
from sanderling.rollout.ledger import Ledger
from sanderling.rollout.lockstep import LockstepEngine
from sanderling.testing.environments import memory_backend
from sanderling.testing.letters import letter_environment
from sanderling.testing.tiny_model import tiny_llama_folder

CONTINUATIONS = 8


@pytest.mark.parametrize("prompts", list(Prompts))
def test_forks_read_what_their_parent_left_in_the_cache(tmp_path, prompts):
    policy = load_policy_folder(str(tiny_llama_folder(tmp_path / "policy")))
    environment, backend = letter_environment(), memory_backend()
    task = environment.tasks.get("letters/train/0")
    task = replace(task, prompt=task.prompt + " and then" * 10)

    async def run():
        engine = TorchEngine(load_model(policy.folder), threads=1, prompts=prompts)
        stage = Stage(
            environment=environment,
            backend=backend,
            engine=LockstepEngine(engine),
            codec=environment.harness.codec(policy.tokenizer),
            sampling=SamplingParams(),
            capabilities=backend.probe(),
        )
        config = RolloutConfig(forks=ForkConfig(continuations=CONTINUATIONS, turns="every", use="value"))
        plan = Plan(task=task, group_id="g", index=0, attempt=0, seed=0)
        members = await run_with_forks(plan, stage, config, Ledger(), lambda member: None)
        counts = engine.counts()
        await engine.close()
        return members, counts

    members, counts = asyncio.run(run())
    parent, forks = members[0].trajectory, members[1:]
    assert len(forks) == CONTINUATIONS and len(parent.turns) == 2
    context = len(replace(parent, turns=parent.turns[:1]).token_ids())
    if prompts is Prompts.EACH:
        assert counts.prefilled_tokens == context + CONTINUATIONS * context
        assert counts.shared_tokens == 0
    else:  # the last token of each fork goes through a decoding step, for its logits
        assert counts.prefilled_tokens == context
        assert counts.shared_tokens == CONTINUATIONS * (context - 1)
