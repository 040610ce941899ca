"""How text becomes actions: a harness turns a policy's text into sandbox operations and their results into text.

A `Harness` is stateless and shared; `start` gives one `Conversation` per episode, which holds what the protocol must
remember (the undo stack, the number of bad calls). Tokens are the codec's business: it encodes what we write, once, and
decodes what the policy wrote, for reading only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from sanderling.harness.tokenizer import Tokenizer
from sanderling.sandbox.protocol import Sandbox
from sanderling.types import Action, Int32Array, ObservationSource, StopReason, Task


class BadCall(StrEnum):
    """What is wrong with a call that was not dispatched."""

    MALFORMED = "malformed"  # the text can't be parsed, or was cut in the middle
    UNKNOWN = "unknown"  # no such tool
    NOT_AN_OBJECT = "not_an_object"  # valid JSON, but the arguments are no object
    MISSING_ARGUMENT = "missing_argument"
    UNKNOWN_ARGUMENT = "unknown_argument"
    WRONG_TYPE = "wrong_type"  # an argument isn't of its type
    OVERSIZED = "oversized"  # larger than the protocol allows


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What one action led to."""

    text: str
    parts: tuple[
        str, ...
    ] = ()  # of `text`, one for each call; a chat template may have a message for each. (): only one
    source: ObservationSource = "tool"
    stop: StopReason | None = None  # SUBMITTED or GAVE_UP: the episode ends with this action
    bad_calls: tuple[BadCall, ...] = ()  # one for each invalid call in the action; none of these was dispatched
    exit_code: int | None = None
    duration_s: float = 0.0
    omitted_bytes: int = 0
    commands: int = 0
    reward: float = 0.0  # paid for this turn, on top of what the verifier pays at the end
    score: float | None = None  # how good the state is that the action left behind; None: the harness doesn't say


class Conversation(Protocol):
    """One episode's side of the protocol."""

    async def act(self, text: str) -> Reply:
        """Carry out one action.

        Raises:
            SandboxLost, SandboxBroken: as the sandbox says; everything the policy does wrong is a `Reply`.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """What stands between an action and the next one."""

    token_ids: Int32Array  # (T,) appended after the action
    # (T,) where the codec changed what stands before: the next action begins a row of its own with this prompt, and
    # `token_ids` is empty. None: the context only grew
    new_prompt_ids: Int32Array | None = None


class Transcript(Protocol):
    """The growing context of one episode. It encodes every piece of text once, and no sampled id ever."""

    @property
    def prompt_ids(self) -> Int32Array:
        """The ids before the first action, (T,)."""
        ...

    def extend(self, action: Action, observations: Sequence[str]) -> Continuation:
        """Take an action and what it was answered, one text per call, and return what comes before the next action."""
        ...


class Codec(Protocol):
    """Between text and token ids; shared by all episodes of a run."""

    @property
    def stop_token_ids(self) -> tuple[int, ...]: ...

    def encode_prompt(self, text: str) -> Int32Array:
        """Return the ids that stand before the first action, (T,)."""
        ...

    def open(self, prompt: str) -> Transcript:
        """Begin the context of an episode."""
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
