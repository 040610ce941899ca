"""Backends for the tests of this folder. Where a machine can't run one, its tests are skipped with the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest

from sanderling.sandbox.bubblewrap import BubblewrapBackend
from sanderling.sandbox.doctor import probe_bubblewrap

Result = TypeVar("Result")
Run = Callable[[Callable[[BubblewrapBackend], Awaitable[Result]]], Result]


@cache
def _why_not() -> tuple[str, ...]:
    return probe_bubblewrap().missing


@pytest.fixture
def bubblewrap(tmp_path: Path) -> Iterator[Run]:
    """Run a coroutine function on a fresh backend that is closed afterwards."""
    if _why_not():
        pytest.skip("; ".join(_why_not()))

    async def run(work: Callable[[BubblewrapBackend], Awaitable[Result]]) -> Result:
        backend = BubblewrapBackend(tmp_path / "state")
        try:
            return await work(backend)
        finally:
            await backend.close()

    yield lambda work: asyncio.run(run(work))
