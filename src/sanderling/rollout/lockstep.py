"""Turns in step: all live episodes are sampled together, in a fixed order, so that a run repeats to the bit.

Float results depend on what else is in a batch. With free-running episodes that is decided by which tool answers first; here
the batch of a turn is made of all live episodes, sorted by name, once each of them waits for its next action. Tools run
at once between two such rounds.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sanderling.engine.protocol import Engine, SampleRequest
from sanderling.errors import EngineError
from sanderling.types import Action


class LockstepEngine:
    """Wraps an engine; implements `Engine`. Episodes say when they begin and end with `join` and `leave`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._live: set[str] = set()
        self._waiting: dict[str, _Waiting] = {}
        self._rounds: set[asyncio.Task[None]] = set()

    @property
    def policy_version(self) -> int:
        return self._engine.policy_version

    def join(self, session: str) -> None:
        """Count an episode as live: no round starts before it asks or leaves."""
        self._live.add(session)

    def leave(self, session: str) -> None:
        self._live.discard(session)
        self._waiting.pop(session, None)
        self._start_round_if_complete()

    async def generate(self, request: SampleRequest) -> Action:
        return await self.generate_in_round(request, math.inf)

    async def generate_in_round(self, request: SampleRequest, limit_s: float) -> Action:
        """Sample in the next round. The limit runs from the start of the round: waiting for siblings is nobody's fault.

        Raises:
            EngineError: the engine failed on this request, or did not answer within the longest limit of the round.
        """
        future: asyncio.Future[Action] = asyncio.get_running_loop().create_future()
        self._waiting[request.session] = _Waiting(request, limit_s, future)
        self._start_round_if_complete()
        return await future

    async def generate_many(self, requests: Sequence[SampleRequest]) -> list[Action]:
        return await self._engine.generate_many(requests)

    def end_session(self, session: str) -> None:
        self._engine.end_session(session)

    async def update_weights(self, state: Mapping[str, Any], version: int) -> str:
        return await self._engine.update_weights(state, version)

    def fingerprint(self) -> str:
        return self._engine.fingerprint()

    async def close(self) -> None:
        await self._engine.close()

    def _start_round_if_complete(self) -> None:
        if not self._waiting or not self._live <= self._waiting.keys():
            return
        batch = [self._waiting[session] for session in sorted(self._waiting)]
        self._waiting = {}
        task = asyncio.get_running_loop().create_task(self._round(batch))
        self._rounds.add(task)
        task.add_done_callback(self._rounds.discard)

    async def _round(self, batch: list[_Waiting]) -> None:
        limit_s = max(waiting.limit_s for waiting in batch)
        try:
            async with asyncio.timeout(None if math.isinf(limit_s) else limit_s):
                results = await self._sample([waiting.request for waiting in batch])
        except TimeoutError:
            results = [EngineError(f"no answer from the engine within {limit_s} s")] * len(batch)
        except Exception as error:
            results = [error] * len(batch)
        for waiting, result in zip(batch, results, strict=True):
            if waiting.future.done():
                continue
            if isinstance(result, Action):
                waiting.future.set_result(result)
            else:
                waiting.future.set_exception(result)

    async def _sample(self, requests: list[SampleRequest]) -> list[Action | BaseException]:
        """Sample a round; where it fails as a whole, each request is tried alone, so that only the guilty ones fail."""
        try:
            return list(await self._engine.generate_many(requests))
        except EngineError:
            calls = [self._engine.generate(request) for request in requests]
            return list(await asyncio.gather(*calls, return_exceptions=True))


@dataclass(frozen=True, slots=True)
class _Waiting:
    request: SampleRequest
    limit_s: float
    future: asyncio.Future[Action]


async def generate_within(engine: Engine, request: SampleRequest, limit_s: float) -> Action:
    """Sample one action within `limit_s` seconds of the engine's own time.

    Raises:
        EngineError: it failed or did not answer in time.
    """
    if isinstance(engine, LockstepEngine):
        return await engine.generate_in_round(request, limit_s)
    try:
        async with asyncio.timeout(limit_s):
            return await engine.generate(request)
    except TimeoutError as error:
        raise EngineError(f"no answer from the engine within {limit_s} s") from error
