"""Cosine and turns for SNR 1 of samples whose answer is known, and of estimators in small measurements."""

from __future__ import annotations

import numpy as np
import pytest

from sanderling.creditbench.arms import ARMS, arm_of
from sanderling.creditbench.environments import ENVIRONMENTS
from sanderling.creditbench.exact import reference_policy
from sanderling.creditbench.expectations import unearned
from sanderling.creditbench.measurement import Place, measure_arms
from sanderling.creditbench.quality import log_ratio, measure
from sanderling.errors import ConfigError

EXACT = np.array([1.0, 2.0, 0.0])


def _samples(mean, noise, count=4000):
    return np.asarray(mean) + noise * np.random.default_rng(0).normal(size=(count, 3))


def test_unbiased_samples_have_cosine_1_and_the_turns_that_their_noise_needs():
    """Noise of variance 3 s^2 against |G|^2 = 5 needs 10 * 3 s^2 / 5 turns, whatever the scale of the gradient."""
    for scale in (1.0, 0.01):
        found = measure(_samples(scale * EXACT, 4 * scale), EXACT, np.full(4000, 10.0))
        assert found.cosine is not None
        assert found.turns_for_snr_1 is not None
        assert found.cosine.low < 1.0 <= found.cosine.high
        assert found.turns_for_snr_1.low < 10 * 3 * 16 / 5 < found.turns_for_snr_1.high


def test_a_bias_shows_in_the_cosine():
    found = measure(_samples([1.0, 2.0, 2.0], 2), EXACT, np.full(4000, 10.0))
    expected = 5 / np.sqrt(5 * 9)
    assert found.cosine is not None
    assert found.cosine.low < expected < found.cosine.high < 0.8


def test_few_noisy_samples_do_not_look_biased():
    """The mean of 96 such samples has a cosine of about 0.8; without noise's share it is 1."""
    raw, without = [], []
    for seed in range(40):
        samples = EXACT + 12 * np.random.default_rng(seed).normal(size=(96, 3))
        mean = samples.mean(0)
        raw.append(mean @ EXACT / np.linalg.norm(mean) / np.linalg.norm(EXACT))
        if (cosine := measure(samples, EXACT, np.ones(96)).cosine) is not None:
            without.append(cosine.value)
    assert np.mean(raw) < 0.9
    assert np.mean(without) > np.mean(raw) + 0.03


def test_zeros_are_no_signal_and_the_wrong_way_needs_no_turns():
    nothing = measure(np.zeros((100, 3)), EXACT, np.ones(100))
    assert (nothing.has_signal, nothing.cosine, nothing.turns_for_snr_1) == (False, None, None)
    backwards = measure(_samples(-EXACT, 1), EXACT, np.ones(4000))
    assert backwards.cosine is not None
    assert backwards.cosine.value < -0.99
    assert backwards.turns_for_snr_1 is None


def _measured(name, *arms, updates=48, seed=3):
    mdp = ENVIRONMENTS[name].build()
    place = Place(mdp=mdp, policy=reference_policy(mdp, ENVIRONMENTS[name].success))
    return measure_arms(place, {arm: arm_of(arm, mdp) for arm in arms}, updates, seed)


def test_a_nonce_takes_equal_states_away():
    found = _measured("nonce", "rloo", "gigpo-mean", "gigpo-step", updates=24)
    gigpo, rloo = found["gigpo-mean"].turns_for_snr_1, found["rloo"].turns_for_snr_1
    assert gigpo is not None
    assert rloo is not None
    assert gigpo.value == pytest.approx(rloo.value)
    assert not found["gigpo-step"].has_signal


def test_visible_progress_pays_for_finer_credit():
    found = _measured("progress", "rloo", "gigpo-mean", "critic", "exact")
    rloo = found["rloo"].turns_for_snr_1
    assert rloo is not None
    for arm, at_most in (("gigpo-mean", 0.8), ("critic", 0.4), ("exact", 0.1)):
        turns = found[arm].turns_for_snr_1
        assert turns is not None
        assert log_ratio(turns, rloo).high < np.log(at_most)


def test_continuations_are_paid_for():
    found = _measured("revisits", "rloo", "continuations", updates=24)
    assert found["continuations"].turns_per_update > 8 * found["rloo"].turns_per_update


def knows_the_process(group):
    """A cheat: it credits the first two turns by what it knows of the null environment, and pays no attention to rewards."""
    return {
        m.trajectory.id: np.array(
            [float(t.action.token_ids[0] == 0) - 0.5 if k < 2 else 0.0 for k, t in enumerate(m.trajectory.turns)]
        )
        for m in group.graded()
    }


def test_the_null_environment_catches_cheats():
    cheat = f"{__file__}:knows_the_process"
    found = _measured("null", "rloo", "gigpo-step", "mt-grpo", cheat, updates=24)
    told_more = {name: arm.told_more for name, arm in ARMS.items()}
    assert unearned(found, told_more) == [cheat]
    assert unearned(found, {}) == ["mt-grpo", cheat]


def test_what_cannot_act_is_refused():
    mdp = ENVIRONMENTS["luck"].build()
    with pytest.raises(ConfigError, match="says nothing of turns"):
        arm_of("mt-grpo", mdp)
    with pytest.raises(ConfigError, match="needs forks"):
        arm_of("tree-value", mdp)
    with pytest.raises(ValueError, match="expected at least 24"):
        _measured("luck", "rloo", updates=23)
