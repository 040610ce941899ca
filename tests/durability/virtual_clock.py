"""An event loop whose clock jumps to the next timer, so that hours of waiting take no time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class _JumpingSelector(selectors.DefaultSelector):
    """Never waits for a timer: what it was asked to wait is added to the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list:
        events = super().select(0)
        if not events and timeout:
            self.now += timeout
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    def run_in_executor(self, executor, func, *args):
        """Run it at once: the clock must not jump while a thread is at work."""
        done = self.create_future()
        done.set_result(func(*args))
        return done


def run(job: Coroutine[Any, Any, Result]) -> Result:
    """Run a job on a virtual clock that starts at 0."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(job)
