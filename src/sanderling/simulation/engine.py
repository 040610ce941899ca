"""The engine in simulated time. An action's first token id is the number of its episode: so the harness finds the script."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sanderling.engine.protocol import SampleRequest
from sanderling.engine.weights import fingerprint
from sanderling.errors import EngineError
from sanderling.simulation.config import EngineShape
from sanderling.simulation.scripts import Place
from sanderling.simulation.virtual_time import running_loop
from sanderling.simulation.world import Play, TokenKind, World
from sanderling.types import Action, Int32Array, StopReason

_SESSION = re.compile(r"train-(\d+)/(\d+)\.(\d+)")


class SimulatedEngine:
    """Implements `Engine`: an action takes what its tokens take on the shared processor."""

    def __init__(self, world: World, shape: EngineShape) -> None:
        self._world = world
        self._shape = shape
        self._weights: Mapping[str, Any] = {"version": np.zeros(1)}
        self._by_session: dict[str, Play] = {}
        self._begun = 0
        self._pushed_at = [0.0]  # when version 0, 1, 2, ... came into use
        self.policy_version = 0

    async def generate(self, request: SampleRequest) -> Action:
        play = self._by_session.get(request.session) or self._begin(request.session)
        began, part = running_loop().time(), play.current
        work = part.action_tokens + self._shape.read_share * play.unread
        if self._shape.call_s:
            await asyncio.sleep(self._shape.call_s * part.turns)
        await self._world.machine.engine.work(work)
        if play.at_the_end and play.script.stop is StopReason.ENGINE_ERROR:
            raise EngineError("a model call fails, as the script says")
        ids = self._world.ids(TokenKind.ACTION, part.action_tokens)
        ids[0] = play.number
        return Action(
            token_ids=ids,
            rollout_logprobs=np.zeros(len(ids), dtype=np.float32),
            policy_versions=self._versions(began, running_loop().time(), len(ids)),
            text="",
            finish_reason="stop",
        )

    async def generate_many(self, requests: Sequence[SampleRequest]) -> list[Action]:
        results = await asyncio.gather(*map(self.generate, requests), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result for result in results if isinstance(result, Action)]

    def end_session(self, session: str) -> None:
        play = self._by_session.pop(session, None)
        if play is not None:
            self._world.plays.pop(play.number, None)

    async def update_weights(self, state: Mapping[str, Any], version: int) -> str:
        await asyncio.sleep(self._shape.push_s)
        self._weights = dict(state)
        self.policy_version = version
        self._pushed_at.append(running_loop().time())
        return self.fingerprint()

    def fingerprint(self) -> str:
        return fingerprint(self._weights)

    async def close(self) -> None:
        self._by_session = {}

    def _begin(self, session: str) -> Play:
        found = _SESSION.fullmatch(session)
        if found is None:
            raise EngineError(
                f"session {session!r} is none of a training run; expected train-<group>/<index>.<attempt>"
            )
        group, index, attempt = map(int, found.groups())
        world = self._world
        script = world.workload.script(Place(group=group, index=index, attempt=attempt), world.rounds)
        self._begun += 1
        play = Play(self._begun, script, world.workload.prompt_tokens(group))
        self._by_session[session] = world.plays[play.number] = play
        return play

    def _versions(self, began: float, ended: float, count: int) -> Int32Array:
        """Return the version in use when each token was sampled, (count,), at an even pace."""
        when = began + (ended - began) * (np.arange(count) + 0.5) / count
        return (np.searchsorted(self._pushed_at, when, side="right") - 1).astype(np.int32)
