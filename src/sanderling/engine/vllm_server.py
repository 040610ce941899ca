"""Starting a vLLM server of our own and ending it."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import httpx

from sanderling.engine import vllm_guard
from sanderling.engine.vllm_config import SERVED_MODEL, VllmConfig
from sanderling.errors import EngineError

# Reloading weights is one of the routes that vLLM shows in this mode alone.
_ENVIRONMENT = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1"}
# Read by vLLM's CPU build alone: no binding to cores that others use too, and a small cache.
_CPU_ENVIRONMENT = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"}


class StartedServer:
    """A server process of ours on a free port of the loopback interface.

    It ends with this process, however that ends (see `vllm_guard`). Its log lies in a temporary folder that goes with it, as
    do the weights that it is started with and those that are pushed to it, unless the configuration names a place for them.

    Args:
        config: interpreter, further arguments and the time that a start may take.
        dtype: of the weights, "float32", "bfloat16" or "float16".
        device: "cpu", or "cuda".
    """

    def __init__(self, config: VllmConfig, *, dtype: str, device: str) -> None:
        self._config = config
        self._place = Path(tempfile.mkdtemp(prefix="sanderling-vllm-"))
        self._log = self._place / "server.log"
        self.weights_folder = Path(config.weights_folder) if config.weights_folder else self._place / "weights"
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        arguments = server_arguments(self.weights_folder, port, dtype=dtype, further=config.arguments)
        self._command = [config.python or sys.executable, "-m", "vllm.entrypoints.openai.api_server", *arguments]
        self._environment: Mapping[str, str] = _ENVIRONMENT | (_CPU_ENVIRONMENT if device == "cpu" else {})
        self._guard: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            EngineError: it ended, or did not answer within `config.start_s`; quotes the end of its log.
        """
        with self._log.open("wb") as log:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", vllm_guard.__file__, str(self._place), *self._command],
                env=self._environment | os.environ,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            await asyncio.wait_for(self._answer(self._guard), self._config.start_s)
        except TimeoutError:
            raise EngineError(
                f"the vLLM server didn't answer within {self._config.start_s} s; raise engine.vllm.start_s or mend what the "
                f"end of its log says:\n{_tail(self._log)}"
            ) from None

    async def close(self) -> None:
        await asyncio.to_thread(self._end)

    async def _answer(self, guard: subprocess.Popen[bytes]) -> None:
        async with httpx.AsyncClient(timeout=5.0) as client:
            while True:
                if guard.poll() is not None:
                    raise EngineError(
                        f"the vLLM server ended with {guard.returncode} before it answered; the end of its log:\n"
                        f"{_tail(self._log)}"
                    )
                with suppress(httpx.HTTPError):
                    if (await client.get(f"{self.url}/health")).status_code == httpx.codes.OK:
                        return
                await asyncio.sleep(0.5)

    def _end(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None and guard.stdin is not None:
            guard.stdin.close()
            with suppress(subprocess.TimeoutExpired):  # a process that no signal ends; the guard goes on trying
                guard.wait(2 * vllm_guard.END_S + 5.0)
        shutil.rmtree(self._place, ignore_errors=True)


def server_arguments(folder: Path, port: int, *, dtype: str, further: Sequence[str]) -> list[str]:
    """Return the arguments of `python -m vllm.entrypoints.openai.api_server`."""
    return [
        *("--model", str(folder), "--served-model-name", SERVED_MODEL, "--dtype", dtype),
        *("--host", "127.0.0.1", "--port", str(port)),
        # What is recorded must be the log-probabilities of the distribution that is drawn from.
        *("--logprobs-mode", "processed_logprobs"),
        # A folder may hold a generation_config.json, whose settings would change what is drawn.
        *("--generation-config", "vllm"),
        *further,
    ]


def _tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text("utf-8", "replace").splitlines()[-lines:])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
