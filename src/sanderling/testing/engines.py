"""Engines without a model: scripts that answer what a test wants, keep a record, and fail on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from sanderling.engine.protocol import SampleRequest
from sanderling.engine.weights import fingerprint
from sanderling.errors import ConfigError, EngineError
from sanderling.harness.tokenizer import Tokenizer
from sanderling.testing.tiny_model import tiny_llama_folder
from sanderling.testing.toy_tokenizer import ToyTokenizer
from sanderling.types import Action, FinishReason

__all__ = ["Call", "Fault", "Scripted", "ScriptedEngine", "TextPolicy", "ToyTokenizer", "tiny_llama_folder"]

TextPolicy = Callable[[str], str]
"""From the text of the whole context to the text of the next action, without its end marker."""


class Fault(StrEnum):
    """What can be wrong with an engine."""

    IGNORES_PUSHES = "ignores_pushes"  # says yes to new weights and goes on with the old ones
    NEVER_ANSWERS = "never_answers"  # `generate` waits until it is cancelled
    RAISES = "raises"  # `generate` raises EngineError
    ABORTS = "aborts"  # returns the first tokens of the action with finish reason "length"
    ABORTS_WITHOUT_LOGPROBS = "aborts_without_logprobs"  # the same, and `rollout_logprobs` is empty
    SERVES_STALE_PREFIX = "serves_stale_prefix"  # a context seen before is answered under the weights of its first time
    NOISY_LOGPROBS = "noisy_logprobs"  # log-probabilities are off by 0.02 per token, alternating in sign


@dataclass(frozen=True, slots=True, kw_only=True)
class Scripted:
    """One scripted answer: token ids, and their log-probabilities where the test cares about them.

    Without `logprobs` every token gets -0.1 * (version + 1).
    """

    token_ids: Sequence[int]
    logprobs: Sequence[float] | None = None
    finish_reason: FinishReason = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a scripted engine was asked."""

    request: SampleRequest
    policy_version: int

    @property
    def context_ids(self) -> list[int]:
        return [int(i) for i in self.request.context_ids]


@dataclass(slots=True, kw_only=True)
class ScriptedEngine:
    """Answers from a list, call by call, or from a text policy with a tokenizer; records every call.

    Exactly one of `script` and `policy` is given; a policy needs `tokenizer`, and `end_token` names the special token
    that is appended to its text (None: no end token). `faults` may be changed at any time; `abort_after` is the number
    of tokens that an aborted action keeps. Each token waits `token_s` seconds, so that pushes can land between two.

    Example::

        engine = ScriptedEngine(script=[Scripted(token_ids=[256, 257], logprobs=[-0.5, -0.25])])
        engine = ScriptedEngine(policy=lambda context: "submit", tokenizer=ToyTokenizer(), end_token="<|end|>")
    """

    script: Sequence[Scripted] | None = None
    policy: TextPolicy | None = None
    tokenizer: Tokenizer | None = None
    end_token: str | None = None
    faults: set[Fault] = field(default_factory=set)
    abort_after: int = 5
    token_s: float = 0.0
    weights: Mapping[str, Any] = field(default_factory=lambda: {"weight": np.zeros(1, dtype=np.float32)})
    policy_version: int = 0
    calls: list[Call] = field(default_factory=list)
    ended_sessions: list[str] = field(default_factory=list)
    pushed_versions: list[int] = field(default_factory=list)
    closed: bool = False
    _first_seen: dict[bytes, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.script is None) == (self.policy is None):
            raise ConfigError("ScriptedEngine needs exactly one of script and policy")
        if self.policy is not None and self.tokenizer is None:
            raise ConfigError("a text policy needs a tokenizer: pass tokenizer=ToyTokenizer()")

    async def generate(self, request: SampleRequest) -> Action:
        index = len(self.calls)
        self.calls.append(Call(request=request, policy_version=self.policy_version))
        if self.closed:
            raise EngineError("the scripted engine is closed")
        if Fault.NEVER_ANSWERS in self.faults:
            await asyncio.Event().wait()
        if Fault.RAISES in self.faults:
            raise EngineError(f"scripted failure at call {index}")
        return await self._emit(self._answer(request, index), request)

    async def generate_many(self, requests: Sequence[SampleRequest]) -> list[Action]:
        return [await self.generate(request) for request in requests]

    def end_session(self, session: str) -> None:
        self.ended_sessions.append(session)

    async def update_weights(self, state: Mapping[str, Any], version: int) -> str:
        self.pushed_versions.append(version)
        if Fault.IGNORES_PUSHES not in self.faults:
            self.weights = dict(state)
            self.policy_version = version
        return self.fingerprint()

    def fingerprint(self) -> str:
        return fingerprint(self.weights)

    async def close(self) -> None:
        self.closed = True

    def _answer(self, request: SampleRequest, index: int) -> Scripted:
        if self.script is not None:
            if index >= len(self.script):
                raise EngineError(f"the script has {len(self.script)} answers and call {index + 1} came")
            return self.script[index]
        assert self.policy is not None and self.tokenizer is not None
        text = self.policy(self.tokenizer.decode([int(i) for i in request.context_ids]))
        end = () if self.end_token is None else (self.tokenizer.special_id(self.end_token),)
        if None in end:
            raise EngineError(f"the tokenizer has no special token {self.end_token!r}")
        return Scripted(token_ids=[*self.tokenizer.encode(text), *(i for i in end if i is not None)])

    async def _emit(self, answer: Scripted, request: SampleRequest) -> Action:
        limit = request.params.max_tokens
        if self.faults & {Fault.ABORTS, Fault.ABORTS_WITHOUT_LOGPROBS}:
            limit = min(limit, self.abort_after)
        first_seen = self._first_seen.setdefault(request.context_ids.tobytes(), self.policy_version)
        finish: FinishReason = answer.finish_reason if len(answer.token_ids) <= limit else "length"
        ids = list(answer.token_ids[:limit])
        versions, logprobs = [], []
        for position in range(len(ids)):
            await asyncio.sleep(self.token_s)  # also at 0.0: other tasks get their turn between two tokens
            versions.append(self.policy_version)
            stale = Fault.SERVES_STALE_PREFIX in self.faults
            logprobs.append(self._logprob(answer, position, first_seen if stale else self.policy_version))
        if Fault.ABORTS_WITHOUT_LOGPROBS in self.faults:
            logprobs = []
        return Action(
            token_ids=np.array(ids, dtype=np.int32),
            rollout_logprobs=np.array(logprobs, dtype=np.float32),
            policy_versions=np.array(versions, dtype=np.int32),
            text="",
            finish_reason=finish,
        )

    def _logprob(self, answer: Scripted, position: int, version: int) -> float:
        exact = -0.1 * (version + 1) if answer.logprobs is None else answer.logprobs[position]
        noise = 0.02 * (-1) ** position if Fault.NOISY_LOGPROBS in self.faults else 0.0
        return exact + noise
