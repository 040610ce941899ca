"""A workspace on this machine's own files, for tests of tools that run commands."""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path

from sanderling.harness.protocol import Harness, Reply
from sanderling.sandbox.local import LocalBackend
from sanderling.sandbox.protocol import SandboxSpec
from sanderling.types import Limits, Task

FILES = {
    "calc.py": b"def add(a, b):\n    return a - b\n\n\ndef sub(a, b):\n    return a - b\n",
    "pkg/text.py": "GREETING = 'grüezi'\n".encode(),
    "pkg/data.bin": b"\xff\xfe\x00",
    "empty.txt": b"",
}
LIMITS = Limits(command_s=5.0, output_bytes=2048)


def play(
    harness: Harness, *actions: str, folder: Path, files: dict[str, bytes] | None = None, limits: Limits = LIMITS
) -> tuple[list[Reply], dict[str, bytes]]:
    """Act in a fresh workspace; return the replies and the plain files at the end."""
    task = Task(id="t", prompt="Fix add.", base=FILES if files is None else files, limits=limits)

    async def run():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            backend = LocalBackend(folder)
        try:
            sandbox = await backend.create(SandboxSpec(files=task.base, limits=limits))
            conversation = harness.start(task, sandbox)
            replies = [await conversation.act(action) for action in actions]
            return replies, {path: await sandbox.read_file(path) for path in await sandbox.list_files()}
        finally:
            await backend.close()

    return asyncio.run(run())
