"""Who samples: token ids in, token ids and log-probabilities out. An engine knows nothing about text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from sanderling.types import Action, Int32Array


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the next token is drawn.

    The distribution is softmax(logits / temperature) cut to the smallest set of tokens whose mass reaches `top_p` and
    renormalised; `Action.rollout_logprobs` are those of that distribution. temperature 0 is greedy (log-probabilities
    are then those at temperature 1, uncut).
    """

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 512
    stop_token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """One action to sample.

    `session` names the episode: an engine may keep the KV cache of a session between its turns, because the context of
    a later turn begins with the context and the action of the earlier one, or, where a chat template rewrote history, with
    a part of them. Drawing is a function of `seed` and
    the token's position in the action only, so the same weights give the same action whatever else is in the batch (up
    to float error).
    """

    session: str
    context_ids: Int32Array  # (T,) the whole context, prompt first
    params: SamplingParams = field(default_factory=SamplingParams)
    seed: int = 0


class Engine(Protocol):
    """Samples actions under numbered weights.

    `policy_version` is the version of the weights now in use; each sampled token carries the version that sampled it.
    """

    @property
    def policy_version(self) -> int: ...

    async def generate(self, request: SampleRequest) -> Action:
        """Sample one action; many calls at once are batched continuously.

        `Action.text` is left empty: the harness decodes. Cancelling the call frees its place in the batch.

        Raises:
            EngineError: the sampler failed; nothing of this request may be used.
        """
        ...

    async def generate_many(self, requests: Sequence[SampleRequest]) -> list[Action]:
        """Sample one action for each request, in the given order, as one unit.

        The whole list enters the queue at once, so on an otherwise idle engine the make-up of every batch depends on
        the list alone: the same calls under the same weights give bit-identical actions run after run. Deterministic
        synchronous training uses it.

        Raises:
            EngineError: at least one request failed. The others were still carried out, but their actions are lost; a
                caller that wants them repeats the list with `generate`, one by one.
        """
        ...

    def end_session(self, session: str) -> None:
        """Forget the KV cache of a session. Unknown sessions are ignored."""
        ...

    async def update_weights(self, state: Mapping[str, Any], version: int) -> str:
        """Load weights in place between two decoding steps and return the new fingerprint (see `fingerprint`)."""
        ...

    def fingerprint(self) -> str:
        """Return a digest of the weights actually in use; equal weights give equal digests in engine and trainer."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class Startable(Protocol):
    """What an engine has besides, if it needs a while before it can sample."""

    async def start(self) -> None:
        """Return once it can; awaited once, before anything else. `close` follows, also where it failed or was cancelled.

        Raises:
            EngineError: it can't start.
        """
        ...
