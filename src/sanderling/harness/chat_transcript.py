"""One conversation of the chat codec: what was sampled, what was answered, and the ids that stand between."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sanderling.errors import ModelError
from sanderling.harness.chat_template import Message
from sanderling.harness.protocol import Continuation
from sanderling.types import Action, Int32Array

if TYPE_CHECKING:
    from sanderling.harness.chat_codec import ChatCodec

_PLACE = "sanderling was here"  # stands for an action when the template is asked what it writes behind one


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """An action as it may be found again in a later context."""

    token_ids: list[int]  # without the token that ended it
    behind: str  # what the template wrote after it, up to the next turn


class ChatTranscript:
    """Implements `harness.protocol.Transcript`."""

    def __init__(self, codec: ChatCodec, prompt: str) -> None:
        """Lay out the prompt.

        Raises:
            ModelError: the template refuses it.
        """
        self._codec = codec
        self._before = codec.messages(prompt)
        self._messages: list[Message] = list(self._before)
        self._said: list[_Said] = []
        self._encoded: dict[str, list[int]] = {}
        # The context as the template writes it; None: it fails on what the model wrote, so it has no say any more.
        self._rendered: str | None = codec.render(self._messages, open_turn=True)
        self.prompt_ids = _array(self._encode(self._rendered))

    def fork(self) -> ChatTranscript:
        """Return an independent transcript in the same state."""
        twin = copy.copy(self)
        twin._messages, twin._said = list(self._messages), list(self._said)
        return twin

    def extend(self, action: Action, observations: Sequence[str]) -> Continuation:
        """See `Transcript.extend`. A template that fails on what the model wrote leaves the context as it is."""
        codec = self._codec
        answers = codec.answers(observations)
        message = codec.text.mark_said(codec.decode_action(action.token_ids))
        conversation = [*self._messages, {"role": "assistant", "content": message}, *answers]
        rendered = None if self._rendered is None else self._render(conversation)
        behind = self._appended(rendered, message)
        grew = behind is not None
        if behind is None:
            behind = self._behind(answers)
            grew = rendered is None or _letters(rendered) == _letters(
                f"{self._rendered}{self._written(message)}{behind}"
            )
        said = codec.without_end(action.token_ids)
        self._said.append(_Said(token_ids=said, behind=behind.removesuffix(codec.pieces.generation)))
        self._messages, self._rendered = conversation, rendered
        if grew or rendered is None:
            return Continuation(token_ids=_array(self._after(action, behind)))
        return Continuation(token_ids=_array([]), new_prompt_ids=_array(self._written_anew(rendered)))

    def _written(self, message: str) -> str:
        return message.removeprefix(self._codec.pieces.opened)

    def _appended(self, rendered: str | None, message: str) -> str | None:
        """Return what the template put behind an action that it took as it is; None: it changed something."""
        if self._rendered is None or rendered is None or not rendered.startswith(self._rendered):
            return None
        written, at = self._written(message), len(self._rendered)
        return rendered[at + len(written) :] if rendered.startswith(written, at) else None

    def _behind(self, answers: Sequence[Message]) -> str:
        """Return what the template writes after an action, whatever the action is."""
        place: Message = {"role": "assistant", "content": _PLACE}
        rendered = self._render([*self._messages, place, *answers])
        if rendered is None or _PLACE not in rendered:  # because of what was said before
            rendered = self._codec.render([*self._before, place, *answers], open_turn=True)
        return rendered[rendered.rindex(_PLACE) + len(_PLACE) :]

    def _render(self, messages: Sequence[Message]) -> str | None:
        try:
            return self._codec.render(messages, open_turn=True)
        except ModelError:
            return None

    def _after(self, action: Action, behind: str) -> list[int]:
        """Return the ids after an action; the token with which it ended stands there already."""
        ids, end = self._encode(behind), self._codec.pieces.end_id
        ended = len(action.token_ids) > 0 and int(action.token_ids[-1]) == end
        return ids[ids.index(end) + 1 :] if ended and self._codec.first_special(ids) == end else ids

    def _written_anew(self, rendered: str) -> list[int]:
        """Return the ids of a context that the template changed; what was sampled and still stands there keeps its ids."""
        ids: list[int] = []
        at = 0
        for said in self._said:
            stop = rendered.find(said.behind, at)
            if stop < 0:
                continue  # the template left this turn out
            kept, length = self._surviving(said.token_ids, rendered[at:stop])
            if kept:
                ids += self._encode(rendered[at : stop - length])
                ids += kept
                at = stop
        return ids + self._encode(rendered[at:])

    def _surviving(self, token_ids: list[int], text: str) -> tuple[list[int], int]:
        """Return the longest end of an action that `text` ends with, and its length in characters."""
        low, high = 0, len(token_ids)
        while low < high:  # a shorter end of what the text ends with is also one, so halving finds the longest
            middle = (low + high) // 2
            if text.endswith(self._text_of(token_ids[middle:])):
                high = middle
            else:
                low = middle + 1
        kept = token_ids[low:]
        return kept, len(self._text_of(kept))

    def _text_of(self, token_ids: list[int]) -> str:
        return self._codec.text.mark_said(self._codec.tokenizer.decode_marked(token_ids)) if token_ids else ""

    def _encode(self, text: str) -> list[int]:
        """Encode a piece of marked text; a piece that comes again isn't encoded again."""
        if text not in self._encoded:
            self._encoded[text] = self._codec.text.encode(text)
        return self._encoded[text]


def _letters(text: str) -> str:
    return "".join(text.split())


def _array(ids: Sequence[int]) -> Int32Array:
    return np.array(ids, dtype=np.int32)
