"""Time as the event loop keeps it: the monotonic clock in a run, simulated seconds in `sanderling plan`."""

from __future__ import annotations

import asyncio


def now() -> float:
    """Return the seconds of the running loop's clock; its timers and timeouts go by the same one.

    Raises:
        RuntimeError: no loop is running in this thread.
    """
    return asyncio.get_running_loop().time()
