"""How text becomes actions: a harness turns a policy's text into sandbox operations and their results into text.

A `Harness` is stateless and shared; `start` gives one `Conversation` per episode, which holds what the protocol must
remember (the undo stack, the number of bad calls). Tokens are the codec's business: it encodes what we write, once, and
decodes what the policy wrote, for reading only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from sanderling.harness.tokenizer import Tokenizer
from sanderling.sandbox.protocol import Sandbox
from sanderling.types import Int32Array, ObservationSource, StopReason, Task


class BadCall(StrEnum):
    """What is wrong with a call that was not dispatched."""

    MALFORMED = "malformed"  # the text can't be parsed, or was cut in the middle
    UNKNOWN = "unknown"  # no such tool
    WRONG_TYPE = "wrong_type"  # an argument isn't of its type
    OVERSIZED = "oversized"  # larger than the protocol allows


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What one action led to."""

    text: str
    source: ObservationSource = "tool"
    stop: StopReason | None = None  # SUBMITTED or GAVE_UP: the episode ends with this action
    bad_calls: tuple[BadCall, ...] = ()  # one for each invalid call in the action; none of these was dispatched
    exit_code: int | None = None
    duration_s: float = 0.0
    omitted_bytes: int = 0
    commands: int = 0


class Conversation(Protocol):
    """One episode's side of the protocol."""

    async def act(self, text: str) -> Reply:
        """Carry out one action.

        Raises:
            SandboxLost, SandboxBroken: as the sandbox says; everything the policy does wrong is a `Reply`.
        """
        ...


class Codec(Protocol):
    """Between text and token ids. Encoding happens once per piece of text and never for sampled ids."""

    @property
    def stop_token_ids(self) -> tuple[int, ...]: ...

    def encode_prompt(self, text: str) -> Int32Array:
        """Return the ids that stand before the first action."""
        ...

    def encode_observation(self, text: str, finish: str) -> Int32Array:
        """Return the ids between two actions. `finish` is the finish reason of the action before it."""
        ...

    def decode_action(self, token_ids: Int32Array) -> str:
        """Return the text of a sampled action, without its stop token."""
        ...


class Harness(Protocol):
    def prompt(self, task: Task) -> str:
        """Return what the policy reads first."""
        ...

    def start(self, task: Task, sandbox: Sandbox) -> Conversation: ...

    def codec(self, tokenizer: Tokenizer) -> Codec: ...
