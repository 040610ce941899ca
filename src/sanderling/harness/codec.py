"""The plain codec: pieces of text with markers between them, for policies that were trained on it.

    prompt <|act|> action <|end|> observation <|act|> action <|end|> observation <|act|> ...

Where the vocabulary lacks the markers (a pretrained model), the end of text token ends an action and "\\n> " opens one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sanderling.errors import ModelError
from sanderling.harness.protocol import Continuation
from sanderling.harness.tokenizer import Tokenizer
from sanderling.types import Action, Int32Array

ACT = "<|act|>"
END = "<|end|>"
_OPENING_TEXT = "\n> "


class PlainCodec:
    """Implements `harness.protocol.Codec` on any tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Find the markers.

        Raises:
            ModelError: the tokenizer has neither <|end|> nor an end of text token, so no action could ever end.
        """
        self._tokenizer = tokenizer
        act, end = tokenizer.special_id(ACT), tokenizer.special_id(END)
        self._opening = [act] if act is not None else tokenizer.encode(_OPENING_TEXT)
        stop = end if end is not None else tokenizer.eos_id
        if stop is None:
            raise ModelError(
                f"the tokenizer has neither {END} nor an eos token: an action of this policy could never end"
            )
        self._stop = stop

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        return (self._stop,)

    def encode_prompt(self, text: str) -> Int32Array:
        return np.array([*self._tokenizer.encode(text), *self._opening], dtype=np.int32)

    def open(self, prompt: str) -> PlainTranscript:
        return PlainTranscript(self, prompt)

    def encode_observation(self, text: str, finish: str) -> Int32Array:
        # An action that was cut has no end marker of its own; the next opening marker still separates the two.
        del finish
        return np.array([*self._tokenizer.encode(text), *self._opening], dtype=np.int32)

    def decode_action(self, token_ids: Int32Array) -> str:
        ids = token_ids.tolist()
        return self._tokenizer.decode(ids[:-1] if ids and ids[-1] == self._stop else ids)


class PlainTranscript:
    """Implements `harness.protocol.Transcript`: the context only grows."""

    def __init__(self, codec: PlainCodec, prompt: str) -> None:
        self._codec = codec
        self.prompt_ids = codec.encode_prompt(prompt)

    def fork(self) -> PlainTranscript:
        return self  # it holds nothing that changes

    def extend(self, action: Action, observations: Sequence[str]) -> Continuation:
        ids = self._codec.encode_observation("\n".join(observations), action.finish_reason)
        return Continuation(token_ids=ids)
