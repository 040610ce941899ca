"""Text to ids for what we write, ids to text for what people read. Sampled ids are never encoded again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from sanderling.errors import ModelError
from sanderling.harness.chat_template import ChatTemplates, read_chat_templates


class Tokenizer(Protocol):
    """The four calls that the harness needs of a tokenizer."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`; no special token is added, markers such as <|end|> in the text are not special."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of ids; special tokens are left out, bytes that aren't UTF-8 become U+FFFD."""
        ...

    def special_id(self, token: str) -> int | None:
        """Return the id of a special token by its name, or None where the vocabulary lacks it."""
        ...

    @property
    def eos_id(self) -> int | None: ...


@runtime_checkable
class ChatTokenizer(Tokenizer, Protocol):
    """What a chat needs besides: the model's templates, and text in which markers are markers."""

    @property
    def chat_templates(self) -> ChatTemplates | None:
        """The templates of the model; None where it has none."""
        ...

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """The texts of all special tokens."""
        ...

    @property
    def ending_ids(self) -> tuple[int, ...]:
        """Ids after which the model has said that it is done, as its folder declares them; may be empty."""
        ...

    def encode_marked(self, text: str) -> list[int]:
        """Return the ids of `text`, in which the text of a special token is that token; nothing else is added."""
        ...

    def decode_marked(self, token_ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens included."""
        ...


class FastTokenizer:
    """The `tokenizer.json` of a Hugging Face model folder, through the `tokenizers` library (no torch needed)."""

    def __init__(self, folder: Path) -> None:
        """Load the tokenizer.

        Raises:
            ModelError: the folder has no readable tokenizer.json.
        """
        self._file = folder / "tokenizer.json"
        if not self._file.is_file():
            raise ModelError(
                f"no tokenizer.json in {folder}; a model folder needs config.json, weights and tokenizer.json"
            )
        self._tokenizer = self._load()
        self._tokenizer.encode_special_tokens = True  # text that looks like a marker stays text
        settings = _read_settings(folder / "tokenizer_config.json")
        eos = settings.get("eos_token")
        name = eos.get("content") if isinstance(eos, dict) else eos
        self._eos = self._tokenizer.token_to_id(name) if isinstance(name, str) else None
        self._chat = read_chat_templates(folder, settings)
        declared = _read_settings(folder / "generation_config.json").get("eos_token_id")
        ids = declared if isinstance(declared, list) else [declared]
        self._endings = tuple(int(token) for token in ids if isinstance(token, int))

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.decode([int(i) for i in token_ids], skip_special_tokens=True)

    def special_id(self, token: str) -> int | None:
        return self._tokenizer.token_to_id(token)

    @property
    def eos_id(self) -> int | None:
        return self._eos

    @property
    def chat_templates(self) -> ChatTemplates | None:
        return self._chat

    @cached_property
    def special_tokens(self) -> tuple[str, ...]:
        added = self._tokenizer.get_added_tokens_decoder().values()
        return tuple(token.content for token in added if token.special)

    @property
    def ending_ids(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys([*self._endings, *([] if self._eos is None else [self._eos])]))

    def encode_marked(self, text: str) -> list[int]:
        return self._marking.encode(text, add_special_tokens=False).ids

    def decode_marked(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.decode([int(i) for i in token_ids], skip_special_tokens=False)

    @cached_property
    def _marking(self) -> Any:
        """A second tokenizer: whether markers are special is a state of the whole object, and threads may share it."""
        return self._load()

    def _load(self) -> Any:
        from tokenizers import Tokenizer as RustTokenizer

        try:
            return RustTokenizer.from_file(str(self._file))
        except Exception as error:  # the Rust side raises a bare Exception
            raise ModelError(f"{self._file} is not a readable tokenizer: {error}") from error


def _read_settings(file: Path) -> Mapping[str, Any]:
    return json.loads(file.read_text("utf-8")) if file.is_file() else {}
