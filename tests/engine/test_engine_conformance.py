"""The built-in engine keeps every promise of the protocol, and the suite notices engines that don't."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sanderling.engine.protocol import SampleRequest
from sanderling.engine.torch_engine import TorchEngine
from sanderling.errors import WeightPushError
from sanderling.testing import engine_conformance as suite
from sanderling.types import Action


@pytest.mark.parametrize("check", suite.CHECKS, ids=lambda check: check.__name__)
def test_torch_engine(check: suite.Check, subject: suite.Subject) -> None:
    asyncio.run(check(subject))


class Broken:
    """The built-in engine with one thing spoiled."""

    def __init__(self, inner: TorchEngine, spoil: str) -> None:
        self.inner = inner
        self.spoil = spoil
        self.calls = 0

    @property
    def policy_version(self) -> int:
        return self.inner.policy_version

    async def generate(self, request: SampleRequest) -> Action:
        return (await self.generate_many([request]))[0]

    async def generate_many(self, requests: Sequence[SampleRequest]) -> list[Action]:
        self.calls += 1
        if self.spoil == "seed":
            requests = [replace(r, seed=r.seed + self.calls) for r in requests]
        if self.spoil == "cache":
            requests = [replace(r, context_ids=r.context_ids[-20:]) for r in requests]
        actions = await self.inner.generate_many(requests)
        return [self._spoiled(action) for action in actions]

    def _spoiled(self, action: Action) -> Action:
        match self.spoil:
            case "logprobs":
                return replace(action, rollout_logprobs=action.rollout_logprobs - np.float32(0.01))
            case "versions":
                return replace(action, policy_versions=np.full_like(action.policy_versions, self.policy_version))
            case "stop":
                return replace(action, finish_reason="length")
            case "length":
                return replace(action, rollout_logprobs=action.rollout_logprobs[:-1])
            case _:
                return action

    def end_session(self, session: str) -> None:
        self.inner.end_session(session)

    async def update_weights(self, state: Mapping[str, Any], version: int) -> str:
        if self.spoil == "push":
            return self.inner.fingerprint()
        return await self.inner.update_weights(state, version)

    def fingerprint(self) -> str:
        return self.inner.fingerprint()

    async def close(self) -> None:
        await self.inner.close()


@pytest.mark.parametrize(
    ("spoil", "check"),
    [
        ("seed", suite.check_seed_decides),
        ("seed", suite.check_batch_independence),
        ("cache", suite.check_logprobs_are_the_trainers),
        ("logprobs", suite.check_logprobs_are_the_trainers),
        ("versions", suite.check_versions_during_update),
        ("stop", suite.check_stop_token),
        ("length", suite.check_action_is_whole),
        ("push", suite.check_push_changes_weights),
    ],
)
def test_suite_notices(spoil: str, check: suite.Check, subject: suite.Subject) -> None:
    inner = subject.make
    broken = replace(subject, make=lambda: Broken(inner(), spoil))
    with pytest.raises((AssertionError, WeightPushError)):
        asyncio.run(check(broken))
