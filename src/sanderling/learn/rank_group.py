"""Tensors between the processes of a learner: weights from rank 0 to all, gradients from all to rank 0."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn

LOOPBACK = "127.0.0.1"


class TensorGroup:
    """The processes as torch knows them: gloo over the loopback interface for a CPU, NCCL for GPUs.

    It is no global process group, so that a program may have several, and one of its own. Making it waits for all ranks.

    Args:
        meeting: an empty folder of this machine in which the ranks find each other; no longer needed afterwards.
        rank: of this process.
        size: number of processes.
        device: of this process's tensors.
        limit_s: after which an exchange fails, in seconds.

    Raises:
        RuntimeError: not all ranks came in time; so do the methods when a process was lost.
    """

    def __init__(self, meeting: Path, *, rank: int, size: int, device: torch.device, limit_s: float) -> None:
        store = distributed.FileStore(str(meeting / "ranks"), size)
        limit = timedelta(seconds=limit_s)
        store.set_timeout(limit)
        self._group = _nccl(store, rank, size, limit) if device.type == "cuda" else _gloo(store, rank, size, limit)
        self.spread([nn.Parameter(torch.zeros(1, device=device))])  # connects; all are in when it returns

    def spread(self, parameters: Sequence[nn.Parameter]) -> None:
        """Give all ranks the values that rank 0 has."""
        for parameter in parameters:
            self._group.broadcast(parameter.data, 0).wait()

    def add_up(self, parameters: Sequence[nn.Parameter], touched: Sequence[bool]) -> None:
        """Leave the sum of all ranks' gradients in `.grad` at rank 0; at the others it means nothing afterwards.

        Sums and not means: the weights of the tokens carry the denominators of the whole batch.

        Args:
            parameters: in the same order everywhere.
            touched: which of them have a gradient on any rank, the same everywhere. The others keep none, as in one process.
        """
        for parameter, has in zip(parameters, touched, strict=True):
            if has:
                gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.contiguous()
                self._group.reduce(gradient, 0).wait()
                parameter.grad = gradient


def _gloo(store: Any, rank: int, size: int, limit: timedelta) -> Any:
    backend: Any = distributed.ProcessGroupGloo
    options = backend._Options()
    options._timeout = limit
    options._devices = [backend.create_device(hostname=LOOPBACK)]  # else that of this machine's name, open to others
    return backend(store, rank, size, options)


def _nccl(store: Any, rank: int, size: int, limit: timedelta) -> Any:
    backend: Any = distributed.ProcessGroupNCCL
    options = backend.Options()
    options._timeout = limit
    return backend(store, rank, size, options)
