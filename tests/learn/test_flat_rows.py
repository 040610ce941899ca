"""Rows behind each other, packed or with a shared prompt: the same log-probabilities and gradients as one by one."""

import numpy as np
import pytest
import torch
from flat_problem import gradient, learner_of, model_of, rows_with_shared_prompts

from sanderling.errors import LearnerError, ModelError
from sanderling.loss.flat_attention import FlatRows, run_flat, use_flat_attention


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("layout", ["packed", "shared"])
def test_log_probabilities_and_gradients_are_those_of_padded_rows(layout, attention):
    rows = rows_with_shared_prompts()
    expected = learner_of(model_of()).logprobs(rows)
    whole, plain = gradient(model_of(), rows)
    for budget in (4096, 150):
        learner = learner_of(model_of(attention=attention), layout, budget)
        for found, wanted in zip(learner.logprobs(rows), expected, strict=True):
            np.testing.assert_allclose(found, wanted, atol=1e-6)
        flat, report = gradient(model_of(attention=attention), rows, layout, budget)
        # rotary angles and norms are float32 in transformers, whatever the weights are
        assert whole.norm() > 0.1 and (flat - whole).abs().max() < 1e-7
        assert report.metrics["loss"] == pytest.approx(plain.metrics["loss"], abs=1e-9)
        assert report.micro_batches == 1 or budget == 150


def test_what_is_computed():
    """Padding costs tokens, packing none, and a shared prompt is computed once: 8 rows, 2 prompts of 50 and 57."""
    rows = rows_with_shared_prompts()
    ratio = {name: gradient(model_of(), rows, name)[1].padding_ratio for name in ("padded", "packed", "shared")}
    # the last token of a row is never read
    assert ratio["padded"] > 1.1 and 0.98 < ratio["packed"] < 1.0 and ratio["shared"] < 0.6


def test_rows_behind_each_other_do_not_see_each_other():
    """Bit for bit, whatever the other rows hold."""
    rows = rows_with_shared_prompts()
    learner = learner_of(model_of(), "packed")
    before = learner.logprobs(rows)
    for row in rows[1:]:
        row.token_ids[:] = (row.token_ids + 1) % 320
    after = learner.logprobs(rows)
    assert np.array_equal(before[0], after[0])
    assert all(not np.array_equal(a, b) for a, b in zip(before[1:], after[1:], strict=True))


def test_a_leak_would_be_seen():
    """With the first row in the view of the second, the second's logits differ: the comparison can fail."""
    model = model_of()
    use_flat_attention(model)
    tokens, positions = torch.arange(12), torch.arange(6).repeat(2)

    def logits(before):
        blocks = (((0, 6), ()), ((6, 12), before))
        return run_flat(model, FlatRows(token_ids=tokens, positions=positions, blocks=blocks)).logits[0, 11]

    assert (logits(()) - logits(((0, 6),))).abs().max() > 1e-3
    assert torch.allclose(logits(()), model(input_ids=tokens[None, 6:]).logits[0, -1])


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "gpt2", "gpt_neox"])
def test_other_architectures(name):
    rows = rows_with_shared_prompts(groups=1)
    whole, _ = gradient(model_of(name), rows)
    flat, _ = gradient(model_of(name), rows, "shared")
    assert whole.norm() > 0.01 and (flat - whole).abs().max() < 1e-7


def test_attention_that_is_not_known_is_refused():
    with pytest.raises(ModelError, match=r"Gemma2ForCausalLM can't be trained on flat rows .*softcap"):
        learner_of(model_of("gemma2", "eager"), "packed")
    learner = learner_of(model_of("mistral"), "packed")
    with pytest.raises(LearnerError, match="longer than the attention window of 40"):
        learner.step(rows_with_shared_prompts())


def test_checkpointed_layers_are_computed_twice_and_change_nothing():
    rows = rows_with_shared_prompts(groups=1)
    for name, layout in (("llama", "shared"), ("gpt2", "padded")):
        found = {}
        for checkpointing in (False, True):
            model, calls = model_of(name), []
            attention = next(m for n, m in model.named_modules() if n.endswith(("self_attn", "attn")))
            attention.register_forward_hook(lambda *_, calls=calls: calls.append(1))
            learner = learner_of(model, layout, gradient_checkpointing=checkpointing)
            calls.clear()  # of the probe
            learner.step(rows)
            found[checkpointing] = (dict(learner.weights()), len(calls))
        assert found[True][1] == 2 * found[False][1]
        for key, tensor in found[False][0].items():
            assert torch.allclose(tensor, found[True][0][key], atol=1e-10), "dropout was on, or the gradient differs"


def test_checkpointing_keeps_less():
    rows = rows_with_shared_prompts(groups=1)
    kept = {}
    for checkpointing in (False, True):
        learner = learner_of(model_of(), gradient_checkpointing=checkpointing)
        sizes = []

        def pack(tensor, sizes=sizes):
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            learner.step(rows)
        kept[checkpointing] = sum(sizes)
    assert kept[True] < 0.5 * kept[False]


def test_rows_without_a_shared_beginning_are_just_packed():
    rows = rows_with_shared_prompts()
    for i, row in enumerate(rows):
        row.token_ids[0] = i
    flat, report = gradient(model_of(), rows, "shared")
    packed, other = gradient(model_of(), rows, "packed")
    assert report.padding_ratio == other.padding_ratio and torch.allclose(flat, packed, atol=1e-10)
