"""Settings of all tests, and a sandbox backend for those that run commands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

from sanderling.sandbox.bubblewrap import BubblewrapBackend
from sanderling.sandbox.doctor import probe_bubblewrap

# A busy machine is slow, not wrong: no example fails for the time it took.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

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
