"""Rows one behind the other in a single sequence: packed, or with what they have in common at their start only once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sanderling.types import BoolArray, Int32Array

Span = tuple[int, int]
"""Start and stop in the flat sequence."""

SHARED_TOKENS = 32
"""Fewer tokens in common are computed for each row: a block more costs more than they do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatLayout:
    """The flat sequence of T tokens and who sees what in it.

    A token sees its own block up to itself and all tokens of the blocks that come before it in its row. Blocks cover the
    sequence in order.
    """

    token_ids: Int32Array  # (T,)
    positions: Int32Array  # (T,) place of each token in its row
    blocks: tuple[tuple[Span, tuple[Span, ...]], ...]  # each block, and the blocks before it in its rows
    predictors: NDArray[np.int64]  # (N,) where the token before each trained one stands, row by row


@dataclass(slots=True)
class _Builder:
    sequences: Sequence[Int32Array]
    places: list[NDArray[np.int64]] = field(default_factory=list)  # by sequence: where its tokens stand
    parts: list[Int32Array] = field(default_factory=list)
    positions: list[Int32Array] = field(default_factory=list)
    blocks: list[tuple[Span, tuple[Span, ...]]] = field(default_factory=list)
    length: int = 0

    def __post_init__(self) -> None:
        self.places = [np.zeros(len(sequence), dtype=np.int64) for sequence in self.sequences]

    def append(self, members: Sequence[int], start: int, stop: int, before: tuple[Span, ...]) -> tuple[Span, ...]:
        """Lay tokens start..stop of sequences that have them in common; return what comes before those that follow."""
        if start == stop:
            return before
        own = (self.length, self.length + stop - start)
        self.length = own[1]
        self.parts.append(self.sequences[members[0]][start:stop])
        self.positions.append(np.arange(start, stop, dtype=np.int32))
        self.blocks.append((own, before))
        for i in members:
            self.places[i][start:stop] = np.arange(*own)
        return (*before, own)

    def layout(self, predicts: Sequence[BoolArray]) -> FlatLayout:
        return FlatLayout(
            token_ids=np.concatenate(self.parts),
            positions=np.concatenate(self.positions),
            blocks=tuple(self.blocks),
            predictors=np.concatenate([p[mask] for p, mask in zip(self.places, predicts, strict=True)]),
        )


def packed_layout(sequences: Sequence[Int32Array], predicts: Sequence[BoolArray]) -> FlatLayout:
    """Lay sequences (n_i,) one behind the other; `predicts` (n_i,) is on where the next token is trained."""
    builder = _Builder(sequences)
    for i, sequence in enumerate(sequences):
        builder.append([i], 0, len(sequence), ())
    return builder.layout(predicts)


def shared_layout(sequences: Sequence[Int32Array], predicts: Sequence[BoolArray]) -> FlatLayout:
    """Lay sequences as a tree: whatever at least two have in common from a branch on is laid once.

    A part is shared from `SHARED_TOKENS` tokens on.
    """
    builder = _Builder(sequences)
    open_branches: list[tuple[list[int], int, tuple[Span, ...]]] = [(list(range(len(sequences))), 0, ())]
    while open_branches:
        members, depth, before = open_branches.pop()
        alike: dict[bytes, list[int]] = {}
        for i in members:
            ahead = sequences[i][depth : depth + SHARED_TOKENS]
            key = ahead.tobytes() if len(ahead) == SHARED_TOKENS else f"short {i}".encode()
            alike.setdefault(key, []).append(i)
        for branch in alike.values():
            first = sequences[branch[0]][depth:]
            shared = min(_agreeing(first, sequences[i][depth:]) for i in branch)
            behind = builder.append(branch, depth, depth + shared, before)
            if len(branch) > 1:
                open_branches.append((branch, depth + shared, behind))
    return builder.layout(predicts)


def surely_shared(first: Int32Array, second: Int32Array) -> int:
    """Return how many of the second's tokens a `shared_layout` of both and others computes once, at least.

    The last part in common is not shared where it is shorter than `SHARED_TOKENS`.
    """
    return max(0, _agreeing(first, second) - SHARED_TOKENS + 1)


def _agreeing(first: Int32Array, second: Int32Array) -> int:
    length = min(len(first), len(second))
    differs = np.flatnonzero(first[:length] != second[:length])
    return int(differs[0]) if len(differs) else length
