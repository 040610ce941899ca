"""Two processes give the update of one: gradients, weights, metrics."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from flat_problem import rows_with_shared_prompts
from rank_problem import gradient_of, learner_of, reset, standing, weights_of

from sanderling.engine.torch_model import ModelDtype
from sanderling.errors import ConfigError, LearnerError
from sanderling.learn.config import LearnerConfig, LoraConfig, LossConfig
from sanderling.learn.gradients import Gradients
from sanderling.learn.learner import Learner
from sanderling.learn.rank_messages import ModelSource
from sanderling.learn.ranks import Ranks, share_of_threads
from sanderling.testing.models import tiny_llama
from sanderling.testing.tiny_model import tiny_llama_folder

# Everything that a share needs besides its rows: a forward pass before the update, a reference policy, ages of tokens.
RECOMPUTED = LossConfig(old_logprobs="recompute", correction="truncate", kl_coefficient=0.05)
AGED = LossConfig(old_logprobs="interpolate", entropy_coefficient=0.01, drift_bound=2.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_llama_folder(tmp_path_factory.mktemp("policy") / "tiny")


@pytest.fixture(scope="module")
def pair(folder):
    """A learner of one process and one of two, and what both held at the start."""
    one, two = (learner_of(folder, n, layout="shared", loss=RECOMPUTED) for n in (1, 2))
    yield one, two, standing(one)
    two.close()


@pytest.fixture
def both(pair):
    one, two, start = pair
    for learner in (one, two):
        reset(learner, start)
    return one, two


def assert_same_updates(one, two, rows, steps=3):
    """Gradients to 1e-6 of their norm, metrics to 1e-5, and weights to 1e-5 after updates that move them by up to 3e-3."""
    before = weights_of(one)
    assert torch.equal(before, weights_of(two))
    for step in range(steps):
        expected, found = one.step(rows).metrics, two.step(rows).metrics
        if step == 0:
            wanted, gradient = gradient_of(one), gradient_of(two)
            assert wanted.norm() > 0.01
            # of a step's later updates it is taken at weights that differ by rounding themselves
            assert (gradient - wanted).norm() < (1e-6 if expected["updates"] == 1 else 1e-5) * wanted.norm()
        assert found.keys() == expected.keys() and found["updates"] == expected["updates"] > 0
        for name, value in expected.items():
            assert found[name] == pytest.approx(value, rel=1e-5, abs=1e-6), name
    moved = (weights_of(one) - before).abs().max()
    assert moved > 1e-3 and (weights_of(two) - weights_of(one)).abs().max() < 1e-5


def test_two_ranks_make_the_updates_of_one(both):
    assert_same_updates(*both, rows_with_shared_prompts())


@pytest.mark.slow
def test_a_checkpoint_of_several_ranks_is_one_of_a_single_process(both):
    """And goes back to the workers: whatever rank 0 loads is what they compute with."""
    one, two = both
    rows = rows_with_shared_prompts()
    two.step(rows)
    reset(one, standing(two))
    assert torch.equal(weights_of(one), weights_of(two))
    reset(two, standing(one))
    assert_same_updates_later(one, two, rows)


def assert_same_updates_later(one, two, rows):
    expected, found = one.step(rows).metrics, two.step(rows).metrics
    assert found["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-5)
    assert (weights_of(two) - weights_of(one)).abs().max() < 1e-5


@pytest.mark.slow
def test_a_row_that_spoils_the_loss_changes_nothing_wherever_it_is_computed(both):
    _, two = both
    rows = rows_with_shared_prompts()
    before = weights_of(two)
    for place in range(len(rows)):
        spoiled = [
            replace(r, advantages=r.advantages * np.float32(np.nan)) if i == place else r for i, r in enumerate(rows)
        ]
        with pytest.raises(LearnerError, match=f"trajectories .*{rows[place].trajectory_id}.*no update was made"):
            two.step(spoiled)
    assert torch.equal(weights_of(two), before) and two.policy_version == 0
    assert two.step(rows).metrics["updates"] == 1


@pytest.mark.slow
def test_fewer_rows_than_ranks_and_none(both):
    one, two = both
    assert two.step([]).metrics["updates"] == 0
    row = rows_with_shared_prompts()[:1]
    assert two.step(row).metrics["loss"] == pytest.approx(one.step(row).metrics["loss"], rel=1e-5)
    assert (weights_of(two) - weights_of(one)).abs().max() < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "settings"),
    [
        (2, {"layout": "padded"}),
        (2, {"layout": "shared"}),
        (2, {"layout": "padded", "loss": RECOMPUTED, "minibatches_per_step": 3}),
        (2, {"layout": "shared", "lora": LoraConfig(rank=4)}),
        (2, {"layout": "shared", "gradient_checkpointing": True}),
    ],
)
def test_any_number_of_ranks_in_any_layout(folder, processes, settings):
    torch.manual_seed(3)  # of low-rank additions
    one = learner_of(folder, 1, **settings)
    two = learner_of(folder, processes, **settings)
    reset(two, standing(one))
    try:
        assert_same_updates(one, two, rows_with_shared_prompts(groups=3))
    finally:
        two.close()


@pytest.mark.slow
def test_in_float64_many_updates_of_three_ranks_are_those_of_one(folder, tmp_path):
    """So what differs in float32 is rounding: at 12 updates of 1e-3 the weights of this case differ by 3e-5 there."""
    exact = tmp_path / "exact"
    shutil.copytree(folder, exact)
    ModelSource(folder=folder).load().double().save_pretrained(exact)
    settings = {"layout": "packed", "loss": AGED, "minibatches_per_step": 2, "epochs_per_step": 2}
    one, three = (learner_of(exact, n, **settings) for n in (1, 3))
    try:
        assert weights_of(one).dtype == torch.float64
        rows = rows_with_shared_prompts(groups=3)
        before = weights_of(one)
        for _ in range(3):
            assert one.step(rows).metrics["updates"] == three.step(rows).metrics["updates"] == 4
        assert (weights_of(one) - before).abs().max() > 5e-3
        assert (weights_of(three) - weights_of(one)).abs().max() < 1e-8
    finally:
        three.close()


@pytest.mark.slow
def test_other_weights_than_those_of_the_folder_are_refused(folder):
    settings = LearnerConfig(processes=2)
    source = ModelSource(folder=folder, dtype=ModelDtype.FLOAT32)
    with pytest.raises(ConfigError, match=r"rank 1 loaded weights .* rank 0 trains"):
        Learner(tiny_llama(seed=1), settings, source=source)


def test_a_learner_of_several_processes_has_to_know_its_model():
    with pytest.raises(ConfigError, match="from where further ones load the model"):
        Learner(tiny_llama(), LearnerConfig(processes=2))


def test_each_process_on_gpus_needs_one_of_its_own(folder):
    own = Gradients(tiny_llama(), LearnerConfig(processes=torch.cuda.device_count() + 2))
    own.device = torch.device("cuda", 0)  # asked for before anything is put there
    with pytest.raises(ConfigError, match="each process needs one of its own"):
        Ranks(own, ModelSource(folder=folder, device="cuda"))


@pytest.mark.parametrize(("processes", "threads", "share"), [(1, 0, 0), (1, 3, 3), (2, 6, 3), (4, 6, 1), (4, 2, 1)])
def test_threads_are_dealt_out(processes, threads, share):
    assert share_of_threads(LearnerConfig(processes=processes, threads=threads)) == share
