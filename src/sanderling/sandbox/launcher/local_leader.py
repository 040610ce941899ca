"""Runs one command of the backend without isolation and ends with nothing of it alive.

Started as `python3 -I -S` with two numbers: the descriptor of a file with the request, and that of a pipe for the answer
(as `session_init` gives it); the command's streams are 0 to 2. It adopts the orphans of the command, so that a daemon that
left its process group and its session is found too. SIGTERM ends the command early.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from . import session_init


def main() -> None:
    """Run the request's command, kill what it left, and answer."""
    request_fd, answer_fd = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(answer_fd, False)
    signal.signal(signal.SIGTERM, lambda *_: _give_up())
    with open(request_fd, "rb") as file:
        request = json.load(file)
    answer = session_init.run_led(request, [0, 1, 2])
    session_init.kill_descendants()
    os.write(answer_fd, json.dumps(answer).encode())


def _give_up() -> None:
    session_init.kill_descendants()
    os._exit(1)
