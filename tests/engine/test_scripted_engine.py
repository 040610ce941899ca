"""The scripted engine says what its script says, remembers what it was asked, and fails on demand."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from sanderling.engine.protocol import SampleRequest, SamplingParams
from sanderling.errors import ConfigError, EngineError
from sanderling.testing.engines import Fault, Scripted, ScriptedEngine, ToyTokenizer
from sanderling.types import Action


def request(ids: list[int], max_tokens: int = 512) -> SampleRequest:
    params = SamplingParams(max_tokens=max_tokens)
    return SampleRequest(session="s", context_ids=np.array(ids, dtype=np.int32), params=params)


def ask(engine: ScriptedEngine, *ids: int) -> Action:
    return asyncio.run(engine.generate(request(list(ids))))


def test_script_is_answered_call_by_call_and_recorded() -> None:
    engine = ScriptedEngine(script=[Scripted(token_ids=[256, 257], logprobs=[-0.5, -0.25]), Scripted(token_ids=[256])])
    first, second = ask(engine, 1, 2), ask(engine, 1, 2, 256, 257, 9)
    assert first.token_ids.tolist() == [256, 257] and first.rollout_logprobs.tolist() == [-0.5, -0.25]
    assert second.token_ids.tolist() == [256] and second.rollout_logprobs[0] == np.float32(-0.1)
    assert [call.context_ids for call in engine.calls] == [[1, 2], [1, 2, 256, 257, 9]]
    with pytest.raises(EngineError, match="the script has 2 answers and call 3 came"):
        ask(engine, 1)


def test_text_policy_reads_the_context() -> None:
    tokenizer = ToyTokenizer()
    engine = ScriptedEngine(policy=lambda text: text[::-1], tokenizer=tokenizer, end_token="<|end|>")
    action = ask(engine, *tokenizer.encode("abc"))
    assert tokenizer.decode(action.token_ids.tolist()) == "cba" and action.token_ids[-1] == tokenizer.eos_id


def test_logprobs_follow_the_version_token_by_token() -> None:
    async def straddle() -> Action:
        engine = ScriptedEngine(script=[Scripted(token_ids=range(8))], token_s=0.01)
        running = asyncio.ensure_future(engine.generate(request([1])))
        await asyncio.sleep(0.035)
        await engine.update_weights(engine.weights, 1)
        return await running

    action = asyncio.run(straddle())
    versions = action.policy_versions
    assert 0 < versions.sum() < 8 and versions.tolist() == sorted(versions)
    np.testing.assert_allclose(action.rollout_logprobs, -0.1 * (versions + 1), rtol=1e-6)


def test_limits_cut_the_script() -> None:
    engine = ScriptedEngine(script=[Scripted(token_ids=range(8))])
    action = asyncio.run(engine.generate(request([1], max_tokens=3)))
    assert action.token_ids.tolist() == [0, 1, 2] and action.finish_reason == "length"


def test_faults() -> None:
    engine = ScriptedEngine(script=[Scripted(token_ids=range(8))] * 6)
    engine.faults = {Fault.ABORTS}
    assert len(ask(engine, 1).rollout_logprobs) == 5
    engine.faults = {Fault.ABORTS_WITHOUT_LOGPROBS}
    aborted = ask(engine, 1)
    assert len(aborted.token_ids) == 5 and len(aborted.rollout_logprobs) == 0
    engine.faults = {Fault.RAISES}
    with pytest.raises(EngineError, match="scripted failure at call 2"):
        ask(engine, 1)
    engine.faults = {Fault.NOISY_LOGPROBS}
    np.testing.assert_allclose(ask(engine, 1).rollout_logprobs[:2], [-0.08, -0.12], rtol=1e-5)
    engine.faults = {Fault.NEVER_ANSWERS}
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(engine.generate(request([1])), 0.05))
    engine.faults = set()
    asyncio.run(engine.close())
    with pytest.raises(EngineError, match="closed"):
        ask(engine, 1)


def test_stale_prefix_fault_answers_a_known_context_under_old_weights() -> None:
    engine = ScriptedEngine(script=[Scripted(token_ids=[7])] * 3, faults={Fault.SERVES_STALE_PREFIX})
    assert ask(engine, 1, 2).rollout_logprobs[0] == np.float32(-0.1)
    asyncio.run(engine.update_weights(engine.weights, 3))
    assert ask(engine, 1, 2).rollout_logprobs[0] == np.float32(-0.1), "seen before: the version of then"
    assert ask(engine, 1, 3).rollout_logprobs[0] == pytest.approx(-0.4)


def test_what_it_needs() -> None:
    with pytest.raises(ConfigError, match="exactly one of script and policy"):
        ScriptedEngine()
    with pytest.raises(ConfigError, match="needs a tokenizer"):
        ScriptedEngine(policy=str.upper)
    engine = ScriptedEngine(policy=str.upper, tokenizer=ToyTokenizer(), end_token="<|no|>")
    with pytest.raises(EngineError, match="no special token"):
        ask(engine, 1)
