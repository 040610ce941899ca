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
