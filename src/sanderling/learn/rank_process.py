"""A worker process of a learner as rank 0 sees it: started, spoken to with a limit in time, and never left behind."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from sanderling.errors import LearnerError
from sanderling.learn.rank_messages import Failed

GONE_S = 10.0  # between the end of a connection and that of its process, on a busy machine
_TAIL = 1500  # bytes of what a dead worker wrote


class RankProcess:
    """`python -m sanderling.learn.worker` at the other end of a pair of sockets.

    The worker ends when its end of the pair has no other one, however that comes about: this process closes it, ends, or is
    killed.

    Args:
        rank: from 1.
        meeting: the folder in which the ranks find each other.
        send_s: after which a message that is not taken fails, in seconds.
    """

    def __init__(self, rank: int, meeting: Path, send_s: float) -> None:
        self.rank = rank
        self._log = os.fdopen(os.memfd_create(f"rank {rank}"), "rb")  # in memory: a kill leaves nothing behind
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "sanderling.learn.worker", str(theirs.fileno()), str(meeting)],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,  # Ctrl-C is for this process alone, which ends the step first
            )
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):  # of a message that was begun
            ours.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(send_s) + 1, 0))
        self._connection = Connection(ours.detach())

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: Any) -> None:
        """Send a message.

        Raises:
            LearnerError: the process ended, or does not take the message.
        """
        try:
            self._connection.send(message)
        except OSError as error:
            raise LearnerError(self.lost(f"did not take its part ({error})")) from error

    def receive(self, limit_s: float) -> Any:
        """Return its next message.

        Raises:
            LearnerError: the process ended, or is silent for longer than `limit_s`.
        """
        try:
            if self._connection.poll(max(0.0, limit_s)):
                return self._connection.recv()
        except (EOFError, OSError) as error:
            raise LearnerError(self.lost(f"broke off ({type(error).__name__})")) from error
        raise LearnerError(self.lost("gives no answer"))

    def expect(self, kind: type[Any], limit_s: float) -> Any:
        """Return its next message, which must be of a kind.

        Raises:
            LearnerError: it is another one, and as `receive` says.
        """
        message = self.receive(limit_s)
        if isinstance(message, Failed):
            raise LearnerError(f"rank {self.rank} of the learner failed: {message.message}")
        if not isinstance(message, kind):
            raise LearnerError(
                f"rank {self.rank} of the learner sent {type(message).__name__}, expected {kind.__name__}; all of its "
                "processes must run the same version of sanderling"
            )
        return message

    def lost(self, what: str) -> str:
        """Return what is to be said of a process that can't be reached: its exit code, or what it does not do."""
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(GONE_S)
            named = f" ({signal.Signals(-code).name})" if code < 0 else ""
            return (
                f"rank {self.rank} of the learner (process {self.pid}) ended with exit code {code}{named}; no update was "
                f"made. Resume the run from its last checkpoint{self._said()}"
            )
        return (
            f"rank {self.rank} of the learner (process {self.pid}) {what} and did not end; no update was made. Look for a "
            f"stopped process or a machine that is out of memory, and resume the run from its last checkpoint{self._said()}"
        )

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> None:
        """End the process, whatever it does."""
        self._connection.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GONE_S)
        self._process.kill()
        self._process.wait()
        self._log.close()

    def _said(self) -> str:
        if self._log.closed:
            return ""
        size = os.fstat(self._log.fileno()).st_size
        text = os.pread(self._log.fileno(), _TAIL, max(0, size - _TAIL)).decode("utf-8", "replace").strip()
        return f". Its last words:\n{text}" if text else ""
