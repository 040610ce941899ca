"""What the built-in engine does beyond the protocol: bounds, failures, weight updates in flight, and counting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from sanderling.engine.protocol import SampleRequest, SamplingParams
from sanderling.engine.torch_decoder import OnUpdate
from sanderling.engine.torch_engine import TorchEngine
from sanderling.engine.torch_model import load_model
from sanderling.engine.weights import push
from sanderling.errors import ConfigError, EngineError, ModelError, WeightPushError
from sanderling.testing.engine_conformance import Subject, ragged_requests
from sanderling.testing.engines import tiny_llama_folder
from sanderling.types import Action


def with_engine(engine: TorchEngine, use: Callable[[TorchEngine], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        try:
            return await asyncio.wait_for(use(engine), 60.0)
        finally:
            await engine.close()

    return asyncio.run(run())


@pytest.fixture
def make(llama_folder: Path) -> Callable[..., TorchEngine]:
    return lambda **settings: TorchEngine(load_model(llama_folder), threads=1, **settings)


def request(length: int = 10, *, session: str = "s", max_tokens: int = 5, seed: int = 0) -> SampleRequest:
    ids = np.random.default_rng(length).integers(0, 320, length).astype(np.int32)
    return SampleRequest(session=session, context_ids=ids, params=SamplingParams(max_tokens=max_tokens), seed=seed)


def after(first: SampleRequest, action: Action, observation: int = 4) -> SampleRequest:
    ids = np.concatenate([first.context_ids, action.token_ids, np.arange(observation, dtype=np.int32)])
    return replace(first, context_ids=ids)


# -- the cache


def test_a_later_turn_reads_only_what_is_new(make: Callable[..., TorchEngine]) -> None:
    async def use(engine: TorchEngine) -> None:
        first = request(50)
        action = await engine.generate(first)
        assert engine.counts().prefilled_tokens == 50
        await engine.generate(after(first, action, observation=4))
        # the last sampled token was never read by the model, then four tokens of observation
        assert engine.counts().prefilled_tokens == 50 + 1 + 4
        assert engine.counts().reused_tokens == 50 + 4

    with_engine(make(), use)


def test_reading_is_linear_in_the_number_of_turns(make: Callable[..., TorchEngine]) -> None:
    async def read(engine: TorchEngine, session: str, turns: int) -> int:
        before = engine.counts().prefilled_tokens
        now = request(20, session=session, max_tokens=3)
        for _ in range(turns):
            now = after(now, await engine.generate(now), observation=17)
        return engine.counts().prefilled_tokens - before

    async def use(engine: TorchEngine) -> None:
        short, long = await read(engine, "short", 16), await read(engine, "long", 32)
        assert 1.9 * short < long < 2.1 * short

    with_engine(make(), use)


def test_a_rewritten_context_is_counted(make: Callable[..., TorchEngine]) -> None:
    async def use(engine: TorchEngine) -> None:
        first = request(30)
        await engine.generate(first)
        changed = first.context_ids.copy()
        changed[12] += 1
        await engine.generate(replace(first, context_ids=changed))
        counts = engine.counts()
        assert counts.diverged_sessions == 1
        assert counts.prefilled_tokens == 30 + 18, "read again from the first difference"

    with_engine(make(), use)


def test_an_ended_session_is_forgotten(make: Callable[..., TorchEngine]) -> None:
    async def use(engine: TorchEngine) -> None:
        first = request(30)
        await engine.generate(first)
        engine.end_session("s")
        engine.end_session("never seen")
        await engine.generate(first)
        assert engine.counts().reused_tokens == 0 and engine.counts().prefilled_tokens == 60

    with_engine(make(), use)


def test_idle_sessions_are_evicted_by_the_memory_bound(make: Callable[..., TorchEngine]) -> None:
    """1 MiB holds 4,096 tokens of this model (256 bytes each): 16 sessions of 200 tokens, not 24."""

    async def use(engine: TorchEngine) -> None:
        requests = [request(200, session=f"s{i}", seed=i) for i in range(24)]
        requests = [replace(r, context_ids=(r.context_ids + i) % 320) for i, r in enumerate(requests)]
        actions = [await engine.generate(r) for r in requests]
        evicted = engine.counts().evicted_sessions
        assert 4 <= evicted <= 16
        later = [after(r, a) for r, a in zip(requests, actions, strict=True)]
        kept = await engine.generate(later[-1])
        assert engine.counts().reused_tokens == 204, "the newest session kept its cache"
        lost = await engine.generate(later[0])
        assert engine.counts().reused_tokens == 204, "the oldest one lost it"
        for turn, action in ((later[-1], kept), (later[0], lost)):
            fresh = await engine.generate(replace(turn, session="fresh " + turn.session))
            assert fresh.token_ids.tolist() == action.token_ids.tolist()

    with_engine(make(max_batch=4, cache_mb=1), use)


def test_running_rows_wait_for_memory_instead_of_breaking_the_bound(make: Callable[..., TorchEngine]) -> None:
    """Each row may grow to 1,000 tokens and 4,096 fit, so that at most 4 of 8 run at once although the batch takes 8."""

    async def use(engine: TorchEngine) -> list[Action]:
        return await engine.generate_many([request(990, session=f"s{i}", max_tokens=10, seed=i) for i in range(8)])

    small, large = with_engine(make(max_batch=8, cache_mb=1), use), with_engine(make(max_batch=8), use)
    assert [a.token_ids.tolist() for a in small] == [a.token_ids.tolist() for a in large]


# -- refusals and failures


def test_a_context_beyond_the_positions_is_refused_with_numbers(make: Callable[..., TorchEngine]) -> None:
    async def use(engine: TorchEngine) -> None:
        with pytest.raises(EngineError, match=r"has 2048 tokens.*takes 2048 positions"):
            await engine.generate(request(2048))
        action = await engine.generate(request(2045, max_tokens=50))
        assert len(action.token_ids) == 3 and action.finish_reason == "length"

    with_engine(make(), use)


def test_a_request_beyond_the_cache_is_refused_with_numbers(make: Callable[..., TorchEngine], tmp_path: Path) -> None:
    big = tiny_llama_folder(tmp_path / "m")
    model = load_model(big)
    model.config.max_position_embeddings = 100_000

    async def use(engine: TorchEngine) -> None:
        with pytest.raises(
            EngineError, match=r"needs a cache of 5010 tokens and the bound allows 4096; raise cache_mb"
        ):
            await engine.generate(request(10, max_tokens=5000))

    with_engine(TorchEngine(model, cache_mb=1, threads=1), use)


@pytest.mark.parametrize(
    ("ids", "message"), [([], "is empty"), ([5, 320], "ids from 5 to 320"), ([-1, 4], "ids from -1 to 4")]
)
def test_contexts_without_a_meaning_are_refused(make: Callable[..., TorchEngine], ids: list[int], message: str) -> None:
    async def use(engine: TorchEngine) -> None:
        bad = replace(request(), session="bad", context_ids=np.array(ids, dtype=np.int32))
        good, refused = await asyncio.gather(engine.generate(request()), engine.generate(bad), return_exceptions=True)
        assert isinstance(good, Action), "one bad request harmed another"
        assert isinstance(refused, EngineError) and message in str(refused)

    with_engine(make(), use)


def test_bad_parameters_are_a_config_error(make: Callable[..., TorchEngine]) -> None:
    async def use(engine: TorchEngine) -> None:
        with pytest.raises(ConfigError, match=r"top_p is 0\.0"):
            await engine.generate(replace(request(), params=SamplingParams(top_p=0.0)))

    with_engine(make(), use)


def test_one_session_samples_one_action_at_a_time(make: Callable[..., TorchEngine]) -> None:
    async def use(engine: TorchEngine) -> None:
        answers = await asyncio.gather(
            *(engine.generate(request(max_tokens=30)) for _ in range(2)), return_exceptions=True
        )
        assert sum(isinstance(a, Action) for a in answers) == 1
        assert sum("already has a request at work" in str(a) for a in answers if isinstance(a, EngineError)) == 1

    with_engine(make(), use)


def test_an_exception_in_the_model_fails_the_batch_and_not_the_engine(llama_folder: Path) -> None:
    model = load_model(llama_folder)
    engine = TorchEngine(model, threads=1)

    def explode(*_: Any) -> None:
        raise RuntimeError("out of memory, say")

    async def use(engine: TorchEngine) -> None:
        expected = await engine.generate(request())
        handle = model.model.layers[1].register_forward_hook(explode)
        answers = await asyncio.gather(
            *(engine.generate(request(session=f"s{i}")) for i in range(3)), return_exceptions=True
        )
        assert all(isinstance(a, EngineError) and "out of memory, say" in str(a) for a in answers)
        handle.remove()
        again = await engine.generate(request())
        assert again.token_ids.tolist() == expected.token_ids.tolist()
        assert engine.counts().failed_requests == 3

    with_engine(engine, use)


def test_weights_that_are_not_finite_are_noticed_and_leave_no_trace(make: Callable[..., TorchEngine]) -> None:
    async def use(engine: TorchEngine, good: dict[str, torch.Tensor]) -> None:
        expected = await engine.generate_many([request(session=f"s{i}", seed=i) for i in range(4)])
        bad = {name: torch.full_like(tensor, float("nan")) for name, tensor in good.items()}
        await engine.update_weights(bad, 1)
        with pytest.raises(EngineError, match=r"log-probability nan .*weights of version 1"):
            await engine.generate(request(40, session="bad"))
        await push(engine, good, 2)
        for i in range(4):
            engine.end_session(f"s{i}")
        again = await engine.generate_many([request(session=f"s{i}", seed=i) for i in range(4)])
        assert [a.token_ids.tolist() for a in again] == [a.token_ids.tolist() for a in expected]

    engine = make()
    good = {name: tensor.clone() for name, tensor in engine._module.state_dict().items()}
    with_engine(engine, lambda e: use(e, good))


def test_a_closed_engine_says_so(make: Callable[..., TorchEngine]) -> None:
    async def run() -> None:
        engine = make()
        running = asyncio.ensure_future(engine.generate(request(max_tokens=2000)))
        await asyncio.sleep(0.05)
        await engine.close()
        with pytest.raises(EngineError, match="closed before the action was complete"):
            await running
        with pytest.raises(EngineError, match="the engine is closed"):
            await engine.generate(request())
        with pytest.raises(EngineError, match="version 3 were not loaded"):
            await engine.update_weights({}, 3)

    asyncio.run(run())


@pytest.mark.parametrize("settings", [{"max_batch": 0}, {"cache_mb": 0}, {"threads": 0}])
def test_settings_out_of_range(llama_folder: Path, settings: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="expected 1 or more"):
        TorchEngine(load_model(llama_folder), **settings)


# -- weights


async def update_in_flight(engine: TorchEngine, subject: Subject) -> Action:
    """Push the other weights while an action is being sampled, and return an action of both versions."""
    running = asyncio.ensure_future(engine.generate(request(20, max_tokens=400)))
    while engine.counts().decode_steps < 40:
        await asyncio.sleep(0.001)
    await push(engine, subject.states[1], 1)
    return await running


def test_recompute_reads_the_context_again_under_the_new_weights(
    make: Callable[..., TorchEngine], subject: Subject
) -> None:
    async def use(engine: TorchEngine) -> None:
        action = await update_in_flight(engine, subject)
        old = int((action.policy_versions == 0).sum())
        assert 0 < old < 400
        for state, part in ((0, slice(0, old)), (1, slice(old, None))):
            expected = subject.reference(subject.states[state], request(20).context_ids, action.token_ids)
            np.testing.assert_allclose(action.rollout_logprobs[part], expected[part], atol=1e-4)
        assert engine.counts().stale_tokens == 0

    with_engine(make(on_update=OnUpdate.RECOMPUTE), use)


def test_keep_goes_on_from_the_old_cache_and_counts_it(make: Callable[..., TorchEngine], subject: Subject) -> None:
    async def use(engine: TorchEngine) -> None:
        action = await update_in_flight(engine, subject)
        old = int((action.policy_versions == 0).sum())
        expected = subject.reference(subject.states[1], request(20).context_ids, action.token_ids)
        assert np.abs(expected[old:] - action.rollout_logprobs[old:]).max() > 1e-2, "the old keys and values are in use"
        stale = engine.counts().stale_tokens
        assert stale == 20 + old - 1
        await engine.generate(after(request(20), action))
        assert engine.counts().stale_tokens > stale, "a later turn from old keys and values is counted again"

    with_engine(make(on_update=OnUpdate.KEEP), use)


def test_a_push_of_other_names_or_shapes_is_refused_whole(make: Callable[..., TorchEngine], subject: Subject) -> None:
    async def use(engine: TorchEngine) -> None:
        before = engine.fingerprint()
        state = dict(subject.states[1])
        with pytest.raises(WeightPushError, match=r"lack 1 names .*model\.norm\.weight"):
            await engine.update_weights({k: v for k, v in state.items() if k != "model.norm.weight"}, 1)
        with pytest.raises(WeightPushError, match=r"1 unknown ones .*extra"):
            await engine.update_weights({**state, "extra": torch.zeros(1)}, 1)
        with pytest.raises(WeightPushError, match=r"shape \(3,\); expected \(32,\)"):
            await engine.update_weights({**state, "model.norm.weight": torch.zeros(3)}, 1)
        assert engine.fingerprint() == before and engine.policy_version == 0
        await engine.generate(request())

    with_engine(make(), use)


def test_a_bfloat16_engine_takes_float32_weights(llama_folder: Path, subject: Subject) -> None:
    async def use(engine: TorchEngine) -> None:
        assert engine.fingerprint().startswith("bfloat16:")
        answered = await push(engine, subject.states[1], 4)
        assert answered == engine.fingerprint() and engine.policy_version == 4

    with_engine(TorchEngine(load_model(llama_folder).to(torch.bfloat16), threads=1), use)


# -- architectures


def config_of(name: str) -> Any:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 320}
    kv = {"intermediate_size": 64, "num_key_value_heads": 2, "max_position_embeddings": 512}
    match name:
        case "qwen2":
            return transformers.Qwen2Config(**sizes, **kv)
        case "qwen3":
            return transformers.Qwen3Config(**sizes, **kv, head_dim=16)
        case "gpt2":
            return transformers.GPT2Config(vocab_size=320, n_embd=32, n_layer=2, n_head=4, n_positions=512)
        case "gpt_neox":
            return transformers.GPTNeoXConfig(**sizes, intermediate_size=64, max_position_embeddings=512)
        case "mistral":
            return transformers.MistralConfig(**sizes, **kv, sliding_window=40)
        case "gemma3":
            return transformers.Gemma3TextConfig(**sizes, **kv, head_dim=16, sliding_window=40)
        case _:
            raise AssertionError(name)


def model_of(name: str, attention: str = "sdpa") -> Any:
    torch.manual_seed(0)
    config = config_of(name)
    config.initializer_range = 0.2
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["qwen2", "qwen3", "gpt2", "gpt_neox"])
def test_other_architectures(name: str, attention: str) -> None:
    model = model_of(name, attention)

    async def use(engine: TorchEngine) -> None:
        requests = ragged_requests(5, 320)
        for _ in range(2):
            actions = await engine.generate_many(requests)
            for r, a in zip(requests, actions, strict=True):
                ids = torch.from_numpy(np.concatenate([r.context_ids, a.token_ids]).astype(np.int64))
                with torch.no_grad():
                    rows = model(ids[None]).logits[0].log_softmax(-1)
                start = len(r.context_ids)
                expected = rows[torch.arange(start - 1, len(ids) - 1), ids[start:]].numpy()
                np.testing.assert_allclose(a.rollout_logprobs, expected, atol=1e-4)
            requests = [
                after(r, a, observation=1 + i * 5) for i, (r, a) in enumerate(zip(requests, actions, strict=True))
            ]

    with_engine(TorchEngine(model, max_batch=4, threads=1), use)


@pytest.mark.parametrize("name", ["mistral", "gemma3"])
def test_a_sliding_window_bounds_the_context(name: str) -> None:
    """Up to its window such a model attends to everything; beyond it the engine refuses instead of sampling wrongly."""

    async def use(engine: TorchEngine) -> None:
        assert len((await engine.generate(request(30))).token_ids) == 5
        with pytest.raises(EngineError, match="takes 40 positions"):
            await engine.generate(request(40))

    with_engine(TorchEngine(model_of(name), threads=1), use)


def test_recurrent_models_are_refused() -> None:
    config = transformers.MambaConfig(hidden_size=32, num_hidden_layers=2, vocab_size=320, state_size=4)
    with pytest.raises(ModelError, match="mamba has layers of kind"):
        TorchEngine(transformers.AutoModelForCausalLM.from_config(config))
