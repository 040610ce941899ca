"""What the tests of formats share: a real backend, and where data sets may lie."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sanderling.sandbox.bubblewrap import BubblewrapBackend


def in_sandboxes(work):
    """Run `work(backend)` to its end with a real backend; skip the test where the machine can't have one."""
    capabilities = BubblewrapBackend().probe()
    if not capabilities.usable:
        pytest.skip(f"no sandbox on this machine: {capabilities.missing}")

    async def run():
        backend = BubblewrapBackend()
        try:
            return await work(backend)
        finally:
            await backend.close()

    return asyncio.run(run())


def shared_data(name: str) -> Path:
    """Return a file of the folder shared/data beside or above the checkout; skip the test where there is none."""
    for folder in Path(__file__).resolve().parents:
        if (found := folder / "shared" / "data" / name).is_file():
            return found
    pytest.skip(f"shared/data/{name} is in no folder above the checkout; it isn't a part of the project")
