"""Everything at once: episodes, cancellations, evictions and pushes; each token must still be its version's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sanderling.engine.protocol import SampleRequest, SamplingParams
from sanderling.engine.torch_decoder import OnUpdate
from sanderling.engine.torch_engine import TorchEngine
from sanderling.engine.torch_model import load_model
from sanderling.engine.weights import push
from sanderling.testing.engine_conformance import Subject
from sanderling.types import Action, Int32Array

Record = list[tuple[Int32Array, Action]]


async def episode(engine: TorchEngine, name: str, rng: np.random.Generator, record: Record) -> None:
    """Up to five turns; some are cancelled in the middle and asked again, some rewrite their context."""
    context = rng.integers(0, 320, int(rng.integers(5, 150))).astype(np.int32)
    for turn in range(int(rng.integers(1, 6))):
        params = SamplingParams(max_tokens=int(rng.integers(1, 24)), stop_token_ids=(3, 9, 40))
        request = SampleRequest(session=name, context_ids=context, params=params, seed=turn)
        if rng.random() < 0.2:
            cancelled = asyncio.ensure_future(engine.generate(request))
            await asyncio.sleep(float(rng.random()) * 0.02)
            cancelled.cancel()
            await asyncio.gather(cancelled, return_exceptions=True)
        action = await engine.generate(request)
        record.append((context, action))
        if rng.random() < 0.1:
            engine.end_session(name)
        observation = rng.integers(0, 320, int(rng.integers(0, 60))).astype(np.int32)
        context = np.concatenate([context, action.token_ids, observation])
        if rng.random() < 0.3:
            context = context[len(context) // 3 :]
    engine.end_session(name)


def assert_tokens_belong_to_their_versions(subject: Subject, record: Record) -> None:
    """Version v was sampled under states[v % 2]; under RECOMPUTE no older keys or values are ever read."""
    for context, action in record:
        for state in (0, 1):
            mine = action.policy_versions % 2 == state
            if mine.any():
                expected = subject.reference(subject.states[state], context, action.token_ids)
                np.testing.assert_allclose(action.rollout_logprobs[mine], expected[mine], atol=2e-4)


@pytest.mark.parametrize(("seed", "cache_mb"), [(0, 1), (1, 4)], ids=["evictions", "rewritten contexts"])
def test_nothing_is_mixed_up(seed: int, cache_mb: int, subject: Subject, llama_folder: Path) -> None:
    async def run() -> tuple[Record, TorchEngine]:
        engine = TorchEngine(
            load_model(llama_folder), max_batch=7, cache_mb=cache_mb, threads=1, on_update=OnUpdate.RECOMPUTE
        )
        rng = np.random.default_rng(seed)
        record: Record = []
        episodes = asyncio.gather(*(episode(engine, f"e{i}", r, record) for i, r in enumerate(rng.spawn(40))))
        version = 0
        while not episodes.done():
            await asyncio.sleep(0.002)
            if engine.counts().decode_steps > 40 * (version + 1):
                version += 1
                await push(engine, subject.states[version % 2], version)
        await episodes
        await engine.close()
        return record, engine

    record, engine = asyncio.run(asyncio.wait_for(run(), 120.0))
    counts = engine.counts()
    assert counts.weight_updates >= 3 and counts.reused_tokens > 0 and counts.failed_requests == 0
    assert (counts.evicted_sessions if cache_mb == 1 else counts.diverged_sessions) > 0, "the test lost its point"
    assert sum(len(action.token_ids) for _, action in record) <= counts.sampled_tokens
    assert_tokens_belong_to_their_versions(subject, record)


def test_the_check_itself_notices_old_keys_and_values(subject: Subject, llama_folder: Path) -> None:
    """Under KEEP the same assertion fails: without this, the test above could pass for want of updates in flight."""

    async def run(make: Callable[[], TorchEngine]) -> Record:
        engine = make()
        request = SampleRequest(
            session="s", context_ids=np.arange(50, dtype=np.int32), params=SamplingParams(max_tokens=5)
        )
        first = await engine.generate(request)
        await push(engine, subject.states[1], 1)
        context = np.concatenate([request.context_ids, first.token_ids, np.arange(5, dtype=np.int32)])
        second = await engine.generate(replace(request, context_ids=context))
        await engine.close()
        return [(context, second)]

    record = asyncio.run(run(lambda: TorchEngine(load_model(llama_folder), threads=1, on_update=OnUpdate.KEEP)))
    with pytest.raises(AssertionError):
        assert_tokens_belong_to_their_versions(subject, record)
