"""Text to ids for what we write, ids to text for what people read. Sampled ids are never encoded again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from sanderling.errors import ModelError


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


class FastTokenizer:
    """The `tokenizer.json` of a Hugging Face model folder, through the `tokenizers` library (no torch needed)."""

    def __init__(self, folder: Path) -> None:
        """Load the tokenizer.

        Raises:
            ModelError: the folder has no readable tokenizer.json.
        """
        import json

        from tokenizers import Tokenizer as RustTokenizer

        file = folder / "tokenizer.json"
        if not file.is_file():
            raise ModelError(
                f"no tokenizer.json in {folder}; a model folder needs config.json, weights and tokenizer.json"
            )
        try:
            self._tokenizer = RustTokenizer.from_file(str(file))
        except Exception as error:  # the Rust side raises a bare Exception
            raise ModelError(f"{file} is not a readable tokenizer: {error}") from error
        self._tokenizer.encode_special_tokens = True  # text that looks like a marker stays text
        settings = folder / "tokenizer_config.json"
        eos = json.loads(settings.read_text("utf-8")).get("eos_token") if settings.is_file() else None
        name = eos.get("content") if isinstance(eos, dict) else eos
        self._eos = self._tokenizer.token_to_id(name) if isinstance(name, str) else None

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.decode([int(i) for i in token_ids], skip_special_tokens=True)

    def special_id(self, token: str) -> int | None:
        return self._tokenizer.token_to_id(token)

    @property
    def eos_id(self) -> int | None:
        return self._eos
