"""Checking task folders, a few at a time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from sanderling.assemble import check_backend, load_backend
from sanderling.tasks.folders import find_task_folders
from sanderling.verify.suites.check import FolderCheck, check_folder


async def check_tasks(folder: Path, backend: str, show: Callable[[FolderCheck], None]) -> list[FolderCheck]:
    """Check every task folder below a directory, and show each as soon as it is known; return them in their order.

    Raises:
        TaskError: no task folder there. SandboxUnavailable: the backend doesn't run here. SandboxLost: it failed.
    """
    places = find_task_folders(folder)
    grader = load_backend(backend)
    try:
        await asyncio.to_thread(check_backend, grader)
        slots = asyncio.Semaphore(os.cpu_count() or 1)

        async def one(place: Path) -> FolderCheck:
            async with slots:
                found = await check_folder(place, grader)
            show(found)
            return found

        async with asyncio.TaskGroup() as group:
            running = [group.create_task(one(place)) for place in places]
        return [task.result() for task in running]
    finally:
        await grader.close()
