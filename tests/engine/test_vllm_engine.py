"""The engine "vllm" keeps the protocol's promises over HTTP; a real vLLM is tried where there is one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from sanderling.engine.vllm_config import VllmConfig
from sanderling.engine.vllm_engine import RunningServer, VllmEngine
from sanderling.engine.vllm_guard import __file__ as guard_file
from sanderling.engine.vllm_server import StartedServer
from sanderling.engine.vllm_weights import WeightsFolder
from sanderling.engine.weights import push
from sanderling.errors import EngineError, WeightPushError
from sanderling.testing import engine_conformance as suite
from sanderling.testing.fake_vllm_server import FakeVllmServer, write_interpreter
from sanderling.testing.tiny_model import tiny_llama_folder


@pytest.fixture(scope="module")
def served(llama_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served")
    WeightsFolder(path, source=llama_folder, dtype="float32").write_source()
    return path


@pytest.fixture(scope="module")
def server(served: Path) -> Generator[FakeVllmServer]:
    with FakeVllmServer(served) as running:
        yield running


def _engine(url: str, folder: Path, weights: Path) -> VllmEngine:
    return VllmEngine(RunningServer(url), folder=folder, weights_folder=weights, dtype="float32", request_s=30.0)


@pytest.fixture
def over_http(subject: suite.Subject, llama_folder: Path, served: Path, tmp_path: Path) -> suite.Subject:
    def make() -> VllmEngine:
        server = FakeVllmServer(served).__enter__()
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

    with pytest.raises(EngineError, match=r"400.*maximum context length"):
        asyncio.run(run(server.url, 2000))
    with pytest.raises(EngineError, match="didn't answer session"):
        asyncio.run(run("http://127.0.0.1:9", 1))


def test_a_server_that_keeps_its_old_head_is_refused(llama_folder: Path, tmp_path: Path) -> None:
    async def run(url: str) -> None:
        engine = _engine(url, llama_folder, tmp_path)
        try:
            await engine.start()
        finally:
            await engine.close()

    with (
        FakeVllmServer(llama_folder) as tied,
        pytest.raises(WeightPushError, match=r"(?s)after a trial push .* nats .*Start it with the model"),
    ):
        asyncio.run(run(tied.url))
    with FakeVllmServer(tmp_path) as untied:  # the folder that the message names
        asyncio.run(run(untied.url))


def test_a_push_waits_until_the_old_cache_is_empty(
    subject: suite.Subject, llama_folder: Path, served: Path, tmp_path: Path
) -> None:
    async def run(url: str) -> bool:
        engine = _engine(url, llama_folder, tmp_path)
        body = {"model": "policy", "prompt": [5, 6], "max_tokens": 40, "temperature": 1.0, "stream": True}
        async with httpx.AsyncClient(timeout=30.0) as somebody:
            other = asyncio.ensure_future(somebody.post(f"{url}/v1/completions", json=body))
            await asyncio.sleep(0.05)
            try:
                await push(engine, subject.states[1], 1)
                return other.done()
            finally:
                await other
                await engine.close()

    with FakeVllmServer(served) as running:
        assert asyncio.run(run(running.url)), "the push ended while the cache of the old weights was in use"


def test_a_server_that_can_not_start_is_quoted(tmp_path: Path) -> None:
    server = StartedServer(VllmConfig(python=sys.executable), dtype="float32", device="cpu")

    async def run() -> None:
        try:
            await server.start()
        finally:
            await server.close()

    with pytest.raises(EngineError, match=r"(?s)ended with 1 before it answered.*No module named"):
        asyncio.run(run())


def test_what_is_guarded_ends_with_its_owner(tmp_path: Path) -> None:
    """The owner is killed; the guarded process, and a process that it started, end, and the folder goes."""
    place, pids = tmp_path / "place", tmp_path / "pids"
    place.mkdir()
    command = ["sh", "-c", f"sleep 1000 & echo $! $$ > {pids}; wait"]
    owner = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys, time\n"
            "guard = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, start_new_session=True)\n"
            "time.sleep(1000)\n",
            *(sys.executable, "-I", "-S", guard_file, str(place), *command),
        ]
    )
    try:
        _until(lambda: pids.exists() and len(pids.read_text().split()) == 2, 20.0)
    finally:
        owner.kill()
        owner.wait()
    _until(lambda: not any(_lives(int(pid)) for pid in pids.read_text().split()) and not place.exists(), 10.0)


@pytest.mark.slow
def test_a_killed_controller_leaves_no_server(llama_folder: Path, tmp_path: Path) -> None:
    interpreter = write_interpreter(tmp_path / "python-with-vllm")
    started = tmp_path / "started"
    program = f"""
