"""The ids of a growing context, kept once: each turn costs its own length, however long the context is."""

from __future__ import annotations

import copy
import hashlib

import numpy as np

from sanderling.types import Int32Array

_ROOM = 1024  # tokens that the first buffer holds at least


class ContextBuffer:
    """Ids that are only ever appended to. What was handed out stays as it was and can't be written to."""

    def __init__(self, prompt_ids: Int32Array) -> None:
        self._ids = np.empty(max(_ROOM, 2 * len(prompt_ids)), dtype=np.int32)
        self._digest = hashlib.blake2b(digest_size=16)
        self._digested = 0
        self.length = 0
        self.append(prompt_ids)

    def copy(self) -> ContextBuffer:
        """Return a buffer of the same ids that grows by itself."""
        twin = copy.copy(self)
        twin._ids, twin._digest = self._ids.copy(), self._digest.copy()
        return twin

    def append(self, token_ids: Int32Array) -> None:
        end = self.length + len(token_ids)
        if end > len(self._ids):
            # A buffer of double the size: all copies together are at most twice the final length. Views of the old one
            # keep it alive, and nothing writes into it any more.
            grown = np.empty(2 * end, dtype=np.int32)
            grown[: self.length] = self._ids[: self.length]
            self._ids = grown
        self._ids[self.length : end] = token_ids
        self.length = end

    def view(self) -> Int32Array:
        """Return the ids so far, (T,), without a copy; writing to them raises ValueError."""
        ids = self._ids[: self.length]
        ids.flags.writeable = False
        return ids

    def digest(self) -> bytes:
        """Return the 128-bit BLAKE2b digest of the ids so far. Only what is new since the last call is read."""
        self._digest.update(self._ids[self._digested : self.length].tobytes())
        self._digested = self.length
        return self._digest.digest()
