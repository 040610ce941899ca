"""The batch that is being sampled: rows of different lengths join and leave between steps. No threads, no waiting."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sanderling.engine.protocol import SampleRequest
from sanderling.engine.rows import Row, prefill_chunks, shared_prefixes
from sanderling.engine.sessions import Session, SlotCopy, SlotTable
from sanderling.engine.torch_kv_cache import SlotCache, Window
from sanderling.engine.torch_model import CausalModel
from sanderling.engine.torch_sampler import RowParams, draw, uniforms
from sanderling.errors import EngineError, WeightPushError

logger = logging.getLogger("sanderling.engine")

_BLOCK = 64  # capacities are multiples of this many tokens


class OnUpdate(StrEnum):
    """What becomes of keys and values when the weights change under them."""

    KEEP = "keep"  # go on with them: cheap, the context was read by older weights (counted as stale)
    RECOMPUTE = "recompute"  # read every context again under the new weights


class Prompts(StrEnum):
    """How contexts are read that begin alike, as those of siblings do."""

    EACH = "each"  # every context by itself: what else is sampled changes no bit of it
    SHARED = "shared"  # what they have in common once; keys and values are copied. Equal up to float error


@dataclass(slots=True, kw_only=True)
class EngineCounts:
    """What an engine did since it was made. Tokens are counted once per forward pass they go through."""

    requests: int = 0
    sampled_tokens: int = 0
    prefilled_tokens: int = 0  # context tokens read
    reused_tokens: int = 0  # context tokens found in the cache
    shared_tokens: int = 0  # context tokens copied from the cache of another session
    decode_steps: int = 0
    prefill_passes: int = 0
    diverged_sessions: int = 0  # the context did not extend what was cached: recomputed from the first difference
    evicted_sessions: int = 0  # idle sessions that lost their cache to the memory bound
    weight_updates: int = 0
    stale_tokens: int = 0  # cached tokens of older weights that were read on, at updates and at the start of turns
    failed_requests: int = 0


class Decoder:
    """Owns the model's weights, the cache, and the rows in between.

    `max_batch` rows are sampled at once; `cache_bytes` bounds the keys and values kept, idle sessions included.
    """

    def __init__(
        self,
        model: CausalModel,
        *,
        max_batch: int,
        cache_bytes: int,
        on_update: OnUpdate,
        version: int,
        prompts: Prompts = Prompts.EACH,
    ) -> None:
        self.version = version
        self.counts = EngineCounts()
        self.rows: list[Row] = []
        self._model = model
        self._max_batch = max_batch
        self._on_update = on_update
        self._prompts = prompts
        self._cache_tokens = cache_bytes // max(model.bytes_per_token, 1)
        self._slots = SlotTable()
        self._cache: SlotCache = model.new_cache(slots=0, capacity=_BLOCK)
        self._params: RowParams | None = None  # of all rows, made again after one joins or leaves

    # -- who is in the batch

    @property
    def free(self) -> int:
        """Places left in the batch."""
        return self._max_batch - len(self.rows)

    def check(self, request: SampleRequest) -> None:
        """Refuse a request that can never be sampled.

        Raises:
            EngineError: the context is empty, holds ids outside the vocabulary, or doesn't fit the model or the cache.
        """
        ids = request.context_ids
        if len(ids) == 0:
            raise EngineError(f"the context of session {request.session!r} is empty; expected at least one token")
        if ids.min() < 0 or ids.max() >= self._model.vocab_size:
            raise EngineError(
                f"the context of session {request.session!r} holds ids from {ids.min()} to {ids.max()}; the model knows "
                f"0 to {self._model.vocab_size - 1}. Is this the tokenizer of another model?"
            )
        longest = self._model.max_positions
        if longest is not None and len(ids) >= longest:
            raise EngineError(
                f"the context of session {request.session!r} has {len(ids)} tokens and leaves no room for an action: the "
                f"model takes {longest} positions; lower limits.max_context_tokens below that"
            )
        if self._end(request) > self._cache_tokens:
            raise EngineError(
                f"session {request.session!r} needs a cache of {self._end(request)} tokens and the bound allows "
                f"{self._cache_tokens}; raise cache_mb"
            )

    def admit(self, waiting: Sequence[SampleRequest]) -> list[Row]:
        """Take as many waiting requests as fit, in order, and return their rows."""
        fitting = self._fitting(waiting)
        rows = [self._row(request) for request in fitting]
        if not rows:
            return []
        self._make_room(len(rows), sum(row.session.slot is None for row in rows))
        self.counts.evicted_sessions += len(self._slots.join(row.session for row in rows))
        self.rows = sorted([*self.rows, *rows], key=lambda row: row.session.slot or 0)
        self._settle()
        return rows

    def remove(self, row: Row) -> None:
        """Drop a row and what is cached of its session."""
        row.session.ended = True
        self._leave([row])

    def end_session(self, name: str) -> None:
        session = self._slots.find(name)
        if session is None:
            return
        session.ended = True
        if not session.active:
            self._slots.forget(session)

    def running(self, name: str) -> bool:
        session = self._slots.find(name)
        return session is not None and session.active

    def reset(self) -> list[Row]:
        """Drop all rows and all cached sessions, after a failure in the middle of a step; return the rows."""
        rows, self.rows = self.rows, []
        self._slots.clear()
        self._cache = self._model.new_cache(slots=len(self._slots), capacity=self._cache.capacity)
        self._params = None
        return rows

    # -- sampling

    @torch.inference_mode()
    def step(self) -> list[Row]:
        """Sample the next token of every row; return the rows that finished, which have left the batch."""
        fresh = [row for row in self.rows if row.pending > 1]
        if self._prompts is Prompts.SHARED:
            self._prefill_shared(fresh)
        for chunk in prefill_chunks([row for row in fresh if row.pending > 1]):
            self._prefill(chunk)
        left = self._leave([row for row in fresh if row.finished])
        if self.rows:
            self._decode()
            left += self._leave([row for row in self.rows if row.finished])
        return left

    def _prefill_shared(self, fresh: list[Row]) -> None:
        """Read what contexts have in common once, and copy its keys and values into the slots of the others."""
        if not fresh:
            return
        self._ensure_capacity(max(row.length for row in fresh))
        leaders, copies = shared_prefixes(fresh, self._slots.sessions(), self.version)
        for chunk in prefill_chunks(leaders):
            self._prefill(chunk)
        if not copies:
            return
        self._cache.copy_slots([SlotCopy(c.row.session.slot or 0, c.donor.slot or 0, c.length) for c in copies])
        for copy in copies:
            self.counts.shared_tokens += copy.length - copy.row.session.cached
            copy.row.session.cached = copy.length
            copy.row.session.kv_version = self.version

    def _prefill(self, rows: list[Row]) -> None:
        width = max(row.pending for row in rows)
        self._ensure_capacity(max(row.length for row in rows))
        tokens, positions = np.zeros((2, len(rows), width), dtype=np.int64)
        slots = np.full((len(rows), width), self._cache.slots, dtype=np.int64)  # the spare one
        for i, row in enumerate(rows):
            pad = width - row.pending
            span = np.arange(row.session.cached, row.length)
            tokens[i, pad:] = row.ids[row.session.cached : row.length]
            positions[i, pad:] = span
            slots[i, pad:] = row.session.slot or 0
            self.counts.prefilled_tokens += row.pending
        self.counts.prefill_passes += 1
        params = RowParams.of([row.request.params for row in rows], self._model.device)
        self._forward(rows, (tokens, positions, slots), self._rows_index(rows), params)

    def _decode(self) -> None:
        rows = self.rows
        self._ensure_capacity(max(row.length for row in rows))
        inputs = np.array([[row.last for row in rows], [row.length - 1 for row in rows]], dtype=np.int64)[:, :, None]
        slots = np.arange(len(rows))[:, None]
        self.counts.decode_steps += 1
        if self._params is None:
            self._params = RowParams.of([row.request.params for row in rows], self._model.device)
        self._forward(rows, (inputs[0], inputs[1], slots), slice(0, len(rows)), self._params)

    def _forward(
        self, rows: list[Row], inputs: tuple[NDArray[np.int64], ...], index: slice | torch.Tensor, params: RowParams
    ) -> None:
        """Read the pending tokens of rows and sample one more for each; the only wait for the device is at the end."""
        device = self._model.device
        tokens, positions, slots = (torch.from_numpy(array).to(device) for array in inputs)
        length = max(row.length for row in rows)
        self._cache.window = Window(rows=index, length=length, slots=slots, positions=positions)
        logits = self._model(tokens, positions, self._cache)
        draws = torch.tensor([row.draws[len(row.versions)] for row in rows], dtype=torch.float64, device=device)
        drawn, logprobs = draw(logits, params, draws)
        sampled = torch.stack((drawn.double(), logprobs.double())).tolist()
        for row, token, logprob in zip(rows, *sampled, strict=True):
            self._append(row, int(token), logprob)

    def _append(self, row: Row, token: int, logprob: float) -> None:
        row.session.cached = row.length
        row.ids[row.length] = row.last = token
        row.length += 1
        row.logprobs.append(logprob)
        row.versions.append(self.version)
        if not -np.inf < logprob <= 1e-3:
            row.error = (
                f"the model gave log-probability {logprob} for token {token} at position {len(row.versions) - 1} of the "
                f"action in session {row.request.session!r} (weights of version {self.version}); expected a finite number "
                "of at most 0. The weights are probably not finite"
            )

    # -- weights

    @torch.no_grad()
    def load(self, state: Mapping[str, Any], version: int) -> None:
        """Copy weights in place and give them a version.

        Raises:
            WeightPushError: names or shapes differ from the model's `state_dict()`; nothing was copied then.
        """
        own = self._model.module.state_dict()
        _check_state(own, state)
        for name, tensor in own.items():
            tensor.copy_(torch.as_tensor(state[name]))
        self.version = version
        self.counts.weight_updates += 1
        if self._on_update is OnUpdate.RECOMPUTE:
            self._drop_cached()
            return
        stale = sum(row.session.cached for row in self.rows)
        self.counts.stale_tokens += stale
        if stale:
            logger.info(
                "version %d: %d running rows keep %d cached tokens of older weights", version, len(self.rows), stale
            )

    def _drop_cached(self) -> None:
        for session in self._slots.sessions():
            session.cached = 0
            session.kv_version = self.version
            if not session.active:
                self._slots.forget(session)

    # -- places

    def _end(self, request: SampleRequest) -> int:
        """Return the length of context and longest possible action."""
        end = len(request.context_ids) + request.params.max_tokens
        return end if self._model.max_positions is None else min(end, self._model.max_positions)

    def _fitting(self, waiting: Sequence[SampleRequest]) -> list[SampleRequest]:
        """Return the first requests that fit beside the running ones, should every action use its whole limit."""
        longest = max((row.end for row in self.rows), default=1)
        fitting: list[SampleRequest] = []
        for request in waiting[: self.free]:
            longest = max(longest, self._end(request))
            if (len(self.rows) + len(fitting) + 1) * longest > self._cache_tokens:
                break
            fitting.append(request)
        return fitting

    def _row(self, request: SampleRequest) -> Row:
        context, end = request.context_ids, self._end(request)
        session = self._slots.find(request.session) or Session(request.session)
        shared = session.common_prefix(context)
        self.counts.diverged_sessions += shared < session.cached
        if shared == 0 or session.cached == 0:
            session.kv_version = self.version
        session.cached = min(shared, len(context) - 1)  # the last token is read again for its logits
        self.counts.requests += 1
        self.counts.reused_tokens += session.cached
        if session.kv_version != self.version:
            self.counts.stale_tokens += session.cached
        ids = np.empty(end, dtype=np.int32)
        ids[: len(context)] = context
        session.ids = ids
        return Row(
            request=request,
            session=session,
            ids=ids,
            length=len(context),
            last=int(context[-1]),
            end=end,
            stop=frozenset(request.params.stop_token_ids),
            draws=uniforms(request.seed, end - len(context)).tolist(),
        )

    def _leave(self, rows: list[Row]) -> list[Row]:
        if not rows:
            return []
        for row in rows:
            if row.error is not None:
                self._cache.wipe(row.session.slot or 0)
                row.session.ended = True
                self.counts.failed_requests += 1
        leaving = set(rows)
        for row in rows:
            self.counts.sampled_tokens += len(row.versions)
        self._slots.leave(row.session for row in rows)
        self.rows = sorted((r for r in self.rows if r not in leaving), key=lambda row: row.session.slot or 0)
        self._settle()
        return rows

    def _settle(self) -> None:
        """Carry out the copies that joining and leaving amount to."""
        self._params = None
        if moves := self._slots.take_moves():
            with torch.inference_mode():
                self._cache.copy_slots(moves)

    def _make_room(self, joining: int, new: int) -> None:
        """Have slots for `new` of the `joining` rows: free ones where memory allows, else those of idle sessions."""
        wanted = len(self._slots.sessions()) + new
        if wanted <= len(self._slots):
            return
        allowed = max(self._cache_tokens // self._cache.capacity, self._slots.active + joining)
        target = min(max(wanted, 2 * len(self._slots)), allowed)
        if target > len(self._slots):
            self._resize(target, self._cache.capacity)

    def _ensure_capacity(self, length: int) -> None:
        """Have room for `length` tokens in each slot, at the cost of idle sessions where memory is short."""
        if length <= self._cache.capacity:
            return
        longest = max(row.end for row in self.rows)
        grown = self._cache.capacity * 3 // 2
        # Contexts grow from turn to turn: where memory allows, have room for the next ones too, or each turn moves all.
        roomy = max(longest, min(grown, self._model.max_positions or grown))
        wanted = roomy if roomy * len(self._slots) <= self._cache_tokens else min(max(length, grown), longest)
        capacity = -(-wanted // _BLOCK) * _BLOCK
        slots = max(min(len(self._slots), self._cache_tokens // capacity), self._slots.active)
        for session in self._slots.idle()[: max(0, len(self._slots.sessions()) - slots)]:
            self._slots.forget(session)
            self.counts.evicted_sessions += 1
        self._resize(slots, capacity)

    def _resize(self, slots: int, capacity: int) -> None:
        longest = max((session.cached for session in self._slots.sessions()), default=0)
        sources = self._slots.resize(slots)
        with torch.inference_mode():
            self._cache.resize(slots=slots, capacity=capacity, sources=sources, length=longest)

    def _rows_index(self, rows: list[Row]) -> slice | torch.Tensor:
        slots = [row.session.slot or 0 for row in rows]
        if slots == list(range(slots[0], slots[0] + len(slots))):
            return slice(slots[0], slots[0] + len(slots))
        return torch.tensor(slots, device=self._model.device)


def _check_state(own: Mapping[str, torch.Tensor], state: Mapping[str, Any]) -> None:
    missing, unknown = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
    if missing or unknown:
        raise WeightPushError(
            f"the pushed weights lack {len(missing)} names (such as {missing[:3]}) and have {len(unknown)} unknown ones (such "
            f"as {unknown[:3]}); expected exactly those of the model's state_dict()"
        )
    for name, tensor in own.items():
        if tuple(state[name].shape) != tuple(tensor.shape):
            raise WeightPushError(
                f"{name} was pushed with shape {tuple(state[name].shape)}; expected {tuple(tensor.shape)}"
            )
