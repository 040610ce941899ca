"""The engine "vllm" keeps the protocol's promises over HTTP; a real vLLM is tried where there is one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from sanderling.engine.vllm_config import VllmConfig
from sanderling.engine.vllm_engine import RunningServer, VllmEngine
from sanderling.engine.vllm_server import start_server
from sanderling.engine.weights import push
from sanderling.errors import EngineError, WeightPushError
from sanderling.testing import engine_conformance as suite
from sanderling.testing.fake_vllm_server import FakeVllmServer


@pytest.fixture(scope="module")
def server(llama_folder: Path) -> Generator[FakeVllmServer]:
    with FakeVllmServer(llama_folder) as running:
        yield running


def _engine(url: str, folder: Path, weights: Path) -> VllmEngine:
    return VllmEngine(RunningServer(url), folder=folder, weights_folder=weights, dtype="float32", request_s=30.0)


@pytest.fixture
def over_http(subject: suite.Subject, llama_folder: Path, tmp_path: Path) -> suite.Subject:
    def make() -> VllmEngine:
        server = FakeVllmServer(llama_folder).__enter__()
        return VllmEngine(server, folder=llama_folder, weights_folder=tmp_path, dtype="float32", request_s=30.0)

    return replace(subject, make=make, repeats=suite.Repeats.UP_TO_ROUNDING)


_QUICK = (suite.check_stop_token, suite.check_token_limit, suite.check_push_changes_weights)
"""Checks of the fast suite: what the adapter adds to the engine behind the server."""


@pytest.mark.parametrize(
    "check",
    [pytest.param(check, marks=() if check in _QUICK else pytest.mark.slow) for check in suite.CHECKS],
    ids=lambda check: check.__name__,
)
def test_over_http(check: suite.Check, over_http: suite.Subject) -> None:
    asyncio.run(check(over_http))


def test_a_push_that_does_nothing_is_noticed(subject: suite.Subject, llama_folder: Path, tmp_path: Path) -> None:
    async def run(url: str) -> None:
        engine = _engine(url, llama_folder, tmp_path)
        try:
            await push(engine, subject.states[0], 1)  # the same weights: nothing has to change
            with pytest.raises(WeightPushError, match="the engine reports fingerprint"):
                await push(engine, subject.states[1], 2)
        finally:
            await engine.close()

    with FakeVllmServer(llama_folder, ignores_pushes=True) as running:
        asyncio.run(run(running.url))


def test_weights_of_another_model_are_refused(
    subject: suite.Subject, server: FakeVllmServer, llama_folder: Path, tmp_path: Path
) -> None:
    async def run() -> None:
        engine = _engine(server.url, llama_folder, tmp_path)
        state = dict(subject.states[1])
        state.pop("model.norm.weight")
        try:
            with pytest.raises(WeightPushError, match=r"model\.norm\.weight"):
                await engine.update_weights(state, 1)
            assert engine.policy_version == 0
        finally:
            await engine.close()

    asyncio.run(run())


def test_what_the_server_says_reaches_the_caller(
    server: FakeVllmServer, llama_folder: Path, tmp_path: Path, subject: suite.Subject
) -> None:
    async def run(url: str, length: int) -> None:
        engine = _engine(url, llama_folder, tmp_path)
        request = replace(
            suite.ragged_requests(1, subject.vocab_size)[0],
            context_ids=suite.ragged_requests(1, 9)[0].context_ids.repeat(length),
        )
        try:
            await engine.generate(request)
        finally:
            await engine.close()

    with pytest.raises(EngineError, match=r"400.*too long"):
        asyncio.run(run(server.url, 2000))
    with pytest.raises(EngineError, match="didn't answer session"):
        asyncio.run(run("http://127.0.0.1:9", 1))


def test_a_server_that_can_not_start_is_quoted(llama_folder: Path) -> None:
    config = VllmConfig(arguments=("--no-such-argument",))
    with pytest.raises(EngineError, match="before it answered"):
        start_server(llama_folder, config, dtype="float32", device="cpu")


_PYTHON = os.environ.get("SANDERLING_VLLM_PYTHON", "")
"""Interpreter with vLLM, for the checks on a real server."""


@pytest.mark.slow
@pytest.mark.skipif(not _PYTHON, reason="SANDERLING_VLLM_PYTHON names no interpreter that has vLLM")
def test_a_real_server(subject: suite.Subject, llama_folder: Path, tmp_path: Path) -> None:
    started = start_server(llama_folder, VllmConfig(python=_PYTHON), dtype="float32", device="cpu")

    def make() -> VllmEngine:
        # One server serves all checks, and each check begins with the first weights.
        first = {"method": "reload_weights", "kwargs": {"weights_path": str(llama_folder)}}
        httpx.post(f"{started.url}/collective_rpc", json=first, timeout=60.0).raise_for_status()
        httpx.post(f"{started.url}/reset_prefix_cache", timeout=60.0).raise_for_status()
        return _engine(started.url, llama_folder, tmp_path)

    failed = []
    try:
        real = replace(subject, make=make, repeats=suite.Repeats.UP_TO_ROUNDING)
        for check in suite.CHECKS:
            try:
                asyncio.run(check(real))
            except (AssertionError, EngineError) as error:
                failed.append(f"{check}: {error}"[:300])
    finally:
        asyncio.run(started.close())
    assert not failed
