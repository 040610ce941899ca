"""Denominators: who counts, and that a cut of the batch has no say."""

from dataclasses import replace

import numpy as np
import pytest

from sanderling.batch import BatchConfig, assign_credit, token_weights
from sanderling.batch.weights import is_dead
from sanderling.credit import Grpo
from sanderling.testing import records
from sanderling.types import Gradient


def group_of(lengths, rewards, gradients=None, id="g"):
    """One turn per member with `lengths` action tokens each."""
    gradients = gradients or [Gradient.FULL] * len(lengths)
    members = [
        records.member(records.trajectory([records.turn("x" * (n - 1), "")], id=f"{id}/{i}.0"), r, gradient=g)
        for i, (n, r, g) in enumerate(zip(lengths, rewards, gradients, strict=True))
    ]
    return replace(records.group([], id=id), members=tuple(members))


def weights_of(groups, **settings):
    return list(
        token_weights(
            groups, assign_credit(groups, Grpo()), BatchConfig(**{"aggregation": "token-mean", **settings})
        ).values()
    )


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"aggregation": "token-mean"}, [1 / 5] * 2),
        ({"aggregation": "sequence-mean"}, [1 / (3 * 2), 1 / (3 * 3)]),
        ({"aggregation": "sequence-mean", "count": "trained"}, [1 / (2 * 2), 1 / (2 * 3)]),
        ({"aggregation": "sequence-sum"}, [1 / 3] * 2),
        ({"aggregation": "sequence-sum", "count": "trained"}, [1 / 2] * 2),
        ({"aggregation": "constant", "constant_tokens": 10}, [1 / 30] * 2),
        ({"aggregation": "constant", "constant_tokens": 10, "count": "trained"}, [1 / 20] * 2),
    ],
)
def test_masked_members_count_and_excluded_ones_do_not(settings, expected):
    masked = [Gradient.FULL, Gradient.FULL, Gradient.NONE, Gradient.NONE]
    group = group_of([2, 3, 7, 9], [1.0, 0.0, 0.0, None], masked)
    assert weights_of([group], **settings) == pytest.approx(expected)


def test_dead_groups_count_or_are_dropped():
    dead, live = group_of([4, 4], [1.0, 1.0], id="dead"), group_of([2, 2], [1.0, 0.0], id="live")
    assert weights_of([dead, live]) == pytest.approx([1 / 12] * 4)
    assert weights_of([dead, live], dead_groups="drop") == weights_of([live]) == pytest.approx([1 / 4] * 2)
    assert is_dead(dead, Grpo()(dead)) and not is_dead(live, Grpo()(live))


def test_dynamic_sampling_keeps_groups_with_both_outcomes():
    kept = []
    for rewards in ([1.0] * 4, [1.0, 0.0, 0.0, 0.0], [0.0] * 4, [1.0, 1.0, 0.0, 0.0]):
        group = records.group(rewards)
        kept.append(not is_dead(group, Grpo()(group)))
    assert kept == [False, True, False, True]


def test_a_lost_member_changes_nobody_elses_weight():
    with_lost = group_of([2, 3, 5], [1.0, 0.0, None])
    without = group_of([2, 3], [1.0, 0.0])
    for aggregation in ("token-mean", "sequence-mean", "sequence-sum"):
        assert weights_of([with_lost], aggregation=aggregation) == weights_of([without], aggregation=aggregation)


def test_the_cut_does_not_matter_for_lengths_one_and_three():
    """Advantages +1 and -1 on 1 and 3 tokens: the token-mean of the negated advantage is +0.5, a mean of means 0."""
    group = group_of([1, 3], [1.0, 0.0])
    credit = {"g/0.0": np.array([1.0]), "g/1.0": np.array([-1.0])}
    weights = token_weights([group], credit, BatchConfig(aggregation="token-mean"))
    assert -(1.0 * weights["g/0.0"] * 1 - 1.0 * weights["g/1.0"] * 3) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"aggregation": "constant"}, "constant_tokens, which is None"),
        ({"constant_tokens": 8}, 'acts only with "constant"'),
        ({"aggregation": "mean"}, "aggregation"),
        ({"micro_batch_token": 8}, "micro_batch_token"),
    ],
)
def test_settings_without_effect_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        BatchConfig(**settings)