import asyncio
from pathlib import Path
from sanderling.engine.vllm_config import VllmConfig
from sanderling.engine.vllm_engine import VllmEngine
from sanderling.engine.vllm_server import StartedServer

async def main():
    config = VllmConfig(python={str(interpreter)!r})
    server = StartedServer(config, dtype="float32", device="cpu")
    folder = Path({str(llama_folder)!r})
    await VllmEngine(server, folder=folder, weights_folder=server.weights_folder, dtype="float32").start()
    Path({str(started)!r}).write_text(f"{{server.url}} {{server.weights_folder.parent}}")
    await asyncio.sleep(1000)

asyncio.run(main())
"""
    controller = subprocess.Popen([sys.executable, "-c", program])
    try:
        _until(lambda: started.exists() and len(started.read_text().split()) == 2, 120.0)
        url, place = started.read_text().split()
        assert httpx.get(f"{url}/health").status_code == 200
    finally:
        controller.send_signal(signal.SIGKILL)
        controller.wait()
    _until(lambda: not _answers(url) and not Path(place).exists(), 10.0)


@pytest.mark.slow
def test_a_start_keeps_nobody_waiting_and_can_be_cancelled(llama_folder: Path, tmp_path: Path) -> None:
    async def run() -> None:
        config = VllmConfig(python=str(write_interpreter(tmp_path / "python-with-vllm")))
        server = StartedServer(config, dtype="float32", device="cpu")
        WeightsFolder(server.weights_folder, source=llama_folder, dtype="float32").write_source()
        starting = asyncio.ensure_future(server.start())
        longest, before = 0.0, time.monotonic()
        try:
            while not starting.done():
                await asyncio.sleep(0.01)
                longest, before = max(longest, time.monotonic() - before), time.monotonic()
            await starting
            assert longest < 1.0, f"the event loop stood still for {longest:.1f} s"
        finally:
            await server.close()
        assert not _answers(server.url) and not server.weights_folder.exists()

        server = StartedServer(config, dtype="float32", device="cpu")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(server.start(), 1.0)  # before it could answer
        await server.close()
        assert not _answers(server.url)

    asyncio.run(run())


def _until(is_so: Callable[[], bool], limit_s: float) -> None:
    end = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < end, f"not so after {limit_s} s"
        time.sleep(0.05)


def _lives(pid: int) -> bool:
    """Whether a process runs; one that ended and that nobody waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _answers(url: str) -> bool:
    with suppress(httpx.HTTPError):
        return httpx.get(f"{url}/health", timeout=2.0).status_code == 200
    return False


_PYTHON = os.environ.get("SANDERLING_VLLM_PYTHON", "")
"""Interpreter with vLLM, for the checks on a real server."""


@pytest.mark.slow
@pytest.mark.skipif(not _PYTHON, reason="SANDERLING_VLLM_PYTHON names no interpreter that has vLLM")
def test_a_real_server(make_subject: Callable[..., suite.Subject], tmp_path: Path) -> None:
    # 32 is the narrowest head that attention of vLLM's CPU build computes.
    folders = [tiny_llama_folder(tmp_path / str(seed), seed=seed, head_dim=32) for seed in (0, 1)]
    first = WeightsFolder(tmp_path / "first", source=folders[0], dtype="float32")
    first.write_source()
    server = StartedServer(VllmConfig(python=_PYTHON), dtype="float32", device="cpu")

    def make() -> VllmEngine:
        # One server serves all checks, and each check begins with the first weights.
        reload = {"method": "reload_weights", "kwargs": {"weights_path": str(first.path)}}
        httpx.post(f"{server.url}/collective_rpc", json=reload, timeout=60.0).raise_for_status()
        _until(lambda: httpx.post(f"{server.url}/reset_prefix_cache", timeout=60.0).json()["success"], 60.0)
        return _engine(server.url, folders[0], server.weights_folder)

    async def run(real: suite.Subject) -> list[str]:
        owner = VllmEngine(server, folder=folders[0], weights_folder=server.weights_folder, dtype="float32")
        failed = []
        try:
            await owner.start()
            for check in suite.CHECKS:
                try:
                    await check(real)
                except (AssertionError, EngineError) as error:
                    failed.append(f"{check.__name__}: {error}"[:300])
        finally:
            await owner.close()
        return failed

    built_in = make_subject(folders[0], folders[1], max_batch=8)
    failed = asyncio.run(run(replace(built_in, make=make, repeats=suite.Repeats.UP_TO_ROUNDING)))
    assert not failed
