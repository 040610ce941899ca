"""Which rank computes what: everything once, evenly, and what rows share stays together."""

import numpy as np
import pytest

from sanderling.batch.checks import check_cut
from sanderling.batch.micro import micro_batches
from sanderling.batch.shares import deal, fair_cut
from sanderling.types import TrainingRow


def row_of(name, ids):
    """A row of which all but the first token are trained."""
    mask = np.arange(len(ids)) > 0
    values = mask.astype(np.float32)
    return TrainingRow(
        trajectory_id=name,
        token_ids=np.array(ids, dtype=np.int32),
        loss_mask=mask,
        turn_of_token=np.zeros(len(ids), dtype=np.int32),
        rollout_logprobs=-values,
        policy_versions=np.zeros(len(ids), dtype=np.int32),
        advantages=values,
        weights=values,
    )


def ragged(count, seed=0):
    random = np.random.default_rng(seed)
    return [row_of(f"r{i:02}", random.integers(0, 99, int(random.integers(5, 200)))) for i in range(count)]


def siblings(groups, size):
    """Groups whose rows have a long prompt in common, and little behind it."""
    random = np.random.default_rng(1)
    prompts = [random.integers(0, 99, 300) for _ in range(groups)]
    return [
        row_of(f"g{g}/{i}", np.concatenate([prompts[g], random.integers(0, 99, 20)]))
        for g in range(groups)
        for i in range(size)
    ]


def loads(micros, ranks):
    return [sum(micros[place].computed_tokens for place in share) for share in deal(micros, ranks)]


@pytest.mark.parametrize("layout", ["padded", "packed", "shared"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_every_row_is_dealt_out_once(layout, ranks):
    rows = [*ragged(23), *siblings(2, 4)]
    micros = fair_cut(rows, 512, layout, ranks)
    check_cut(rows, micros)
    shares = deal(micros, ranks)
    assert sorted(place for share in shares for place in share) == list(range(len(micros)))
    assert all(micro.computed_tokens <= 512 for micro in micros)


def test_shares_are_even_whether_there_are_many_rows_or_few():
    for count in (6, 23, 120):
        for ranks in (2, 4):
            found = loads(fair_cut(ragged(count), 4096, "packed", ranks), ranks)
            assert max(found) <= sum(found) / ranks + max(0.05 * sum(found) / ranks, 200)  # a twentieth, or a row


def test_the_order_of_the_rows_decides_nothing():
    rows = ragged(23)
    one, two = (fair_cut(some, 512, "padded", 3) for some in (rows, rows[::-1]))
    assert [micro.trajectory_ids for micro in one] == [micro.trajectory_ids for micro in two]
    assert deal(one, 3) == deal(two, 3)


def test_siblings_with_a_shared_prompt_stay_on_one_rank():
    """Two groups, two ranks: a group each, though a cut by tokens alone would have smaller pieces."""
    rows = siblings(2, 8)
    micros = fair_cut(rows, 4096, "shared", 2)
    owners = {
        name: rank for rank, share in enumerate(deal(micros, 2)) for i in share for name in micros[i].trajectory_ids
    }
    assert {owners[f"g0/{i}"] for i in range(8)} != {owners[f"g1/{i}"] for i in range(8)}
    assert all(len({owners[f"g{g}/{i}"] for i in range(8)}) == 1 for g in range(2))
    alone = sum(micro.computed_tokens for micro in micro_batches(rows, 4096, "shared"))
    assert sum(micro.computed_tokens for micro in micros) == alone  # no prompt is computed twice


def test_many_rows_are_cut_as_for_one_rank():
    """Where the bound on micro-batches leaves enough of them to deal out, ranks compute the very ones of a single process."""
    rows = ragged(120)
    alone, shared = micro_batches(rows, 128, "padded"), fair_cut(rows, 128, "padded", 2)
    assert [micro.trajectory_ids for micro in shared] == [micro.trajectory_ids for micro in alone]


def test_more_ranks_than_rows_leave_some_without_work_but_never_the_first():
    shares = deal(fair_cut(ragged(2), 4096, "padded", 4), 4)
    assert [len(share) for share in shares] == [1, 1, 0, 0]
    assert deal([], 2) == [[], []]
