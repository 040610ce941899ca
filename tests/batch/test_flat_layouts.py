"""Where rows lie in a flat sequence, and what each token may see there."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sanderling.batch import micro_batches
from sanderling.batch.checks import check_cut
from sanderling.batch.layout import packed_layout, shared_layout
from sanderling.errors import InvariantViolation
from sanderling.types import TrainingRow

# Rows made of few pieces, so that many begin alike, some are equal, and some end inside another.
pieces = st.lists(st.sampled_from([0, 1, 2]), min_size=1, max_size=4)


def ids_of(names):
    return np.concatenate([np.arange(100 * n, 100 * n + 20 + 9 * n) for n in names]).astype(np.int32)


def row_of(i, names):
    ids = ids_of(names)
    mask = np.zeros(len(ids), dtype=np.bool_)
    mask[[len(ids) // 2, len(ids) - 1]] = True
    values = mask.astype(np.float32)
    zeros = np.zeros(len(ids), dtype=np.int32)
    return TrainingRow(
        trajectory_id=f"t{i:03d}",
        token_ids=ids,
        loss_mask=mask,
        turn_of_token=zeros,
        rollout_logprobs=-values,
        policy_versions=zeros,
        advantages=values,
        weights=values,
    )


def seen_from(layout, place):
    """The ids that the token at a place sees, in order, itself included."""
    (own, before) = next((own, before) for own, before in layout.blocks if own[0] <= place < own[1])
    spans = [*before, (own[0], place + 1)]
    return np.concatenate([layout.token_ids[a:b] for a, b in spans])


@settings(max_examples=25, deadline=None)
@given(rows=st.lists(pieces, min_size=1, max_size=6))
def test_every_token_sees_its_own_row_up_to_itself_and_nothing_else(rows):
    sequences = [ids_of(names) for names in rows]
    everything = [np.ones(len(s), dtype=np.bool_) for s in sequences]
    for lay in (packed_layout, shared_layout):
        layout = lay(sequences, everything)
        spans = [own for own, _ in layout.blocks]
        assert spans[0][0] == 0 and spans[-1][1] == len(layout.token_ids) == len(layout.positions)
        assert all(a[1] == b[0] for a, b in pairwise(spans))
        places = iter(layout.predictors.tolist())
        for sequence in sequences:
            for t in range(len(sequence)):
                place = next(places)
                assert layout.positions[place] == t
                assert np.array_equal(seen_from(layout, place), sequence[: t + 1])


def test_a_prompt_in_common_is_laid_once():
    rows = [ids_of([0, 1, k]) for k in (0, 1, 2)] + [ids_of([2])]
    layout = shared_layout(rows, [np.ones(len(r), dtype=np.bool_) for r in rows])
    assert len(layout.token_ids) == 49 + 20 + 29 + 38 + 38
    short = [np.arange(31), np.append(np.arange(31), 7)]
    apart = shared_layout([s.astype(np.int32) for s in short], [np.ones(31, bool), np.ones(32, bool)])
    assert len(apart.token_ids) == 63, "31 tokens are not worth a block"


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(pieces, min_size=1, max_size=12),
    budget=st.integers(1, 400),
    layout=st.sampled_from(["packed", "shared"]),
)
def test_cuts_keep_the_budget_and_lose_nothing(rows, budget, layout):
    made = [row_of(i, names) for i, names in enumerate(rows)]
    micros = micro_batches(made, budget, layout)
    check_cut(made, micros)
    for micro in micros:
        assert micro.computed_tokens <= budget or len(micro.lengths) == 1
    turned = micro_batches(made[::-1], budget, layout)
    assert [m.trajectory_ids for m in turned] == [m.trajectory_ids for m in micros]


def test_a_place_that_predicts_another_token_is_found():
    made = [row_of(i, names) for i, names in enumerate(([0, 1], [0, 2], [1]))]
    (micro,) = micro_batches(made, 1000, "shared")
    micro.flat.predictors[1] += 1
    with pytest.raises(InvariantViolation, match=r"trajectory t00\d: a trained token isn't predicted"):
        check_cut(made, [micro])
