"""Drawing tokens: the right distribution, the right log-probability, and nothing but seed and position."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sanderling.engine.protocol import SamplingParams
from sanderling.engine.torch_sampler import RowParams, check_params, draw, nucleus, uniforms
from sanderling.errors import ConfigError

CPU = torch.device("cpu")


def drawn(logits: list[float], params: SamplingParams, count: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    rows = torch.tensor(logits).expand(count, len(logits))
    tokens, logprobs = draw(rows, RowParams.of([params] * count, CPU), torch.from_numpy(uniforms(5, count)))
    return tokens.numpy(), logprobs.numpy()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_frequencies_are_the_softmax(temperature: float) -> None:
    logits = [1.0, 0.0, -1.0, 2.0]
    tokens, logprobs = drawn(logits, SamplingParams(temperature=temperature))
    expected = torch.softmax(torch.tensor(logits) / temperature, dim=0).numpy()
    frequencies = np.bincount(tokens, minlength=4) / len(tokens)
    # five standard errors of a frequency
    assert np.all(np.abs(frequencies - expected) < 5 * np.sqrt(expected * (1 - expected) / len(tokens)))
    np.testing.assert_allclose(logprobs, np.log(expected)[tokens], atol=1e-6)


def test_nucleus_keeps_the_smallest_set_and_renormalises() -> None:
    logits = np.log([0.2, 0.5, 0.3]).tolist()
    tokens, logprobs = drawn(logits, SamplingParams(top_p=0.8))
    assert set(tokens.tolist()) == {1, 2}
    np.testing.assert_allclose(np.exp(logprobs), np.where(tokens == 1, 0.625, 0.375), atol=1e-6)
    assert abs(float((tokens == 1).mean()) - 0.625) < 0.02


@pytest.mark.parametrize(("top_p", "kept"), [(0.01, 1), (0.5, 1), (0.51, 2), (0.8, 2), (0.81, 3), (1.0, 3)])
def test_nucleus_boundaries(top_p: float, kept: int) -> None:
    cut = nucleus(torch.tensor([[0.5, 0.3, 0.2]]).log(), torch.tensor([[top_p]]))
    assert int(torch.isfinite(cut).sum()) == kept
    assert cut.exp().sum().item() == pytest.approx(1.0, abs=1e-6)


def test_ties_are_cut_by_ascending_id() -> None:
    cut = nucleus(torch.full((1, 4), 0.25).log(), torch.tensor([[0.5]]))
    assert torch.isfinite(cut).tolist() == [[True, True, False, False]]


def test_greedy_takes_the_largest_with_plain_logprobs() -> None:
    tokens, logprobs = drawn([0.0, 3.0, 1.0], SamplingParams(temperature=0.0, top_p=0.1), count=10)
    assert set(tokens.tolist()) == {1}
    expected = torch.tensor([0.0, 3.0, 1.0]).log_softmax(0)[1].item()
    np.testing.assert_allclose(logprobs, expected, atol=1e-6)


def test_impossible_tokens_are_never_drawn() -> None:
    logits = [float("-inf"), 0.0, float("-inf"), 0.0, float("-inf")]
    rows = torch.tensor(logits).expand(4, 5)
    extreme = torch.tensor([0.0, 0.5, 0.5 - 2.0**-53, 1.0 - 2.0**-53], dtype=torch.float64)
    tokens, _ = draw(rows, RowParams.of([SamplingParams()] * 4, CPU), extreme)
    assert tokens.tolist() == [1, 3, 1, 3]


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(1, 5),
    temperature=st.sampled_from([0.0, 0.3, 1.0, 1.7]),
    top_p=st.floats(0.05, 1.0),
)
def test_a_row_is_drawn_alike_in_any_company(seed: int, rows: int, temperature: float, top_p: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, 17, generator=generator) * 3
    uniform = torch.rand(rows, generator=generator, dtype=torch.float64)
    mixed = [SamplingParams(temperature=temperature, top_p=top_p)] + [SamplingParams()] * (rows - 1)
    tokens, logprobs = draw(logits, RowParams.of(mixed, CPU), uniform)
    for i in range(rows):
        token, logprob = draw(logits[i : i + 1], RowParams.of([mixed[i]], CPU), uniform[i : i + 1])
        assert token.item() == tokens[i].item()
        assert logprob.item() == pytest.approx(logprobs[i].item(), abs=1e-5)
        assert np.isfinite(logprob.item())


def test_uniforms_are_a_function_of_seed_and_position() -> None:
    np.testing.assert_array_equal(uniforms(7, 5), uniforms(7, 100)[:5])
    assert not np.array_equal(uniforms(7, 5), uniforms(8, 5))
    assert uniforms(-1, 3).shape == uniforms(2**200, 3).shape == (3,)
    many = uniforms(0, 100_000)
    assert many.min() >= 0.0 and many.max() < 1.0 and abs(many.mean() - 0.5) < 0.005


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=-0.1),
        SamplingParams(temperature=float("nan")),
        SamplingParams(temperature=float("inf")),
        SamplingParams(top_p=0.0),
        SamplingParams(top_p=1.01),
        SamplingParams(max_tokens=0),
    ],
)
def test_parameters_without_a_meaning_are_refused(params: SamplingParams) -> None:
    with pytest.raises(ConfigError, match="expected"):
        check_params(params)
