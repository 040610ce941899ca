"""Starting a vLLM server of our own and ending it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from sanderling.engine.vllm_config import VllmConfig
from sanderling.engine.vllm_engine import MODEL
from sanderling.errors import EngineError

# Reloading weights is one of the routes that vLLM shows in this mode alone.
_ENVIRONMENT = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1"}
# Read by vLLM's CPU build alone: no binding to cores that others use too, and a small cache.
_CPU_ENVIRONMENT = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"}
_END_S = 20.0


@dataclass(slots=True, eq=False)
class StartedServer:
    """A server process of ours and its log."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    async def close(self) -> None:
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        # It starts processes of its own, all in its session.
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_END_S)
                break
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.log.unlink(missing_ok=True)


def server_arguments(folder: Path, port: int, *, dtype: str, further: Sequence[str]) -> list[str]:
    """Return the arguments of `python -m vllm.entrypoints.openai.api_server`."""
    return [
        *("--model", str(folder), "--served-model-name", MODEL, "--dtype", dtype),
        *("--host", "127.0.0.1", "--port", str(port)),
        # What is recorded must be the log-probabilities of the distribution that is drawn from.
        *("--logprobs-mode", "processed_logprobs"),
        # A folder may hold a generation_config.json, whose settings would change what is drawn.
        *("--generation-config", "vllm"),
        *further,
    ]


def start_server(folder: Path, config: VllmConfig, *, dtype: str, device: str) -> StartedServer:
    """Start a server on a free port of the loopback interface and wait until it answers.

    Raises:
        EngineError: it ended, or did not answer within `config.start_s`; quotes the end of its log.
    """
    port = _free_port()
    arguments = server_arguments(folder, port, dtype=dtype, further=config.arguments)
    environment: Mapping[str, str] = _ENVIRONMENT | (_CPU_ENVIRONMENT if device == "cpu" else {})
    handle, name = tempfile.mkstemp(prefix="sanderling-vllm-", suffix=".log")
    with os.fdopen(handle, "wb") as log:
        process = subprocess.Popen(
            [config.python or sys.executable, "-m", "vllm.entrypoints.openai.api_server", *arguments],
            env=environment | os.environ,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    server = StartedServer(f"http://127.0.0.1:{port}", process, Path(name))
    try:
        _wait(server, config.start_s)
    except BaseException:
        server._end()
        raise
    return server


def _wait(server: StartedServer, limit_s: float) -> None:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if server.process.poll() is not None:
            raise EngineError(
                f"the vLLM server ended with {server.process.returncode} before it answered; the end of its log:\n"
                f"{_tail(server.log)}"
            )
        with suppress(httpx.HTTPError):
            if httpx.get(f"{server.url}/health", timeout=5.0).status_code == httpx.codes.OK:
                return
        time.sleep(0.5)
    raise EngineError(f"the vLLM server didn't answer within {limit_s} s; the end of its log:\n{_tail(server.log)}")


def _tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text("utf-8", "replace").splitlines()[-lines:])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
