"""What is kept of a stream that may be of any length. Standard library only: it also runs inside containers."""

from __future__ import annotations


class HeadAndTail:
    """Keeps the first and last bytes of a stream, at most `limit` in all."""

    def __init__(self, limit: int) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._head_limit = (limit + 1) // 2
        self._tail_limit = limit - self._head_limit
        self._total = 0

    def add(self, chunk: bytes) -> None:
        self._total += len(chunk)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        if len(chunk) >= self._tail_limit:
            self._tail[:] = chunk[len(chunk) - self._tail_limit :]
        elif chunk:
            self._tail += chunk
            del self._tail[: max(0, len(self._tail) - self._tail_limit)]

    @property
    def kept(self) -> bytes:
        return bytes(self._head + self._tail)

    @property
    def omitted(self) -> int:
        return self._total - len(self._head) - len(self._tail)
