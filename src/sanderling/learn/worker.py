"""A worker process of a learner: holds the model, computes shares, keeps nothing. `learn.ranks` starts it, and says when."""

from __future__ import annotations

import os
import select
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any

import torch

from sanderling.errors import LearnerError, SanderlingError
from sanderling.learn.gradients import Gradients, Work
from sanderling.learn.rank_group import TensorGroup
from sanderling.learn.rank_messages import AddUp, Done, Failed, Loaded, Ready, Score, Setup


def main(handle: int, meeting: Path) -> None:
    """Serve rank 0 until it closes the connection.

    Args:
        handle: of the socket whose other end rank 0 alone holds.
        meeting: the folder in which the ranks find each other; removed when rank 0 is gone.
    """
    Thread(target=_end_with_owner, args=(handle, meeting), daemon=True).start()
    connection = Connection(handle)
    with suppress(EOFError):
        _serve(connection)


def _serve(connection: Connection) -> None:
    setup: Setup = connection.recv()
    torch.set_num_threads(setup.threads)
    try:
        own = Gradients(setup.source.load(), setup.config)
    except SanderlingError as error:
        connection.send(Failed(message=f"{type(error).__name__}: {error}"))
        return
    connection.send(Loaded(fingerprint=own.fingerprint()))
    connection.recv()  # Join
    group = TensorGroup(setup.meeting, rank=setup.rank, size=setup.size, device=own.device, limit_s=setup.answer_s)
    connection.send(Ready())
    while True:
        message = connection.recv()
        if isinstance(message, AddUp):
            group.add_up(own.parameters, message.touched)
            continue
        connection.send(Ready())
        group.spread(own.parameters)
        connection.send(_answer(message, own, setup.rank))


def _answer(message: Score | Work, own: Gradients, rank: int) -> Done | Failed:
    own.drop()  # the gradient of the pass before
    try:
        return Done(results=_results(message, own), touched=own.touched())
    except LearnerError as error:
        return Failed(message=str(error))
    except Exception as error:  # such as too little memory: whatever torch raises
        return Failed(message=f"rank {rank} of the learner failed: {type(error).__name__}: {error}; no update was made")


def _results(message: Score | Work, own: Gradients) -> Sequence[Any]:
    match message:
        case Score(micros=micros):
            return own.logprobs(micros)
        case Work():
            return own.accumulate(message)


def _end_with_owner(handle: int, meeting: Path) -> None:
    """End this process as soon as the other end of the socket is gone, whatever the main thread is doing."""
    watch = select.poll()
    watch.register(handle, 0)  # nothing but the end
    watch.poll()
    shutil.rmtree(meeting, ignore_errors=True)  # there only where rank 0 was killed in its start
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
