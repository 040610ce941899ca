"""Selected log-probabilities: the same as from full logits, on every path."""

from types import SimpleNamespace

import pytest
import torch

from sanderling.loss.logprobs import token_scores
from sanderling.testing.models import tiny_llama


@pytest.fixture(scope="module")
def model():
    return tiny_llama(seed=3).double()


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(1)
    token_ids = torch.randint(0, 16, (3, 20), generator=generator)
    mask = torch.rand((3, 20), generator=generator) < 0.4
    mask[:, 0] = False
    return token_ids, mask


def reference(model, token_ids, mask, temperature=1.0):
    log_softmax = torch.log_softmax(model(input_ids=token_ids).logits[:, :-1] / temperature, dim=-1)
    picked = log_softmax.gather(-1, token_ids[:, 1:, None]).squeeze(-1)
    entropy = -(log_softmax.exp() * log_softmax).sum(-1)
    return picked[mask[:, 1:]], entropy[mask[:, 1:]]


@pytest.mark.parametrize("temperature", [1.0, 0.6, 2.0])
@pytest.mark.parametrize("chunk_logits", [1 << 25, 16, 3 * 16])
def test_equal_to_full_logits_in_value_and_gradient(model, batch, temperature, chunk_logits):
    scores = token_scores(model, *batch, temperature=temperature, entropy_gradient=True, chunk_logits=chunk_logits)
    logprobs, entropy = reference(model, *batch, temperature)
    assert torch.allclose(scores.logprobs, logprobs, atol=1e-12) and torch.allclose(scores.entropy, entropy, atol=1e-12)
    parameters = list(model.parameters())
    found = torch.autograd.grad(scores.logprobs.sin().sum() + scores.entropy.sum(), parameters)
    expected = torch.autograd.grad(logprobs.sin().sum() + entropy.sum(), parameters)
    assert all(torch.allclose(a, b, atol=1e-11) for a, b in zip(found, expected, strict=True))


def test_models_whose_logits_are_more_than_a_head_take_the_direct_path(model, batch):
    plain = token_scores(model, *batch)
    model.config.final_logit_softcapping = 30.0
    try:
        direct = token_scores(model, *batch)  # the llama itself ignores the setting, so both paths must agree
    finally:
        del model.config.final_logit_softcapping
    assert torch.allclose(plain.logprobs, direct.logprobs, atol=1e-12)


def test_temperature_is_applied_before_the_softmax():
    """Logits 2, 1, 0 at temperature .6: -0.2026; before temperature -0.4076; dividing log-probabilities -0.679."""

    class Fixed(torch.nn.Module):
        def forward(self, input_ids, use_cache):
            return SimpleNamespace(logits=torch.tensor([[[2.0, 1.0, 0.0]]]))

    fixed = Fixed()
    ids, mask = torch.tensor([[1, 0]]), torch.tensor([[False, True]])
    assert float(token_scores(fixed, ids, mask, temperature=0.6).logprobs) == pytest.approx(-0.2026, abs=1e-4)
    assert float(token_scores(fixed, ids, mask).logprobs) == pytest.approx(-0.4076, abs=1e-4)
    assert float(token_scores(fixed, ids, mask, temperature=0.0).logprobs) == pytest.approx(-0.4076, abs=1e-4)


def test_padding_and_the_rest_of_the_row_do_not_matter(model, batch):
    token_ids, mask = batch
    mask = mask.clone()
    mask[:, 12:] = False
    cut = token_scores(model, token_ids[:, :12], mask[:, :12])
    other = token_ids.clone()
    other[:, 12:] = 5
    assert torch.allclose(token_scores(model, token_ids, mask).logprobs, cut.logprobs, atol=1e-12)
    assert torch.allclose(token_scores(model, other, mask).logprobs, cut.logprobs, atol=1e-12)


def test_entropy_has_a_graph_only_when_asked(model, batch):
    assert not token_scores(model, *batch).entropy.requires_grad
    assert token_scores(model, *batch, entropy_gradient=True).entropy.requires_grad


def test_half_precision_weights_are_scored_in_float32(batch):
    scores = token_scores(tiny_llama(seed=3).to(torch.bfloat16), *batch)
    assert scores.logprobs.dtype == torch.float32
    assert torch.allclose(scores.logprobs, token_scores(tiny_llama(seed=3), *batch).logprobs, atol=0.1)
