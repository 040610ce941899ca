"""Chats for the tests of this folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sanderling.harness.chat_codec import ChatCodec
from sanderling.harness.protocol import Transcript
from sanderling.harness.tokenizer import FastTokenizer
from sanderling.testing.chat_templates import KINDS, write_chat_tokenizer
from sanderling.testing.toy_tokenizer import PIECES, ToyTokenizer
from sanderling.types import Action, FinishReason, Int32Array

READ = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Print a file.",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string", "description": "Which file."}},
            "required": ["path"],
        },
    },
}


def toy(kind: str, template: str | None = None, pieces: Sequence[str] = PIECES) -> ToyTokenizer:
    """Return the toy tokenizer with the special tokens and the template of a kind."""
    chosen = KINDS[kind]
    return ToyTokenizer(
        pieces=pieces, special_tokens=chosen.special, eos=chosen.end, chat_template=template or chosen.template
    )


def fast(kind: str, folder: Path) -> FastTokenizer:
    return FastTokenizer(write_chat_tokenizer(folder / kind, KINDS[kind]))


def codec(tokenizer: Any, tools: Sequence[Any] = (READ,)) -> ChatCodec:
    return ChatCodec(tokenizer, system="You fix code.", tools=tools)


def action(ids: Sequence[int], finish: FinishReason = "stop") -> Action:
    return Action(
        token_ids=np.array(ids, dtype=np.int32),
        rollout_logprobs=np.zeros(len(ids), dtype=np.float32),
        policy_versions=np.zeros(len(ids), dtype=np.int32),
        text="",
        finish_reason=finish,
    )


class Chat:
    """Keeps the context of a transcript as an episode does."""

    def __init__(self, codec: ChatCodec, prompt: str = "Fix it.") -> None:
        self.codec = codec
        self.transcript: Transcript = codec.open(prompt)
        self.context: list[int] = self.transcript.prompt_ids.tolist()
        self.rows = 1

    def say(self, ids: Sequence[int], *observations: str, finish: FinishReason = "stop") -> Int32Array:
        """Take an action; return what was appended, or the whole of a new context."""
        said = action(ids, finish)
        more = self.transcript.extend(said, observations)
        if more.new_prompt_ids is not None:
            assert len(more.token_ids) == 0
            self.context, self.rows = more.new_prompt_ids.tolist(), self.rows + 1
            return more.new_prompt_ids
        self.context += [*said.token_ids.tolist(), *more.token_ids.tolist()]
        return more.token_ids

    def text(self) -> str:
        return self.codec.tokenizer.decode_marked(self.context)
