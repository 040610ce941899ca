"""The built-in engine: any Hugging Face causal language model, in process, with a KV cache kept between turns."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import torch

from sanderling.engine.protocol import SampleRequest
from sanderling.engine.rows import Row
from sanderling.engine.torch_decoder import Decoder, EngineCounts, OnUpdate, Prompts
from sanderling.engine.torch_model import CausalModel
from sanderling.engine.torch_sampler import check_params
from sanderling.engine.weights import fingerprint
from sanderling.errors import ConfigError, EngineError
from sanderling.types import Action

logger = logging.getLogger("sanderling.engine")


@dataclass(slots=True, eq=False)
class _Ticket:
    """A request and the promise of its action."""

    request: SampleRequest
    future: Future[Action]
    row: Row | None = None


@dataclass(slots=True, eq=False)
class _Update:
    state: Mapping[str, Any]
    version: int
    future: Future[str]


class TorchEngine:
    """Samples with a model of its own, in one worker thread, so that the event loop stays free.

    Rows of different episodes and turns share a batch and join or leave it between two decoding steps. A later turn reads
    only what is new in its context. The engine owns `model`: hand over a copy if something else changes it.

    `max_batch`: rows sampled at once; more requests wait in order. `cache_mb`: bound on keys and values kept, in MiB; the
    idle sessions used longest ago are dropped first and read again when they come back. `threads`: torch's threads in the
    worker, None for torch's choice (parts of torch take the last such setting for the whole process). `on_update`: what
    becomes of cached keys and values when weights change. `prompts`: whether contexts that begin alike are read once.

    Raises:
        ConfigError: a setting is out of range.
        ModelError: the model can't be sampled with this cache.

    Example::

        engine = TorchEngine(load_model(folder), max_batch=64)
        action = await engine.generate(SampleRequest(session="episode-0", context_ids=ids, seed=0))
    """

    def __init__(  # noqa: PLR0913 - the settings of an engine
        self,
        model: Any,
        *,
        max_batch: int = 64,
        cache_mb: int = 2048,
        threads: int | None = None,
        on_update: OnUpdate = OnUpdate.KEEP,
        prompts: Prompts = Prompts.EACH,
        policy_version: int = 0,
    ) -> None:
        if max_batch < 1 or cache_mb < 1 or (threads is not None and threads < 1):
            raise ConfigError(
                f"max_batch is {max_batch}, cache_mb is {cache_mb}, threads is {threads}; expected 1 or more of each"
            )
        causal = CausalModel(model.eval())
        self._dtype = str(causal.dtype).removeprefix("torch.")
        self._module = model
        self._decoder = Decoder(
            causal,
            max_batch=max_batch,
            cache_bytes=cache_mb << 20,
            on_update=on_update,
            version=policy_version,
            prompts=prompts,
        )
        self._fingerprint = fingerprint(model.state_dict(), self._dtype)
        self._threads = threads
        # The inbox, all under the one lock of `_wake`:
        self._wake = threading.Condition()
        self._waiting: deque[_Ticket] = deque()
        self._updates: deque[_Update] = deque()
        self._cancelled: deque[_Ticket] = deque()
        self._ended: deque[str] = deque()
        self._closing = False
        self._running: dict[Row, _Ticket] = {}  # the worker's own
        self._worker = threading.Thread(target=self._work, name="sanderling-engine", daemon=True)
        self._worker.start()

    @property
    def policy_version(self) -> int:
        return self._decoder.version

    def counts(self) -> EngineCounts:
        """Return a copy of what was done so far."""
        return replace(self._decoder.counts)

    def fingerprint(self) -> str:
        """Return the digest of the weights as they were after the last load; its dtype part is the engine's dtype."""
        return self._fingerprint

    async def generate(self, request: SampleRequest) -> Action:
        return (await self.generate_many([request]))[0]

    async def generate_many(self, requests: Sequence[SampleRequest]) -> list[Action]:
        for request in requests:
            check_params(request.params)
        tickets = [_Ticket(request, Future()) for request in requests]
        sound = [ticket for ticket in tickets if self._is_sound(ticket)]
        with self._wake:
            if self._closing:
                raise EngineError("the engine is closed; no action can be sampled any more")
            self._waiting.extend(sound)
            self._wake.notify()
        for ticket in tickets:
            ticket.future.add_done_callback(lambda future, t=ticket: self._on_done(t, future))
        answers = asyncio.gather(*(asyncio.wrap_future(t.future) for t in tickets), return_exceptions=True)
        actions: list[Action] = []
        for answer in await answers:
            if isinstance(answer, BaseException):
                raise answer
            actions.append(answer)
        return actions

    def end_session(self, session: str) -> None:
        with self._wake:
            self._ended.append(session)
            self._wake.notify()

    async def update_weights(self, state: Mapping[str, Any], version: int) -> str:
        """Copy `state` (exactly the names of the model's `state_dict()`) in place between two steps.

        Tokens sampled from then on carry `version`. Waits for the step at work, not for the actions at work.

        Raises:
            WeightPushError: names or shapes don't fit; the old weights and their version stay.
            EngineError: the engine is closed.
        """
        update = _Update(state, version, Future())
        with self._wake:
            if self._closing:
                raise EngineError(f"the engine is closed; weights of version {version} were not loaded")
            self._updates.append(update)
            self._wake.notify()
        return await asyncio.wrap_future(update.future)

    async def close(self) -> None:
        """Stop the worker after the step at work; requests without an answer get EngineError."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        await asyncio.to_thread(self._worker.join)

    def _is_sound(self, ticket: _Ticket) -> bool:
        try:
            self._decoder.check(ticket.request)
        except EngineError as error:
            _refuse(ticket, error)
            return False
        return True

    def _on_done(self, ticket: _Ticket, future: Future[Action]) -> None:
        if future.cancelled():
            with self._wake:
                self._cancelled.append(ticket)
                self._wake.notify()

    # -- everything below runs in the worker thread

    def _work(self) -> None:
        if self._threads is not None:
            torch.set_num_threads(self._threads)
        while self._wait():
            try:
                self._apply_inbox()
                self._finish(self._decoder.step())
            except Exception as error:
                logger.exception("a step of the engine failed; its requests are answered with EngineError")
                self._fail_running(error)
        self._fail_running(EngineError("the engine was closed before the action was complete"))
        for ticket in self._waiting:
            _refuse(ticket, EngineError("the engine was closed before the action was begun"))
        for update in self._updates:
            update.future.set_exception(
                EngineError(f"the engine was closed before version {update.version} was loaded")
            )

    def _wait(self) -> bool:
        """Sleep until there is work; return False once the engine is closing."""
        with self._wake:
            self._wake.wait_for(
                lambda: (
                    self._closing or self._waiting or self._updates or self._cancelled or self._ended or self._running
                )
            )
            return not self._closing

    def _apply_inbox(self) -> None:
        with self._wake:
            cancelled, self._cancelled = self._cancelled, deque()
            ended, self._ended = self._ended, deque()
            updates, self._updates = self._updates, deque()
        for ticket in cancelled:
            if ticket.row is not None and self._running.pop(ticket.row, None) is not None:
                self._decoder.remove(ticket.row)
        for session in ended:
            self._decoder.end_session(session)
        for update in updates:
            self._load(update)
        with self._wake:
            first = self._take_waiting(self._decoder.free)
        left = self._admit(first)
        with self._wake:
            self._waiting.extendleft(reversed(left))

    def _take_waiting(self, most: int) -> list[_Ticket]:
        """Take the next tickets off the queue, without those that were cancelled meanwhile."""
        taken: list[_Ticket] = []
        while self._waiting and len(taken) < most:
            ticket = self._waiting.popleft()
            if not ticket.future.cancelled():
                taken.append(ticket)
        return taken

    def _load(self, update: _Update) -> None:
        try:
            self._decoder.load(update.state, update.version)
            self._fingerprint = fingerprint(self._module.state_dict(), self._dtype)
        except Exception as error:
            update.future.set_exception(error)
        else:
            if update.future.set_running_or_notify_cancel():
                update.future.set_result(self._fingerprint)

    def _admit(self, waiting: list[_Ticket]) -> list[_Ticket]:
        """Start as many requests as fit, in order; return those that wait on."""
        fit: list[_Ticket] = []
        names: set[str] = set()
        for ticket in waiting:
            name = ticket.request.session
            if name in names or self._decoder.running(name):
                text = f"session {name!r} already has a request at work; an episode samples one action at a time"
                _refuse(ticket, EngineError(text))
                continue
            names.add(name)
            fit.append(ticket)
        try:
            rows = self._decoder.admit([ticket.request for ticket in fit])
        except Exception as error:  # such as memory: without an answer the callers would wait for ever
            for ticket in fit:
                _refuse(ticket, EngineError(f"the request can't be started: {type(error).__name__}: {error}"))
            raise
        for ticket, row in zip(fit, rows, strict=False):
            ticket.row = row
            self._running[row] = ticket
        return fit[len(rows) :]

    def _finish(self, rows: list[Row]) -> None:
        for row in rows:
            ticket = self._running.pop(row)
            if row.error is not None:
                _refuse(ticket, EngineError(row.error))
            elif ticket.future.set_running_or_notify_cancel():
                ticket.future.set_result(row.action())

    def _fail_running(self, error: Exception) -> None:
        self._decoder.reset()
        tickets, self._running = list(self._running.values()), {}
        for ticket in tickets:
            self._decoder.counts.failed_requests += 1
            known = isinstance(error, EngineError)
            _refuse(ticket, error if known else EngineError(f"sampling failed: {type(error).__name__}: {error}"))


def _refuse(ticket: _Ticket, error: EngineError) -> None:
    if ticket.future.set_running_or_notify_cancel():
        ticket.future.set_exception(error)
