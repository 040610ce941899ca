"""What is kept of a command's output: the head and the tail of each stream, however much there is."""

from __future__ import annotations

import asyncio
import os
from types import TracebackType

from sanderling.sandbox.head_and_tail import HeadAndTail
from sanderling.sandbox.launcher.wire import memory_file

_CHUNK = 1 << 18
_CHUNKS_PER_WAKE = 4  # then let others have the loop


class OutputReader:
    """Reads one pipe through the event loop. No thread, no more memory than the limit."""

    def __init__(self, fd: int, limit: int) -> None:
        self._fd: int | None = fd
        self._output = HeadAndTail(limit)
        os.set_blocking(fd, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(fd, self._on_readable)

    @property
    def kept(self) -> bytes:
        return self._output.kept

    @property
    def omitted(self) -> int:
        return self._output.omitted

    def _on_readable(self) -> None:
        for _ in range(_CHUNKS_PER_WAKE):
            if not self._read_once():
                return

    def _read_once(self) -> bool:
        if self._fd is None:
            return False
        try:
            chunk = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self.close()
            return False
        self._output.add(chunk)
        return True

    def finish(self) -> None:
        """Take what is there now and close; a process that still holds the other end is not waited for."""
        for _ in range(64):  # a pipe holds at most a few chunks
            if not self._read_once():
                break
        self.close()

    def close(self) -> None:
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None


class Streams:
    """The three streams of one command: our ends with what was read, and their ends until they are passed on."""

    def __init__(self, stdin: bytes, limit: int) -> None:
        stdin_fd = memory_file(stdin, "stdin") if stdin else os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        out_reader, out_writer = os.pipe()
        err_reader, err_writer = os.pipe()
        self.theirs = [stdin_fd, out_writer, err_writer]
        self.stdout = OutputReader(out_reader, limit)
        self.stderr = OutputReader(err_reader, limit)

    def close_theirs(self) -> None:
        for fd in self.theirs:
            os.close(fd)
        self.theirs = []

    def __enter__(self) -> Streams:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close_theirs()
        self.stdout.finish()
        self.stderr.finish()
