"""Micro-batches for several ranks of one learner: which rank computes which of them."""

from __future__ import annotations

from collections.abc import Sequence

from sanderling.batch.config import Layout
from sanderling.batch.micro import MicroBatch, micro_batches
from sanderling.types import TrainingRow

_UNEVEN = 1.05  # how much more than the mean the fullest rank may have to do
_SHRINK = 0.8  # of the bound on micro-batches, where they don't deal out evenly
_SMALLEST = 4  # micro-batches per rank, about: the smallest that are tried


def deal(micros: Sequence[MicroBatch], ranks: int) -> list[list[int]]:
    """Return the places of each rank's micro-batches: the largest first, each to the rank with the fewest computed tokens.

    Ties go to the lower place and the lower rank, so that rank 0 has a micro-batch wherever there is one. A micro-batch is
    never split: what its rows share is computed by one rank, once.
    """
    shares: list[list[int]] = [[] for _ in range(ranks)]
    loads = [0] * ranks
    for place in sorted(range(len(micros)), key=lambda i: (-micros[i].computed_tokens, i)):
        rank = loads.index(min(loads))
        shares[rank].append(place)
        loads[rank] += micros[place].computed_tokens
    return shares


def fair_cut(rows: Sequence[TrainingRow], max_tokens: int, layout: Layout, ranks: int) -> list[MicroBatch]:
    """Cut rows as `micro_batches` does, where need be into smaller ones, so that the fullest rank of a deal has little to do.

    Smaller micro-batches deal out more evenly, and lose more of what rows share at their start: what is compared is the
    computed tokens of the fullest rank, which counts both.
    """
    best = micro_batches(rows, max_tokens, layout)
    tokens = sum(micro.computed_tokens for micro in best)
    bound = min(max_tokens, tokens)
    while _heaviest(best, ranks) > _UNEVEN * tokens / ranks and _SMALLEST * ranks * bound > tokens:
        bound = int(bound * _SHRINK)
        best = min(best, micro_batches(rows, bound, layout), key=lambda micros: _heaviest(micros, ranks))
    return best


def _heaviest(micros: Sequence[MicroBatch], ranks: int) -> int:
    return max(sum(micros[place].computed_tokens for place in share) for share in deal(micros, ranks))
