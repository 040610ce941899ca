"""Sampler and trainer must mean the same by a log-probability; probe D5 is the nucleus case."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from sanderling.engine.agreement import (
    Agreement,
    AgreementVerdict,
    OnMismatch,
    Sample,
    check_at_startup,
    logprob_agreement,
    require_agreement,
)
from sanderling.engine.protocol import SamplingParams
from sanderling.engine.torch_engine import TorchEngine
from sanderling.engine.torch_sampler import RowParams, draw, uniforms
from sanderling.errors import ConfigError
from sanderling.testing.engine_conformance import Subject, ragged_requests
from sanderling.types import Action

PROBABILITIES = (0.5, 0.3, 0.2)


def action_of(token_ids: Sequence[int], logprobs: Sequence[float]) -> Action:
    return Action(
        token_ids=np.array(token_ids, dtype=np.int32),
        rollout_logprobs=np.array(logprobs, dtype=np.float32),
        policy_versions=np.zeros(len(token_ids), dtype=np.int32),
        text="",
        finish_reason="stop",
    )


def sampled_from_three(params: SamplingParams, count: int = 200) -> Sample:
    """Draw tokens from .5, .3, .2 with the engine's own sampler."""
    logits = torch.tensor(PROBABILITIES).log().expand(count, 3)
    tokens, logprobs = draw(
        logits, RowParams.of([params] * count, torch.device("cpu")), torch.from_numpy(uniforms(0, count))
    )
    return Sample(context_ids=np.zeros(1, dtype=np.int32), action=action_of(tokens.tolist(), logprobs.tolist()))


def plain_trainer(samples: Sequence[Sample]) -> list[np.ndarray]:
    return [np.log(np.array(PROBABILITIES))[sample.action.token_ids] for sample in samples]


def measured(params: SamplingParams) -> Agreement:
    return logprob_agreement([sampled_from_three(params)], plain_trainer, params)


def test_probe_d5_numbers_by_hand() -> None:
    params = SamplingParams(top_p=0.8)
    sample = Sample(
        context_ids=np.zeros(1, dtype=np.int32),
        action=action_of([0, 1, 0], [math.log(0.625), math.log(0.375), math.log(0.625)]),
    )
    agreement = logprob_agreement([sample], plain_trainer, params)
    assert agreement.verdict is AgreementVerdict.NUCLEUS
    assert agreement.mean_ratio == pytest.approx(0.8, abs=1e-6)
    assert agreement.max_abs == pytest.approx(-math.log(0.8), abs=1e-6)


def test_probe_d5_ratio_is_reported_and_refused() -> None:
    params = SamplingParams(top_p=0.8)
    agreement = measured(params)
    assert agreement.verdict is AgreementVerdict.NUCLEUS
    assert agreement.mean_ratio == pytest.approx(0.8, abs=1e-5)
    assert agreement.max_abs == pytest.approx(agreement.mean_abs, abs=1e-6), "the ratio is constant"
    with pytest.raises(ConfigError, match=r"top_p is 0\.8.*0\.8000") as refusal:
        require_agreement(agreement, params)
    assert "on_mismatch" in str(refusal.value)


def test_probe_d5_explicit_override() -> None:
    params = SamplingParams(top_p=0.8)
    agreement = measured(params)
    assert require_agreement(agreement, params, on_mismatch=OnMismatch.ALLOW) is agreement


def test_probe_d5_passes_silently_without_nucleus() -> None:
    params = SamplingParams(top_p=1.0)
    agreement = measured(params)
    assert agreement.agrees and agreement.mean_ratio == pytest.approx(1.0, abs=1e-6)
    assert require_agreement(agreement, params) is agreement


def startup(subject: Subject, params: SamplingParams, on_mismatch: OnMismatch = OnMismatch.REFUSE) -> Agreement:
    def trainer(samples: Sequence[Sample]) -> list[np.ndarray]:
        return [subject.reference(subject.states[0], s.context_ids, s.action.token_ids) for s in samples]

    async def check() -> Agreement:
        engine = subject.make()
        try:
            contexts = [r.context_ids for r in ragged_requests(4, subject.vocab_size)]
            return await check_at_startup(engine, contexts, params, trainer, on_mismatch=on_mismatch)
        finally:
            await engine.close()

    return asyncio.run(check())


