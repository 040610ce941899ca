"""Sampling with a vLLM server: token ids out and in over HTTP, weights by way of a folder that both can read.

The server's answers are streamed token by token. So a push of weights need not wait for long actions: their streams are
closed, what was sampled so far is kept under the old version, and each action is continued under the new one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import httpx
import numpy as np
import torch
from safetensors.torch import load_file, save_file

from sanderling.engine.protocol import SampleRequest
from sanderling.engine.torch_model import load_model
from sanderling.engine.torch_sampler import check_params
from sanderling.engine.weights import fingerprint
from sanderling.errors import EngineError, WeightPushError
from sanderling.types import Action, FinishReason

MODEL = "policy"
"""Name under which the server serves the model."""

PROBE_TOKENS = 32
"""Tokens whose log-probabilities show which weights the server holds."""

_WEIGHTS = "model.safetensors"
_UINT64 = (1 << 63) - 1  # the server takes seeds of 64 bits, signed


class Server(Protocol):
    """Where the server is, and how it is ended."""

    @property
    def url(self) -> str: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that somebody else started and ends."""

    url: str

    async def close(self) -> None:
        return


@dataclass(slots=True, eq=False)
class _Growing:
    """An action while it is sampled, in one or several parts."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    finish: FinishReason | None = None


class VllmEngine:
    """Implements `Engine` over a vLLM server.

    Args:
        server: it must have been started with VLLM_SERVER_DEV_MODE=1 (reloading weights) and
            `--logprobs-mode processed_logprobs` (log-probabilities of what is drawn from).
        folder: the policy's Hugging Face folder; its weights are those that the server started with.
        weights_folder: pushed weights are written to it; the server reads them under the same path. None: a temporary one.
        dtype: of the server's weights, "float32", "bfloat16" or "float16".
        request_s: seconds without a token after which a request has failed.

    The fingerprint is that of the weight file that the server was told to read. As a server may answer such a request
    without doing anything, each push is followed by a probe: where other weights give the very same log-probabilities as
    before, the old fingerprint is reported, and the push fails.
    """

    def __init__(
        self, server: Server, *, folder: Path, weights_folder: Path | None, dtype: str, request_s: float = 600.0
    ) -> None:
        self._server = server
        self._folder = folder
        self._temporary: TemporaryDirectory[str] | None = None
        if weights_folder is None:
            self._temporary = TemporaryDirectory(prefix="sanderling-weights-")
            weights_folder = Path(self._temporary.name)
        self._weights_folder = weights_folder
        self._dtype = dtype
        self._client = httpx.AsyncClient(
            base_url=server.url,
            timeout=httpx.Timeout(request_s, connect=30.0, pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=256),
        )
        self._version = 0
        state = load_model(folder).state_dict()
        self._shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
        self._stored_as = _first_names(state)
        self._fingerprint = fingerprint(state, dtype)
        self._probed: list[float] | None = None  # under the weights now in use
        self._open = asyncio.Event()  # requests may be sent
        self._open.set()
        self._streams: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def policy_version(self) -> int:
        return self._version

    def fingerprint(self) -> str:
        return self._fingerprint

    def end_session(self, session: str) -> None:
        """Do nothing: the server's prefix cache forgets by itself what was not used for long."""

    async def generate(self, request: SampleRequest) -> Action:
        check_params(request.params)
        if len(request.context_ids) == 0:
            raise EngineError(f"the context of session {request.session!r} is empty; expected at least one token")
        growing = _Growing()
        while growing.finish is None:
            await self._open.wait()
            if self._closed:
                raise EngineError("the engine is closed; no action can be sampled any more")
            stream = asyncio.ensure_future(self._sample(request, growing))
            self._streams.add(stream)
            try:
                await stream
            except asyncio.CancelledError:
                # By a push it is the stream that is cancelled, and the action goes on; else it is we.
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    stream.cancel()
                    raise
                if self._closed:
                    raise EngineError("the engine was closed before the action was complete") from None
            finally:
                self._streams.discard(stream)
        return Action(
            token_ids=np.array(growing.token_ids, dtype=np.int32),
            rollout_logprobs=np.array(growing.logprobs, dtype=np.float32),
            policy_versions=np.array(growing.versions, dtype=np.int32),
            text="",
            finish_reason=growing.finish,
        )

    async def generate_many(self, requests: Sequence[SampleRequest]) -> list[Action]:
        answers = await asyncio.gather(*(self.generate(request) for request in requests), return_exceptions=True)
        actions: list[Action] = []
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            actions.append(answer)
        return actions

    async def update_weights(self, state: Mapping[str, Any], version: int) -> str:
        """Have the server read `state` (exactly the names and shapes of the model's `state_dict()`) between two tokens.

        Raises:
            WeightPushError: names or shapes don't fit, or the server can't read them.
            EngineError: the engine is closed, or the server is gone.
        """
        if self._closed:
            raise EngineError(f"the engine is closed; weights of version {version} were not loaded")
        await asyncio.to_thread(self._write, state)
        self._open.clear()
        try:
            await self._interrupt()
            if self._probed is None:
                self._probed = await self._probe()
            await self._reload()
            now, digest = await self._probe(), await asyncio.to_thread(self._digest)
            if digest == self._fingerprint or now != self._probed:
                self._fingerprint, self._probed, self._version = digest, now, version
        finally:
            self._open.set()
        return self._fingerprint

    async def close(self) -> None:
        self._closed = True
        self._open.set()
        for stream in list(self._streams):
            stream.cancel()
        await self._client.aclose()
        await self._server.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    # -- sampling

    async def _sample(self, request: SampleRequest, growing: _Growing) -> None:
        """Add tokens until the action is complete. Cancelled, it keeps those that came."""
        version = self._version
        done = len(growing.token_ids)
        params = request.params
        body = {
            "model": MODEL,
            "prompt": [*request.context_ids.tolist(), *growing.token_ids],
            "max_tokens": params.max_tokens - done,
            "temperature": params.temperature,
            "top_p": params.top_p if params.temperature > 0 else 1.0,
            "seed": (request.seed + done * 1_000_003) & _UINT64,
            "stop_token_ids": list(params.stop_token_ids),
            "ignore_eos": True,
            "logprobs": 0,
            "return_token_ids": True,
            "skip_special_tokens": False,
            "stream": True,
        }
        async for choice in self._choices(body, request.session):
            ids, logprobs = choice.get("token_ids") or [], (choice.get("logprobs") or {}).get("token_logprobs") or []
            if len(ids) != len(logprobs):
                raise EngineError(
                    f"the server answered session {request.session!r} with {len(ids)} token ids and {len(logprobs)} "
                    "log-probabilities; expected as many of both"
                )
            growing.token_ids += ids
            growing.logprobs += logprobs
            growing.versions += [version] * len(ids)
            if choice.get("finish_reason"):
                growing.finish = "stop" if growing.token_ids[-1] in params.stop_token_ids else "length"
        if growing.finish is None:
            raise EngineError(f"the server ended its answer to session {request.session!r} without a finish reason")

    async def _choices(self, body: Mapping[str, Any], session: str) -> AsyncGenerator[dict[str, Any]]:
        try:
            async with self._client.stream("POST", "/v1/completions", json=body) as reply:
                if reply.status_code != httpx.codes.OK:
                    text = (await reply.aread()).decode("utf-8", "replace")[:500]
                    raise EngineError(f"the server refused session {session!r} with {reply.status_code}: {text}")
                async for line in reply.aiter_lines():
                    data = line.removeprefix("data: ")
                    if data in (line, "[DONE]"):
                        continue
                    event = json.loads(data)
                    if "error" in event:
                        raise EngineError(f"the server failed in session {session!r}: {event['error']}")
                    for choice in event["choices"]:
                        yield choice
        except httpx.HTTPError as error:
            raise EngineError(
                f"the server at {self._server.url} didn't answer session {session!r}: {type(error).__name__} {error}"
            ) from error

    # -- weights

    def _write(self, state: Mapping[str, Any]) -> None:
        found = {name: tuple(tensor.shape) for name, tensor in state.items()}
        if found != self._shapes:
            names = found.keys() | self._shapes.keys()
            differing = sorted(name for name in names if found.get(name) != self._shapes.get(name))
            raise WeightPushError(
                f"the pushed weights differ from those of {self._folder} in names or shapes: {differing[:3]} "
                f"({len(differing)} in all); expected exactly those of the model's state_dict()"
            )
        self._weights_folder.mkdir(parents=True, exist_ok=True)
        dtype = getattr(torch, self._dtype)
        stored = {name: state[name].detach().to("cpu", dtype).contiguous() for name in set(self._stored_as.values())}
        partial = self._weights_folder / f".{_WEIGHTS}"
        save_file(stored, partial, metadata={"format": "pt"})
        partial.replace(self._weights_folder / _WEIGHTS)
        for file in self._folder.glob("*.json"):
            if not file.name.endswith(".index.json"):
                (self._weights_folder / file.name).write_bytes(file.read_bytes())

    def _digest(self) -> str:
        """Return the fingerprint of the weight file, under the names of the model."""
        stored = load_file(self._weights_folder / _WEIGHTS)
        return fingerprint({name: stored[place] for name, place in self._stored_as.items()}, self._dtype)

    async def _interrupt(self) -> None:
        """Close all streams; their actions keep what came and wait to go on."""
        streams = list(self._streams)
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)

    async def _reload(self) -> None:
        arguments = {"method": "reload_weights", "kwargs": {"weights_path": str(self._weights_folder)}}
        await self._post("/collective_rpc", arguments)
        await self._post("/reset_prefix_cache", None)

    async def _post(self, path: str, body: Any) -> None:
        try:
            reply = await self._client.post(path, json=body)
        except httpx.HTTPError as error:
            raise EngineError(f"the server at {self._server.url} didn't answer {path}: {error!r}") from error
        if reply.status_code != httpx.codes.OK:
            raise WeightPushError(
                f"the server answered {path} with {reply.status_code}: {reply.text[:500]}; it has to be started with "
                "VLLM_SERVER_DEV_MODE=1 and must be able to read the weights folder"
            )

    async def _probe(self) -> list[float]:
        """Return log-probabilities of the server's own greedy continuation of a fixed context."""
        body = {
            "model": MODEL,
            "prompt": [1, 2, 3],
            "max_tokens": PROBE_TOKENS,
            "temperature": 0.0,
            "ignore_eos": True,
            "logprobs": 0,
            "return_token_ids": True,
            "stream": True,
        }
        found: list[float] = []
        async for choice in self._choices(body, "probe"):
            found += (choice.get("logprobs") or {}).get("token_logprobs") or []
        return found


def _first_names(state: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Return for each name the first one with the same storage: tied weights are written once."""
    first: dict[int, str] = {}
    return {name: first.setdefault(tensor.data_ptr(), name) for name, tensor in state.items()}
