"""A policy that follows a script: an engine and a codec without a model, for the normal episode loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sanderling.engine.protocol import SampleRequest
from sanderling.errors import EngineError
from sanderling.harness.bash_block import SUBMIT
from sanderling.harness.protocol import Continuation
from sanderling.types import Action, Int32Array

_END = 256  # after the bytes


def actions_of(commands: Sequence[str]) -> list[str]:
    """Return the actions of the bash-block harness that run these commands, one each, and submit."""
    return [f"```bash\n{command}\n```" for command in (*commands, SUBMIT)]


class BytesCodec:
    """Implements `harness.protocol.Codec` with one token for each byte of text."""

    stop_token_ids: tuple[int, ...] = (_END,)

    def encode_prompt(self, text: str) -> Int32Array:
        return np.frombuffer(text.encode("utf-8", "replace"), dtype=np.uint8).astype(np.int32)

    def open(self, prompt: str) -> BytesTranscript:
        return BytesTranscript(self, prompt)

    def decode_action(self, token_ids: Int32Array) -> str:
        return bytes(token_ids[token_ids < _END].astype(np.uint8)).decode("utf-8", "replace")


class BytesTranscript:
    """Implements `harness.protocol.Transcript`: the context only grows."""

    def __init__(self, codec: BytesCodec, prompt: str) -> None:
        self._codec = codec
        self.prompt_ids = codec.encode_prompt(prompt)

    def extend(self, action: Action, observations: Sequence[str]) -> Continuation:
        return Continuation(token_ids=self._codec.encode_prompt("\n".join(observations)))


class ScriptEngine:
    """Implements `engine.protocol.Engine` for one episode: answers with the actions of a script, in order."""

    policy_version = 0

    def __init__(self, actions: Sequence[str]) -> None:
        self._actions = list(actions)

    async def generate(self, request: SampleRequest) -> Action:
        if not self._actions:
            raise EngineError("the script has ended and the episode has not")
        data = self._actions.pop(0).encode("utf-8", "replace")
        ids = np.append(np.frombuffer(data, dtype=np.uint8).astype(np.int32), np.int32(_END))
        if len(ids) > request.params.max_tokens:
            raise EngineError(f"a scripted action has {len(ids)} bytes, at most {request.params.max_tokens} fit")
        return Action(
            token_ids=ids,
            rollout_logprobs=np.zeros(len(ids), dtype=np.float32),  # a script is certain of what it does
            policy_versions=np.zeros(len(ids), dtype=np.int32),
            text="",
            finish_reason="stop",
        )

    async def generate_many(self, requests: Sequence[SampleRequest]) -> list[Action]:
        return [await self.generate(request) for request in requests]

    def end_session(self, session: str) -> None:
        """Nothing is kept for a session."""

    async def update_weights(self, state: Mapping[str, Any], version: int) -> str:
        raise EngineError("a script has no weights")

    def fingerprint(self) -> str:
        return "script"

    async def close(self) -> None:
        """Nothing is open."""
