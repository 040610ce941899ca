"""A program that runs a command for as long as its owner lives, and ends it with all that it started.

It is run as a file and imports nothing of ours. Its standard input is a pipe whose other end its owner alone holds. However
the owner ends, killed or not, so does the pipe: nothing has to be sent. A signal for the death of a parent would not do: it
comes when the thread that started the child ends, and the server's own children would not get it.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from contextlib import suppress

END_S = 20.0
"""Seconds between the request to end and the kill."""

_LOOK_S = 0.5


def main(folder: str, command: list[str]) -> int:
    """Run `command` in a session of its own; return its exit code, or 128 and the signal that ended it.

    Args:
        folder: removed once the owner is gone; while the owner lives it belongs to it.
        command: program and arguments.
    """
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        while server.poll() is None:
            if _owner_is_gone():
                _end(server)
                shutil.rmtree(folder, ignore_errors=True)
        return server.returncode if server.returncode >= 0 else 128 - server.returncode
    finally:
        _signal(server, signal.SIGKILL)  # what it started and left behind


def _owner_is_gone() -> bool:
    ready, _, _ = select.select([0], [], [], _LOOK_S)
    return bool(ready) and os.read(0, 1) == b""


def _end(server: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        _signal(server, number)
        with suppress(subprocess.TimeoutExpired):
            server.wait(END_S)
            return


def _signal(server: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(server.pid, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
