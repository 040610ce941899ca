"""Turns in step: all live episodes are sampled together, in a fixed order, so that a run repeats to the bit.

Float results depend on what else is in a batch. With free-running episodes that is decided by which tool answers first; here
the batch of a turn is made of all live episodes, sorted by name, once each of them waits for its next action. Tools run
at once between two such rounds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from sanderling.engine.protocol import Engine, SampleRequest
from sanderling.types import Action


class LockstepEngine:
    """Wraps an engine; implements `Engine`. Episodes say when they begin and end with `join` and `leave`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._live: set[str] = set()
        self._waiting: dict[str, tuple[SampleRequest, asyncio.Future[Action]]] = {}
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
        future: asyncio.Future[Action] = asyncio.get_running_loop().create_future()
        self._waiting[request.session] = (request, future)
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

    async def _round(self, batch: list[tuple[SampleRequest, asyncio.Future[Action]]]) -> None:
        try:
            actions = await self._engine.generate_many([request for request, _ in batch])
        except Exception as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), action in zip(batch, actions, strict=True):
            if not future.done():
                future.set_result(action)
