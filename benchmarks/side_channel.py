"""How a benchmark talks to its sides: each is a process of its own, and reads and writes JSON, one object a line.

The first line to a side is its setup, every further one a round; each is answered by one line. A side waits while another one
works, so that rounds can alternate. Nothing but the standard library is imported here: a side may live in another environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

Record = dict[str, Any]


class SideError(Exception):
    """A side ended without an answer."""


class Channel:
    """The side's end. What libraries print goes to standard error, so that the answers stay alone."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def requests(self) -> Iterator[Record]:
        """Yield what is asked until nothing more comes."""
        for line in sys.stdin:
            yield json.loads(line)

    def answer(self, record: Mapping[str, Any]) -> None:
        self._answers.write(json.dumps(record) + "\n")
        self._answers.flush()


class Side:
    """The benchmark's end of one side."""

    def __init__(self, command: Sequence[str], setup: Mapping[str, Any], env: Mapping[str, str]) -> None:
        """Start the process and hand over its setup; call `ready` before anything is asked."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`
        self._command = list(command)
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, **env},
        )
        self._send(setup)

    def ready(self) -> Record:
        """Return what the process says when it has carried out its setup; called once.

        Raises:
            SideError: it ended before that.
        """
        return self._receive("its setup")

    def ask(self, request: Mapping[str, Any]) -> Record:
        """Return the answer to one request.

        Raises:
            SideError: the process ended instead; the end of what it wrote to standard error is in the message.
        """
        self._send(request)
        return self._receive(str(dict(request)))

    def _send(self, request: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # `_receive` says why it ended
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()

    def _receive(self, request: str) -> Record:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self._errors.seek(0)
            tail = self._errors.read().decode("utf-8", "replace")[-3000:]
            name = Path(self._command[1]).name
            raise SideError(f"{name} ended with exit code {code} instead of answering {request}:\n{tail}")
        return json.loads(line)

    def close(self) -> None:
        """Let the process end, and wait for it; one that doesn't within 30 s is killed."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()


def peak_mb() -> float:
    """Return the most memory that this process ever had resident (VmHWM), in MiB. Linux only."""
    status = Path("/proc/self/status").read_text("ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024
