"""A request at work, and how requests that must read several tokens are put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sanderling.engine.protocol import SampleRequest
from sanderling.engine.sessions import Session
from sanderling.types import Action, FinishReason, Int32Array

PREFILL_TOKENS = 8192
"""Padded tokens of one prefill pass, at most; a single longer row is passed alone."""


@dataclass(slots=True, eq=False)
class Row:
    """One request at work. Row i of the batch sits in cache slot i."""

    request: SampleRequest
    session: Session
    ids: Int32Array  # context and action, (context + limit,)
    length: int  # how much of `ids` is known
    end: int  # length at which the action is cut
    stop: frozenset[int]
    draws: list[float]  # uniforms by position in the action
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    last: int = 0  # the newest token
    error: str | None = None

    @property
    def pending(self) -> int:
        """Tokens not yet read by the model; 1 while decoding."""
        return self.length - self.session.cached

    @property
    def finished(self) -> bool:
        return bool(self.versions) and (self.last in self.stop or self.length == self.end or self.error is not None)

    def action(self) -> Action:
        start = len(self.request.context_ids)
        finish: FinishReason = "stop" if self.last in self.stop else "length"
        return Action(
            token_ids=self.ids[start : self.length].copy(),
            rollout_logprobs=np.array(self.logprobs, dtype=np.float32),
            policy_versions=np.array(self.versions, dtype=np.int32),
            text="",
            finish_reason=finish,
        )


SHARED_TOKENS = 32
"""Fewer tokens in common are read for each row: finding and copying them costs more."""


@dataclass(frozen=True, slots=True)
class PrefixCopy:
    """The first `length` tokens of a row's context are those of another session: its keys and values can be copied."""

    row: Row
    donor: Session
    length: int


def shared_prefixes(
    fresh: Sequence[Row], sessions: Sequence[Session], version: int
) -> tuple[list[Row], list[PrefixCopy]]:
    """Return the rows to read first, and what the others can copy once these are read.

    A donor is a session whose keys and values are of weights `version`, or a row that is read first. Each row is left at
    least one token to read, for its logits.
    """
    donors = [(s, s.ids[: s.cached]) for s in sessions if s.cached and s.kv_version == version]
    leaders: list[Row] = []
    copies: list[PrefixCopy] = []
    for row in fresh:
        context = row.ids[: row.length]
        best, length = None, 0
        for donor, ids in donors:
            common = min(_agreeing(ids, context), row.length - 1) if donor is not row.session else 0
            if common > length:
                best, length = donor, common
        if best is not None and length - row.session.cached >= SHARED_TOKENS:
            copies.append(PrefixCopy(row, best, length))
        else:
            leaders.append(row)
            donors.append((row.session, context))
    return leaders, copies


def _agreeing(first: Int32Array, second: Int32Array) -> int:
    length = min(len(first), len(second))
    differs = np.flatnonzero(first[:length] != second[:length])
    return int(differs[0]) if len(differs) else length


def prefill_chunks(rows: Sequence[Row]) -> list[list[Row]]:
    """Cut rows into passes: like lengths together, so that little is padded, and none larger than the token bound."""
    chunks: list[list[Row]] = []
    real = 0
    for row in sorted(rows, key=lambda row: row.pending):
        padded = row.pending * (len(chunks[-1]) + 1) if chunks else 0
        real += row.pending
        if not chunks or padded > min(PREFILL_TOKENS, 1.25 * real + 128):
            chunks.append([])
            real = row.pending
        chunks[-1].append(row)
    return [sorted(chunk, key=lambda row: row.session.slot or 0) for chunk in chunks]
