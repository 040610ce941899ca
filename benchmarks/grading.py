"""What the default verifier says and costs: right repairs and untouched bugs of held-out tasks, graded in fresh sandboxes.

    python benchmarks/grading.py [--tasks 100] [--concurrency 8]

Prints how many right repairs and how many untouched bugs were paid (all and none are right), the graded episodes per second,
and the ratio of the time to the physical limit: the same number of bare interpreter starts, as many at once.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import TypeVar

from fix_python import environment
from fix_python.tasks import FILE, FixPythonTasks

from sanderling.sandbox.bubblewrap import BubblewrapBackend
from sanderling.types import Submission, Task

T = TypeVar("T")


async def at_once(jobs: Sequence[Callable[[], Awaitable[T]]], concurrency: int) -> tuple[list[T], float]:
    """Run jobs, at most `concurrency` at a time; return their results and the seconds that all took."""
    free = asyncio.Semaphore(concurrency)

    async def one(job: Callable[[], Awaitable[T]]) -> T:
        async with free:
            return await job()

    began = time.perf_counter()
    results = await asyncio.gather(*map(one, jobs))
    return results, time.perf_counter() - began


async def bare_start() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-I", "-S", "-c", "pass")
    await process.wait()


async def measure(count: int, concurrency: int) -> None:
    tasks, verifier = FixPythonTasks(), environment().verifier
    drawn = [tasks.get(task_id) for task_id in Random(0).sample(list(tasks.ids("held-out")), count)]
    with tempfile.TemporaryDirectory() as state:
        backend = BubblewrapBackend(state_dir=Path(state))
        try:

            def grading(task: Task, source: bytes) -> Callable[[], Awaitable[float]]:
                async def grade() -> float:
                    return (await verifier.grade(task, Submission(files={FILE: source}), backend, seed=1)).reward

                return grade

            right = [grading(task, tasks.problem(task.id).source.encode()) for task in drawn]
            untouched = [grading(task, task.base[FILE]) for task in drawn]
            await at_once(right[:concurrency], concurrency)  # starts the launcher
            _, bare = await at_once([bare_start] * (2 * count), concurrency)
            rewards, seconds = await at_once([*right, *untouched], concurrency)
        finally:
            await backend.close()
    print(f"right repairs paid: {sum(rewards[:count]):.0f} of {count}")
    print(f"untouched bugs paid: {sum(rewards[count:]):.0f} of {count}")
    print(f"graded episodes per second: {2 * count / seconds:.1f}")
    print(f"time against bare interpreter starts: {seconds / bare:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--concurrency", type=int, default=8)
    arguments = parser.parse_args()
    asyncio.run(measure(arguments.tasks, arguments.concurrency))


if __name__ == "__main__":
    main()