def test_probe_d5_through_the_engine(subject: Subject) -> None:
    params = SamplingParams(top_p=0.8, max_tokens=16)
    with pytest.raises(ConfigError, match=r"top_p is 0\.8"):
        startup(subject, params)
    allowed = startup(subject, params, OnMismatch.ALLOW)
    assert allowed.verdict is AgreementVerdict.NUCLEUS
    assert 0.8 - 1e-4 <= allowed.mean_ratio < 0.99, "the kept mass of a real vocabulary lies between top_p and 1"


def test_plain_sampling_agrees_through_the_engine(subject: Subject) -> None:
    agreement = startup(subject, SamplingParams(max_tokens=16))
    assert agreement.agrees and agreement.n == 64 and agreement.max_abs < 2e-5


def test_temperature_mismatch_is_named(subject: Subject) -> None:
    with pytest.raises(ConfigError, match=r"temperature is 0\.6.*divide its logits"):
        startup(subject, SamplingParams(temperature=0.6, max_tokens=16))


def test_temperature_pairing_by_hand() -> None:
    """Logits 2, 1, 0 at temperature 0.6: raw -0.4076, after temperature -0.2026, ratio of the wrong pairing 0.815."""
    logits = torch.tensor([[2.0, 1.0, 0.0]])
    params = RowParams.of([SamplingParams(temperature=0.6)], torch.device("cpu"))
    token, logprob = draw(logits, params, torch.tensor([0.0], dtype=torch.float64))
    assert token.item() == 0 and logprob.item() == pytest.approx(-0.2026, abs=1e-4)
    sample = Sample(context_ids=np.zeros(1, dtype=np.int32), action=action_of([0], [logprob.item()]))
    raw = [np.array([logits.log_softmax(-1)[0, 0].item()])]
    agreement = logprob_agreement([sample], lambda _: raw, SamplingParams(temperature=0.6))
    assert agreement.verdict is AgreementVerdict.TEMPERATURE
    assert agreement.mean_ratio == pytest.approx(0.815, abs=1e-3)
    divided = [np.array([raw[0][0] / 0.6])]
    assert not logprob_agreement([sample], lambda _: divided, SamplingParams(temperature=0.6)).agrees


def test_noise_and_broken_trainers_are_refused() -> None:
    params = SamplingParams()
    sample = sampled_from_three(params)
    exact = plain_trainer([sample])[0]
    for wrong in (exact + 0.02, exact - 0.02, np.full_like(exact, np.nan), exact[::-1].copy()):
        agreement = logprob_agreement([sample], lambda _, wrong=wrong: [wrong], params)
        assert agreement.verdict is AgreementVerdict.DIFFERS
        with pytest.raises(ConfigError, match="sampler and trainer disagree"):
            require_agreement(agreement, params)


def test_gap_of_known_size_is_measured() -> None:
    params = SamplingParams()
    sample = sampled_from_three(params)
    agreement = logprob_agreement([sample], lambda s: [plain_trainer(s)[0] + 0.2], params)
    assert agreement.mean_ratio == pytest.approx(math.exp(0.2), rel=1e-5)


def test_nothing_to_compare_is_refused() -> None:
    agreement = logprob_agreement([], lambda _: [], SamplingParams())
    assert agreement.verdict is AgreementVerdict.NO_TOKENS
    with pytest.raises(ConfigError, match="no token was sampled"):
        require_agreement(agreement, SamplingParams())


def test_lengths_must_fit() -> None:
    with pytest.raises(ConfigError, match=r"lengths \[3\]; expected \[200\]"):
        logprob_agreement([sampled_from_three(SamplingParams())], lambda _: [np.zeros(3)], SamplingParams())


def test_bfloat16_engine_needs_its_own_tolerance(subject: Subject) -> None:
    """The float32 tolerance notices that the sampler rounds to bfloat16."""

    async def check() -> Agreement:
        module = subject.make()
        await module.close()
        engine = TorchEngine(module._module.to(torch.bfloat16), threads=1)
        try:
            requests = ragged_requests(4, subject.vocab_size)
            actions = await engine.generate_many(requests)
        finally:
            await engine.close()
        samples = [Sample(context_ids=r.context_ids, action=a) for r, a in zip(requests, actions, strict=True)]
        return logprob_agreement(
            samples,
            lambda ss: [subject.reference(subject.states[0], s.context_ids, s.action.token_ids) for s in ss],
            SamplingParams(),
        )

    agreement = asyncio.run(check())
    assert agreement.verdict is AgreementVerdict.DIFFERS and 1e-4 < agreement.max_abs < 0.5
