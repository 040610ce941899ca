"""A learner of several processes on one machine, as rank 0 runs it: shares go out, gradients come back as one sum.

Data-parallel in the plainest form. Rank 0 alone holds the optimiser and makes the updates; before each pass it spreads its
weights. So ranks can't drift apart: a worker keeps nothing from one pass to the next, there is one set of weights and moments
to save and to resume from, and whatever changed rank 0's weights (an update, a checkpoint) reaches the others. Clipping and
stepping on every rank would cost the same traffic, and be right only as long as all of them round alike.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import torch

from sanderling.batch.micro import MicroBatch
from sanderling.batch.shares import deal, fair_cut
from sanderling.errors import ConfigError, LearnerError
from sanderling.learn.config import LearnerConfig
from sanderling.learn.gradients import Gradients, Work
from sanderling.learn.rank_group import TensorGroup
from sanderling.learn.rank_messages import (
    AddUp,
    Done,
    Failed,
    Join,
    Loaded,
    ModelSource,
    RankLimits,
    Ready,
    Score,
    Setup,
)
from sanderling.learn.rank_process import GONE_S, RankProcess
from sanderling.loss.policy import LossSums
from sanderling.types import Float32Array, TrainingRow


def share_of_threads(config: LearnerConfig) -> int:
    """Return the CPU threads of each process of a learner; 0: as many as torch uses anyway."""
    if config.processes == 1:
        return config.threads
    return max(1, (config.threads or torch.get_num_threads()) // config.processes)


class Ranks:
    """Passes through a model that is held by this process, rank 0, and by `config.processes - 1` workers.

    Args:
        own: this process's model and settings.
        source: from where the workers load the same one.
        limits: how long to wait for them.

    Raises:
        ConfigError: there are fewer GPUs than processes, or `source` holds other weights.
        LearnerError: a worker could not be started.
    """

    def __init__(self, own: Gradients, source: ModelSource, limits: RankLimits | None = None) -> None:
        self._own, self._limits = own, limits or RankLimits()
        self._size = own.config.processes
        self._longest_s = 0.0  # of our own shares
        self._ended = False
        self._processes: list[RankProcess] = []
        devices = _devices(own.device, source, self._size)
        meeting = Path(tempfile.mkdtemp(prefix="sanderling-ranks-"))
        with self._in_step():
            try:
                self._start(meeting, [replace(source, device=device) for device in devices])
                self._group = self._join(meeting)
            finally:
                shutil.rmtree(meeting, ignore_errors=True)

    @property
    def worker_pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def cut(self, rows: Sequence[TrainingRow]) -> list[MicroBatch]:
        batch = self._own.config.batch
        return fair_cut(rows, batch.micro_batch_tokens, batch.layout, self._size)

    def logprobs(self, micros: Sequence[MicroBatch]) -> list[Float32Array]:
        def ours(score: Score) -> Sequence[Float32Array]:
            return self._own.logprobs(score.micros)

        shares = deal(micros, self._size)
        with self._in_step():
            answers = self._compute([Score(micros=[micros[i] for i in share]) for share in shares], ours)
        return _in_order(shares, _results(answers))

    def accumulate(self, work: Work) -> list[LossSums]:
        shares = deal([piece.micro for piece in work.pieces], self._size)
        parts = [replace(work, pieces=[work.pieces[i] for i in share]) for share in shares]
        with self._in_step():
            answers = self._compute(parts, self._own.accumulate)
            if all(isinstance(answer, Done) for answer in answers):
                self._add_up([answer for answer in answers if isinstance(answer, Done)])
        return _in_order(shares, _results(answers))

    def close(self) -> None:
        """End the workers."""
        self._ended = True
        for process in self._processes:
            process.end()
        self._processes = []

    @contextmanager
    def _in_step(self) -> Generator[None]:
        """Whatever leaves the processes out of step with each other ends them; a share that failed on its own does not."""
        if self._ended:
            raise LearnerError("the processes of this learner have ended; make another one, from the last checkpoint")
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _start(self, meeting: Path, sources: Sequence[ModelSource]) -> None:
        for rank, source in enumerate(sources, start=1):
            self._processes.append(RankProcess(rank, meeting, self._limits.answer_s))
            setup = Setup(
                rank=rank,
                size=self._size,
                source=source,
                config=self._own.config,
                threads=share_of_threads(self._own.config),
                meeting=meeting,
                answer_s=self._limits.answer_s,
            )
            self._processes[-1].send(setup)
        expected = self._own.fingerprint()
        deadline = monotonic() + self._limits.start_s
        for process, source in zip(self._processes, sources, strict=True):
            found = process.expect(Loaded, deadline - monotonic()).fingerprint
            if found != expected:
                raise ConfigError(
                    f"rank {process.rank} loaded weights {found} from {source.folder}, rank 0 trains {expected}; name the "
                    "folder that the model was loaded from, with the same dtype"
                )

    def _join(self, meeting: Path) -> TensorGroup:
        for process in self._processes:
            process.send(Join())
        with self._exchange():
            group = TensorGroup(
                meeting, rank=0, size=self._size, device=self._own.device, limit_s=self._limits.answer_s
            )
        self._await_ready()
        return group

    def _compute(self, parts: Sequence[Any], ours: Callable[[Any], Sequence[Any]]) -> list[Done | Failed]:
        """Return what became of each rank's part, in order of the ranks. Rank 0 does its own here."""
        for process, part in zip(self._processes, parts[1:], strict=True):
            process.send(part)
        self._await_ready()
        with self._exchange():
            self._group.spread(self._own.parameters)
        began = monotonic()
        try:
            own: Done | Failed = Done(results=ours(parts[0]), touched=self._own.touched())
        except LearnerError as error:
            own = Failed(message=str(error))
        self._longest_s = max(self._longest_s, monotonic() - began)
        deadline = monotonic() + self._limits.answer_s + self._limits.slower * self._longest_s
        return [own, *(process.receive(deadline - monotonic()) for process in self._processes)]

    def _add_up(self, answers: Sequence[Done]) -> None:
        anywhere = [any(column) for column in zip(*(answer.touched for answer in answers), strict=True)]
        for process in self._processes:
            process.send(AddUp(touched=anywhere))
        with self._exchange():
            self._group.add_up(self._own.parameters, anywhere)

    def _await_ready(self) -> None:
        deadline = monotonic() + self._limits.answer_s
        for process in self._processes:
            process.expect(Ready, deadline - monotonic())

    @contextmanager
    def _exchange(self) -> Generator[None]:
        """Name the process that was lost while tensors went to and fro."""
        try:
            yield
        except RuntimeError as error:
            deadline = monotonic() + GONE_S
            while not any(process.has_ended() for process in self._processes) and monotonic() < deadline:
                sleep(0.05)
            lost = [process.lost("is out of reach") for process in self._processes if process.has_ended()]
            unknown = f"the learner's processes could not exchange tensors: {error}; no update was made"
            raise LearnerError(lost[0] if lost else unknown) from error


def _devices(first: torch.device, source: ModelSource, size: int) -> list[str]:
    """Return the device of each worker.

    Raises:
        ConfigError: there are too few.
    """
    if first.type != "cuda":
        return [source.device] * (size - 1)
    used = first.index or 0
    others = [f"cuda:{index}" for index in range(torch.cuda.device_count()) if index != used]
    if len(others) < size - 1:
        raise ConfigError(
            f"trainer.processes is {size}, but there are {len(others) + 1} GPUs; each process needs one of its own: lower it"
        )
    return others[: size - 1]


def _results(answers: Sequence[Done | Failed]) -> list[Sequence[Any]]:
    """Return each rank's results.

    Raises:
        LearnerError: what the first rank that failed said.
    """
    for answer in answers:
        if isinstance(answer, Failed):
            raise LearnerError(answer.message)
    return [answer.results for answer in answers if isinstance(answer, Done)]


def _in_order(shares: Sequence[Sequence[int]], results: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the results by place of their micro-batch."""
    found = {
        i: result
        for share, of_rank in zip(shares, results, strict=True)
        for i, result in zip(share, of_rank, strict=True)
    }
    return [found[i] for i in range(len(found))]
