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

from sanderling.engine.protocol import SampleRequest
from sanderling.engine.torch_sampler import check_params
from sanderling.engine.vllm_config import SERVED_MODEL
from sanderling.engine.vllm_weights import WeightsFolder, trial_difference
from sanderling.errors import EngineError, WeightPushError
from sanderling.types import Action, FinishReason

PROBE_TOKENS = 32
"""Tokens whose log-probabilities show which weights the server holds."""

_EMPTY_S = 60.0
_PROBE_CONTEXT = (1, 2, 3)
_TRIAL_BOUND = {"float32": 1e-2, "bfloat16": 0.1, "float16": 0.1}  # nats; rounding alone makes it a tenth of that
_UINT64 = (1 << 63) - 1  # the server takes seeds of 64 bits, signed


class Server(Protocol):
    """Where the server is, and how it is ended."""

    @property
    def url(self) -> str: ...

    async def start(self) -> None:
        """Return once it answers."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that somebody else started and ends."""

    url: str

    async def start(self) -> None:
        return

    async def close(self) -> None:
        return


@dataclass(slots=True, eq=False)
class _Growing:
    """An action while it is sampled, in one or several parts."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    finish: FinishReason | None = None


@dataclass(slots=True)
class _Probe:
    """A greedy continuation of the probe's context."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class VllmEngine:
    """Implements `Engine` over a vLLM server.

    Args:
        server: it must have been started with VLLM_SERVER_DEV_MODE=1 (reloading weights) and
            `--logprobs-mode processed_logprobs` (log-probabilities of what is drawn from).
        folder: the policy's Hugging Face folder. Without `start`, the server must hold its weights already.
        weights_folder: weights are written to it; the server reads them under the same path. None: a temporary one.
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
        self._temporary: TemporaryDirectory[str] | None = None
        if weights_folder is None:
            self._temporary = TemporaryDirectory(prefix="sanderling-weights-")
            weights_folder = Path(self._temporary.name)
        self._weights = WeightsFolder(weights_folder, source=folder, dtype=dtype)
        self._dtype = dtype
        self._client = httpx.AsyncClient(
            base_url=server.url,
            timeout=httpx.Timeout(request_s, connect=30.0, pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=256),
        )
        self._version = 0
        self._fingerprint = self._weights.source_fingerprint
        self._probed: _Probe | None = None  # under the weights now in use
        self._open = asyncio.Event()  # requests may be sent
        self._open.set()
        self._streams: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def policy_version(self) -> int:
        return self._version

    def fingerprint(self) -> str:
        return self._fingerprint

    async def start(self) -> None:
        """Have the server start, where it is ours, and see by a trial that pushed weights reach it whole.

        Afterwards it holds the policy's weights, whatever it held before.

        Raises:
            EngineError: it doesn't start, or doesn't answer.
            WeightPushError: a push leaves out some of the weights.
        """
        await asyncio.to_thread(self._weights.write_source)
        await self._server.start()
        await self._try_a_push()

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
        await asyncio.to_thread(self._weights.write, state)
        self._open.clear()
        try:
            await self._interrupt()
            if self._probed is None:
                self._probed = await self._probe()
            await self._reload()
            now, digest = await self._probe(), await asyncio.to_thread(self._weights.digest)
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
            "model": SERVED_MODEL,
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

    async def _interrupt(self) -> None:
        """Close all streams; their actions keep what came and wait to go on."""
        streams = list(self._streams)
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)

    async def _reload(self) -> None:
        arguments = {"method": "reload_weights", "kwargs": {"weights_path": str(self._weights.path)}}
        await self._post("/collective_rpc", arguments)
        # A request whose stream was closed holds its part of the cache until the server notices; until then the cache, which
        # is that of the old weights, is not emptied.
        end = asyncio.get_running_loop().time() + _EMPTY_S
        while (await self._post("/reset_prefix_cache", None)).get("success") is False:
            if asyncio.get_running_loop().time() > end:
                raise WeightPushError(
                    f"the server at {self._server.url} could not empty its prefix cache within {_EMPTY_S:.0f} s, so old keys "
                    "and values could be used under new weights; expected that nobody else sends it requests"
                )
            await asyncio.sleep(0.02)

    async def _post(self, path: str, body: Any) -> dict[str, Any]:
        try:
            reply = await self._client.post(path, json=body)
        except httpx.HTTPError as error:
            raise EngineError(f"the server at {self._server.url} didn't answer {path}: {error!r}") from error
        if reply.status_code != httpx.codes.OK:
            raise WeightPushError(
                f"the server answered {path} with {reply.status_code}: {reply.text[:500]}; it has to be started with "
                "VLLM_SERVER_DEV_MODE=1 and must be able to read the weights folder"
            )
        return reply.json() if reply.content else {}

    async def _probe(self) -> _Probe:
        """Return the server's own greedy continuation of a fixed context."""
        body = {
            "model": SERVED_MODEL,
            "prompt": list(_PROBE_CONTEXT),
            "max_tokens": PROBE_TOKENS,
            "temperature": 0.0,
            "ignore_eos": True,
            "logprobs": 0,
            "return_token_ids": True,
            "stream": True,
        }
        found = _Probe()
        async for choice in self._choices(body, "probe"):
            found.token_ids += choice.get("token_ids") or []
            found.logprobs += (choice.get("logprobs") or {}).get("token_logprobs") or []
        return found

    async def _try_a_push(self) -> None:
        """Push weights that differ in every tensor, compare with a forward pass of ours, and push the policy's own."""
        model = await asyncio.to_thread(self._weights.write_trial)
        await self._reload()
        probe = await self._probe()
        difference = await asyncio.to_thread(trial_difference, model, _PROBE_CONTEXT, probe.token_ids, probe.logprobs)
        del model
        if not difference <= _TRIAL_BOUND[self._dtype]:
            raise WeightPushError(
                f"after a trial push in which every weight was changed, the server's log-probabilities differ by "
                f"{difference:.3g} nats from those of the pushed weights; expected at most {_TRIAL_BOUND[self._dtype]}. It "
                f"keeps some of the old weights, or samples otherwise. Start it with the model {self._weights.path}, where "
                "tied weights are written twice, and with --logprobs-mode processed_logprobs --generation-config vllm and "
                f"--dtype {self._dtype}"
            )
        await asyncio.to_thread(self._weights.write_source)
        await self._reload()
        self._probed = await self._probe()
