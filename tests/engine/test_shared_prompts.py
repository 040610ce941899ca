"""Contexts that begin alike are read once; what is sampled is token by token what reading each would give."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sanderling.engine.protocol import SampleRequest, SamplingParams
from sanderling.engine.torch_decoder import Prompts
from sanderling.engine.torch_engine import TorchEngine
from sanderling.engine.torch_model import load_model
from sanderling.engine.weights import push
from sanderling.testing.engine_conformance import Subject
from sanderling.types import Action


def with_engine(folder: Path, prompts: Prompts, use: Callable[[TorchEngine], Awaitable[Any]], **settings: Any) -> Any:
    async def run() -> Any:
        engine = TorchEngine(load_model(folder), threads=1, prompts=prompts, **settings)
        try:
            return await asyncio.wait_for(use(engine), 120.0)
        finally:
            await engine.close()

    return asyncio.run(run())


def siblings(count: int, *, prompt: int = 200, seed: int = 0, name: str = "s") -> list[SampleRequest]:
    """Requests for one prompt."""
    ids = np.random.default_rng(seed).integers(0, 320, prompt).astype(np.int32)
    params = SamplingParams(max_tokens=12)
    return [
        SampleRequest(session=f"{name}{i}", context_ids=ids, params=params, seed=100 * seed + i) for i in range(count)
    ]


def next_turn(request: SampleRequest, action: Action, observation: int) -> SampleRequest:
    ids = np.concatenate([request.context_ids, action.token_ids, np.arange(observation, dtype=np.int32)])
    return replace(request, context_ids=ids)


def same(first: list[Action], second: list[Action]) -> bool:
    assert [a.token_ids.tolist() for a in first] == [a.token_ids.tolist() for a in second]
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a.rollout_logprobs, b.rollout_logprobs, atol=2e-5)
    return True


@pytest.mark.parametrize("settings", [{}, {"max_batch": 3}, {"cache_mb": 1}])
def test_tokens_are_those_of_reading_each_prompt(llama_folder: Path, settings: dict[str, int]) -> None:
    """Two groups over three turns, in a wide batch, in a narrow one, and where the cache hardly holds them."""

    async def use(engine: TorchEngine) -> list[Action]:
        requests = [*siblings(5), *siblings(4, seed=1, prompt=233, name="t")]
        found: list[Action] = []
        for turn in range(3):
            actions = await engine.generate_many(requests)
            found += actions
            requests = [next_turn(r, a, 3 + turn + i) for i, (r, a) in enumerate(zip(requests, actions, strict=True))]
        return found

    shared = with_engine(llama_folder, Prompts.SHARED, use, **settings)
    assert same(shared, with_engine(llama_folder, Prompts.EACH, use, **settings))
    assert len({tuple(a.token_ids.tolist()) for a in shared[:5]}) == 5, "siblings go their own ways"


def test_a_prompt_is_read_once(llama_folder: Path) -> None:
    async def use(engine: TorchEngine) -> tuple[int, int]:
        await engine.generate_many(siblings(8))
        return engine.counts().prefilled_tokens, engine.counts().shared_tokens

    assert with_engine(llama_folder, Prompts.EACH, use) == (8 * 200, 0)
    # the last token of each is read again, for its logits: by a decoding step, which all eight share
    assert with_engine(llama_folder, Prompts.SHARED, use) == (200, 7 * 199)


def test_a_prompt_with_another_end_is_read_from_there(llama_folder: Path) -> None:
    async def use(engine: TorchEngine) -> int:
        first, second = siblings(2)
        ids = np.concatenate([second.context_ids[:150], np.arange(50, dtype=np.int32)])
        await engine.generate_many([first, replace(second, context_ids=ids)])
        return engine.counts().prefilled_tokens

    assert with_engine(llama_folder, Prompts.SHARED, use) == 200 + 50


def test_a_late_sibling_copies_from_one_that_runs_or_rests(llama_folder: Path) -> None:
    async def use(engine: TorchEngine) -> list[Action]:
        first, second, third = siblings(3)
        running = asyncio.ensure_future(engine.generate(replace(first, params=SamplingParams(max_tokens=300))))
        while engine.counts().decode_steps < 5:
            await asyncio.sleep(0.001)
        late = await engine.generate(second)
        await running
        return [late, await engine.generate(third)]

    async def counted(engine: TorchEngine) -> tuple[list[Action], int]:
        return await use(engine), engine.counts().shared_tokens

    shared, tokens = with_engine(llama_folder, Prompts.SHARED, counted)
    assert tokens == 2 * 199 and same(shared, with_engine(llama_folder, Prompts.EACH, use))


def test_nothing_is_copied_from_older_weights(llama_folder: Path, subject: Subject) -> None:
    async def use(engine: TorchEngine) -> Action:
        first, second = siblings(2)
        await engine.generate(first)
        await push(engine, subject.states[1], 1)
        action = await engine.generate(second)
        assert engine.counts().shared_tokens == 0 and engine.counts().stale_tokens == 0
        return action

    action = with_engine(llama_folder, Prompts.SHARED, use)
    expected = subject.reference(subject.states[1], siblings(1)[0].context_ids, action.token_ids)
    np.testing.assert_allclose(action.rollout_logprobs, expected, atol=1e-4)
