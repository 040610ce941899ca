"""Sampler against trainer in a step: on average within the tolerance, and no token further off than a multiple of it."""

from dataclasses import replace

import numpy as np
import pytest
from flat_problem import learner_of, rows_with_shared_prompts

from sanderling.engine.torch_model import load_model
from sanderling.errors import InvariantViolation
from sanderling.learn.agreement import measure_gap
from sanderling.testing.engines import tiny_llama_folder


@pytest.fixture(scope="module")
def learner(tmp_path_factory):
    return learner_of(load_model(tiny_llama_folder(tmp_path_factory.mktemp("models") / "llama", scale=0.1)))


def sampled(learner, off):
    """A row as the learner's weights would have sampled it, with the first of its log-probabilities off by so many nats."""
    row = rows_with_shared_prompts()[0]
    logprobs = learner.logprobs([row])[0].copy()
    logprobs[np.flatnonzero(row.loss_mask)[0]] += off
    return replace(row, rollout_logprobs=logprobs)


def test_one_token_may_be_further_off_than_the_average(learner):
    gap = measure_gap(learner, [sampled(learner, 0.3)], tolerance=0.05, worst=10.0)
    assert gap.max == pytest.approx(0.3, abs=1e-4) and gap.mean < 0.05


@pytest.mark.parametrize(("off", "worst"), [(0.3, 1.0), (0.6, 10.0), (5.0, 1000.0)])
def test_more_than_rounding_stops_the_run(learner, off, worst):
    with pytest.raises(InvariantViolation, match="sampler and trainer disagree by up to"):
        measure_gap(learner, [sampled(learner, off)], tolerance=0.05, worst=worst)
