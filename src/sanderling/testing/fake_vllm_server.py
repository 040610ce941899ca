"""A small HTTP server that speaks the part of vLLM's interface that the engine "vllm" uses, over a real tiny model.

For machines without vLLM. It samples with the built-in engine, one token per request to it, so that a stream can be closed
anywhere. Where it was compared with vLLM 0.32 on a CPU, it does as that does: a tied output head stays as it was when weights
are read again, and the prefix cache is not emptied while a request runs. Example::

    WeightsFolder(weights, source=folder, dtype="float32").write_source()
    with FakeVllmServer(weights) as server:
        engine = VllmEngine(RunningServer(server.url), folder=folder, weights_folder=weights, dtype="float32")

`write_interpreter` makes a program that stands for an interpreter with vLLM, for tests that start a server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np


class FakeVllmServer:
    """Serves one policy folder on a free port of the loopback interface, from a thread of its own.

    `ignores_pushes`: it answers requests to reload weights without doing so, as versions of the real one did.
    """

    def __init__(self, folder: Path, *, port: int = 0, ignores_pushes: bool = False) -> None:
        self._folder = folder
        self._port = port
        self._ignores_pushes = ignores_pushes
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-vllm", daemon=True)
        self._requests = 0
        self._running = 0
        self.closed_streams = 0
        """Answers whose reader went away before their end."""

    def __enter__(self) -> Self:
        self._thread.start()
        port = asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()
        self.url = f"http://127.0.0.1:{port}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    async def close(self) -> None:
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _open(self) -> int:
        from sanderling.engine.torch_engine import TorchEngine
        from sanderling.engine.torch_model import load_model

        self._model = load_model(self._folder)
        self._tied = bool(self._model.config.tie_word_embeddings)
        if self._tied:  # its head is a copy of the embeddings as they are now, and stays that
            self._model.lm_head.weight = type(self._model.lm_head.weight)(self._model.lm_head.weight.detach().clone())
        self._engine = TorchEngine(self._model, max_batch=8, threads=1)
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        return self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        await self._engine.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            _, path, _ = head.split(" ", 2)
            headers = dict(line.lower().split(": ", 1) for line in head.splitlines()[1:] if ": " in line)
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            await self._answer(path, json.loads(body) if body not in (b"", b"null") else {}, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.closed_streams += 1
        finally:
            with suppress(ConnectionError):
                writer.close()

    async def _answer(self, path: str, body: Mapping[str, Any], writer: asyncio.StreamWriter) -> None:
        if path == "/v1/completions":
            if len(body["prompt"]) + body["max_tokens"] > self._model.config.max_position_embeddings:
                writer.write(
                    _head(400) + _error("the prompt and the tokens asked for are more than the maximum context length")
                )
                return
            writer.write(_head(200, "text/event-stream"))
            await self._complete(body, writer)
        elif path == "/collective_rpc":
            writer.write(await self._reload(body))
        elif path == "/reset_prefix_cache":
            writer.write(_head(200) + json.dumps({"success": not self._running}).encode())
        else:
            writer.write(_head(200 if path == "/health" else 404))
        await writer.drain()

    async def _complete(self, body: Mapping[str, Any], writer: asyncio.StreamWriter) -> None:
        from sanderling.engine.protocol import SampleRequest, SamplingParams

        self._requests += 1
        self._running += 1
        context, session = list(body["prompt"]), f"request {self._requests}"
        params = SamplingParams(temperature=body["temperature"], top_p=body.get("top_p", 1.0), max_tokens=1)
        try:
            for position in range(body["max_tokens"]):
                request = SampleRequest(
                    session=session,
                    context_ids=np.array(context, dtype=np.int32),
                    params=params,
                    seed=body.get("seed", 0) * 1009 + position,
                )
                action = await self._engine.generate(request)
                token = int(action.token_ids[0])
                context.append(token)
                stop = token in body.get("stop_token_ids", ())
                last = stop or position + 1 == body["max_tokens"]
                choice = {
                    "token_ids": [token],
                    "logprobs": {"token_logprobs": [float(action.rollout_logprobs[0])]},
                    "finish_reason": ("stop" if stop else "length") if last else None,
                }
                writer.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
                await writer.drain()
                if last:
                    break
            writer.write(b"data: [DONE]\n\n")
        finally:
            self._running -= 1
            self._engine.end_session(session)

    async def _reload(self, body: Mapping[str, Any]) -> bytes:
        from safetensors.torch import load_file

        file = Path(body.get("kwargs", {}).get("weights_path", "")) / "model.safetensors"
        if body["method"] != "reload_weights" or not file.is_file():
            return _head(500) + _error(f"Call to collective_rpc method failed: {body}")
        if not self._ignores_pushes:
            found = load_file(file)
            if self._tied:
                found.pop("lm_head.weight", None)
            await self._engine.update_weights(dict(self._model.state_dict()) | found, self._engine.policy_version + 1)
            self._forget()
        return _head(200) + json.dumps({"results": [None]}).encode()

    def _forget(self) -> None:
        for number in range(1, self._requests + 1):
            self._engine.end_session(f"request {number}")


def _head(status: int, kind: str = "application/json") -> bytes:
    return f"HTTP/1.1 {status} -\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n".encode()


def _error(message: str) -> bytes:
    return json.dumps({"error": {"message": message}}).encode()


def write_interpreter(path: Path) -> Path:
    """Write a program that takes the arguments of an interpreter with vLLM and serves with `FakeVllmServer`; return it."""
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m sanderling.testing.fake_vllm_server "$@"\n')
    path.chmod(0o755)
    return path


def main() -> None:
    """Serve as the arguments of `vllm.entrypoints.openai.api_server` say, until a signal comes."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("-m", dest="module", choices=["vllm.entrypoints.openai.api_server"], required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    for name in ("--served-model-name", "--dtype", "--host", "--logprobs-mode", "--generation-config"):
        parser.add_argument(name, required=True)
    found = parser.parse_args()
    with FakeVllmServer(found.model, port=found.port):
        threading.Event().wait()


if __name__ == "__main__":
    main()
