"""A tokenizer small enough to predict by hand: every byte, a few pieces, and greedy longest match."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sanderling.harness.chat_template import ChatTemplates

PIECES = ("he", "llo", "hello", "<th", "ink", "<think>")
"""Ids 256 to 261. Sampled ids [he][llo] decode to "hello", which encodes to the one id [hello]."""

SPECIAL_TOKENS = ("<|end|>", "<|pad|>", "<|user|>", "<|assistant|>", "<|tool|>")


class ToyTokenizer:
    """Bytes 0-255, then `pieces`, then `special_tokens`; encoding is greedy longest match, decoding is concatenation.

    Text never encodes to a special token, and decoding leaves special tokens out, except in the `_marked` calls. With
    `chat_template` it is a tokenizer for chats.
    """

    def __init__(
        self,
        pieces: Sequence[str] = PIECES,
        special_tokens: Sequence[str] = SPECIAL_TOKENS,
        eos: str | None = "<|end|>",
        chat_template: str | None = None,
    ) -> None:
        self._bytes_of = [bytes([i]) for i in range(256)] + [piece.encode() for piece in pieces]
        self._pieces = sorted(
            ((piece, 256 + i) for i, piece in enumerate(self._bytes_of[256:])), key=lambda pair: -len(pair[0])
        )
        self._special = {name: len(self._bytes_of) + i for i, name in enumerate(special_tokens)}
        self._names = {token: name for name, token in self._special.items()}
        self._eos = None if eos is None else self._special[eos]
        variables = {} if eos is None else {"eos_token": eos}
        sources = {} if chat_template is None else {"default": chat_template}
        self._chat = ChatTemplates(sources=sources, variables=variables) if sources else None

    @property
    def vocab_size(self) -> int:
        return len(self._bytes_of) + len(self._special)

    @property
    def eos_id(self) -> int | None:
        return self._eos

    def encode(self, text: str) -> list[int]:
        data = text.encode()
        ids, at = [], 0
        while at < len(data):
            found = next(((piece, i) for piece, i in self._pieces if data.startswith(piece, at)), None)
            piece, token = found if found else (data[at : at + 1], data[at])
            ids.append(token)
            at += len(piece)
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        kept = (int(i) for i in token_ids)
        return b"".join(self._bytes_of[i] for i in kept if i < len(self._bytes_of)).decode("utf-8", "replace")

    def special_id(self, token: str) -> int | None:
        return self._special.get(token)

    @property
    def chat_templates(self) -> ChatTemplates | None:
        return self._chat

    @property
    def special_tokens(self) -> tuple[str, ...]:
        return tuple(self._special)

    @property
    def ending_ids(self) -> tuple[int, ...]:
        return () if self._eos is None else (self._eos,)

    def encode_marked(self, text: str) -> list[int]:
        ids: list[int] = []
        for piece in re.split(f"({'|'.join(map(re.escape, self._special))})", text):
            ids += [self._special[piece]] if piece in self._special else self.encode(piece)
        return ids

    def decode_marked(self, token_ids: Sequence[int]) -> str:
        return b"".join(
            self._names[int(i)].encode() if int(i) in self._names else self._bytes_of[int(i)] for i in token_ids
        ).decode("utf-8", "replace")
