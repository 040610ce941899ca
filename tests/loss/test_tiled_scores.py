"""Scores in tiles of tokens by vocabulary: the same numbers, and never the logits of a row."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sanderling.loss.logprobs import CHUNK_LOGITS, token_scores
from sanderling.loss.tiled_scores import tiled_scores
from sanderling.testing.models import tiny_llama

TOKENS, VOCABULARY, WIDTH = 300, 2000, 8


class Largest(TorchDispatchMode):
    """Remembers the size of the largest tensor that was made."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else (made,):
            if isinstance(tensor, torch.Tensor):
                self.numel = max(self.numel, tensor.numel())
        return made


def problem(dtype=torch.float64, bias=False):
    generator = torch.Generator().manual_seed(0)
    head = torch.nn.Linear(WIDTH, VOCABULARY, bias=bias, dtype=dtype)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    hidden = torch.randn(TOKENS, WIDTH, generator=generator).to(dtype).requires_grad_()
    return hidden, head, torch.randint(0, VOCABULARY, (TOKENS,), generator=generator)


def plain(hidden, head, targets, scale):
    log_softmax = torch.log_softmax(head(hidden) * scale, dim=-1)
    return log_softmax.gather(-1, targets[:, None]).squeeze(-1), -(log_softmax.exp() * log_softmax).sum(-1)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("tile_logits", [40, 700, 50_000])
def test_values_and_gradients_are_those_of_full_logits(bias, tile_logits):
    hidden, head, targets = problem(bias=bias)
    if tile_logits == 40:  # narrower than the tokens are many
        hidden, targets = hidden.detach()[:60].requires_grad_(), targets[:60]
    found = tiled_scores(hidden, head, targets, scale=1.5, entropy_gradient=True, tile_logits=tile_logits)
    expected = plain(hidden, head, targets, 1.5)
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b, atol=1e-12)
    inputs = [hidden, *head.parameters()]
    gradients = [torch.autograd.grad(a.sin().sum() + b.cos().sum(), inputs) for a, b in (found, expected)]
    for a, b in zip(*gradients, strict=True):
        assert b.abs().max() > 1e-3 and torch.allclose(a, b, atol=1e-11)


def test_no_tensor_is_as_large_as_the_logits():
    """Neither forward nor backward; the largest thing is the head or a tile."""
    hidden, head, targets = problem(torch.float32)
    sizes = {}
    for name, score in (
        ("tiled", lambda: tiled_scores(hidden, head, targets, scale=1.0, entropy_gradient=True, tile_logits=3000)),
        ("plain", lambda: plain(hidden, head, targets, 1.0)),
    ):
        with Largest() as largest:
            logprobs, entropy = score()
            (logprobs.sum() + entropy.sum()).backward()
        sizes[name] = largest.numel
    assert sizes["plain"] == TOKENS * VOCABULARY
    assert sizes["tiled"] == VOCABULARY * WIDTH


def test_large_vocabularies_take_the_tiles_by_themselves():
    """SmolLM2 has 49,152 tokens: 128 trained tokens of it would be 6.3 M logits."""
    model = tiny_llama(vocab_size=49_152, width=8, layers=1)
    ids = torch.randint(0, 49_152, (1, 129), generator=torch.Generator().manual_seed(0))[:, :128]
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[:, 0] = False
    with Largest() as largest:
        scores = token_scores(model, ids, mask)
        scores.logprobs.sum().backward()
    assert largest.numel <= CHUNK_LOGITS < 127 * 49_152
    assert torch.allclose(scores.logprobs, token_scores(model, ids, mask, chunk_logits=1 << 30).logprobs, atol=1e-5)


def test_a_frozen_head_gets_no_gradient():
    hidden, head, targets = problem()
    head.requires_grad_(False)
    scores, entropy = tiled_scores(hidden, head, targets, scale=1.0, entropy_gradient=False, tile_logits=5000)
    assert not entropy.requires_grad
    scores.sum().backward()
    assert head.weight.grad is None and hidden.grad.norm() > 0


def test_bfloat16_arithmetic_rounds_like_the_plain_head():
    hidden, head, targets = problem(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        tiled, _ = tiled_scores(hidden, head, targets, scale=1.0, entropy_gradient=False, tile_logits=5000)
        rounded, _ = plain(hidden, lambda h: head(h).float(), targets, 1.0)
    exact, _ = plain(hidden, head, targets, 1.0)
    assert tiled.dtype == torch.float32 and torch.allclose(tiled, rounded, atol=1e-4)
    assert 1e-3 < (tiled - exact).abs().max() < 0.3
