"""An event loop whose time is a number. Where nothing is ready, the clock jumps to the next timer.

A function that is sent to a thread runs at once, in the loop; what it says it takes is waited for afterwards, in simulated
time. So nothing happens beside the loop, and the same job takes the same steps each time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")
Work = Callable[[], Awaitable[None]]

_RESOLUTION_S = 1e-6  # timers closer than this are due together; far above the rounding of sums up to decades


class _JumpingSelector(selectors.SelectSelector):
    """Waits for nothing outside: the wait itself moves the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.time_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError(
                "the simulation stands still: every task waits and no timer is set; a part of it waits for something that "
                "nothing in it will do"
            )
        self.time_s += max(0.0, timeout)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Implements `asyncio.AbstractEventLoop` for one thread and no input or output."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        self._owed: list[Work] | None = None  # None: no function of a thread is running
        super().__init__(self._jumping)
        self._clock_resolution = _RESOLUTION_S

    def time(self) -> float:
        """Return the simulated seconds since the loop was made."""
        return self._jumping.time_s

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Run `func` now, and return its outcome once the work that it owes is done (`owe`, `spend`)."""
        outer, self._owed = self._owed, []
        owed = self._owed
        outcome: asyncio.Future[Any] = self.create_future()
        try:
            outcome.set_result(func(*args))
        except Exception as error:
            outcome.set_exception(error)
        finally:
            self._owed = outer
        return self.create_task(_settled(owed, outcome))

    def owe(self, work: Work) -> None:
        """Let the function that runs as in a thread end only when `work` is done.

        Raises:
            RuntimeError: no such function is running.
        """
        if self._owed is None:
            raise RuntimeError("owe() is for functions that were sent to a thread; await the work instead")
        self._owed.append(work)

    def spend(self, seconds: float) -> None:
        """Take time in a function that can't wait: as in a thread, it ends later; in the loop, the whole loop stands."""
        if self._owed is not None:
            self._owed.append(lambda: asyncio.sleep(seconds))
        else:
            self._jumping.time_s += seconds


async def _settled(owed: list[Work], outcome: asyncio.Future[Any]) -> Any:
    for work in owed:
        await work()
    return outcome.result()


def running_loop() -> VirtualTimeLoop:
    """Return the running loop.

    Raises:
        RuntimeError: no loop is running, or it is one of real time.
    """
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualTimeLoop):
        raise RuntimeError(f"this part works in simulated time only, the running loop is a {type(loop).__name__}")
    return loop


def simulate(job: Coroutine[Any, Any, Result]) -> Result:
    """Run a job in simulated time, from 0 on, and return its result."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(job)
