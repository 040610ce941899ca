"""How a verb runs its job."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

INTERRUPTED = 130

Result = TypeVar("Result")


def run_job(job: Coroutine[Any, Any, Result]) -> Result:
    """Run a job. The first SIGINT or SIGTERM cancels it in order, so that it can save and clean up; a second one ends it."""

    async def guarded() -> Result:
        task = asyncio.ensure_future(job)
        loop = asyncio.get_running_loop()

        def stop() -> None:
            if task.cancelling():
                os._exit(INTERRUPTED)
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        try:
            return await task
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    return asyncio.run(guarded())
