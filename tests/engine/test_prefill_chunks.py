"""Rows that must read several tokens are put into passes: each row once, little padding, bounded size."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sanderling.engine.protocol import SampleRequest
from sanderling.engine.rows import PREFILL_TOKENS, Row, prefill_chunks
from sanderling.engine.sessions import Session


def rows_of(pending: list[int]) -> list[Row]:
    rows = []
    for slot, count in enumerate(pending):
        ids = np.zeros(count + 1, dtype=np.int32)
        request = SampleRequest(session=f"s{slot}", context_ids=ids[:count])
        session = Session(f"s{slot}", slot=slot)
        rows.append(
            Row(request=request, session=session, ids=ids, length=count, end=count + 1, stop=frozenset(), draws=[0.5])
        )
    return rows


@given(pending=st.lists(st.integers(2, 12_000), max_size=40))
def test_chunks(pending: list[int]) -> None:
    rows = rows_of(pending)
    chunks = prefill_chunks(rows)
    assert sorted(row.session.name for chunk in chunks for row in chunk) == sorted(row.session.name for row in rows)
    for chunk in chunks:
        padded = len(chunk) * max(row.pending for row in chunk)
        real = sum(row.pending for row in chunk)
        assert len(chunk) == 1 or (padded <= PREFILL_TOKENS and padded <= 1.25 * real + 128)
        slots = [row.session.slot for row in chunk]
        assert slots == sorted(slots), "rows of one pass stand in the order of their slots"


def test_equal_lengths_are_one_pass() -> None:
    assert [len(chunk) for chunk in prefill_chunks(rows_of([60] * 64))] == [64]
