"""The conversation with the first process of a container, over the streams of the engine's attached client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from sanderling.errors import UnsafePath
from sanderling.sandbox.head_and_tail import HeadAndTail

_LINE_BYTES = 1 << 20
_WORDS_BYTES = 4096  # kept of what the client says on its standard error
_END_S = 15.0
_LEAVE_S = 3.0  # then a client that hangs is killed
_PACKAGES = ("sanderling", "sanderling.sandbox", "sanderling.sandbox.launcher")
# in the order of their imports; the last one is run
_MODULES = (
    "errors",
    "sandbox.safe_files",
    "sandbox.digests",
    "sandbox.head_and_tail",
    "sandbox.launcher.session_init",
    "sandbox.container_files",
    "sandbox.container_init",
)

# What the container is started with. It takes its modules from its input and runs the last one.
BOOT = """
import json, sys, types
if sys.version_info < (3, 11):
    sys.exit("the image's Python is " + sys.version.split()[0] + "; 3.11 or newer is needed")
source = open(0, "rb", buffering=0, closefd=False)
left, parts = int(source.readline() or 0), []
while left:
    parts.append(source.read(left))
    left -= len(parts[-1])
    if not parts[-1]:
        sys.exit("the input ended before there was anything to run")
for name, text in json.loads(b"".join(parts) or b"{}").items():
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = []
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)
    exec(compile(text, name, "exec"), module.__dict__)
module.main()
"""


class ChannelLost(Exception):
    """The container's first process doesn't answer any more; the message holds what is known about it."""


class OperationFailed(Exception):
    """The first process couldn't do what was asked, because of the state of the workspace or the container."""


@cache
def modules() -> bytes:
    """Return what the boot program reads: a length, and the sources of the modules in the order of their imports."""
    top = Path(__file__).parent.parent
    sources = dict.fromkeys(_PACKAGES, "")
    for name in _MODULES:
        sources[f"sanderling.{name}"] = (top / f"{name.replace('.', '/')}.py").read_text()
    content = json.dumps(sources).encode()
    return b"%d\n" % len(content) + content


class ContainerChannel:
    """Sends one request at a time. `hello` is what the first process said when it was ready."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._words = HeadAndTail(_WORDS_BYTES)
        self._listening = asyncio.create_task(self._listen())
        self._busy: asyncio.Task[Any] | None = None
        self._lost = ""
        self.hello: dict[str, Any] = {}

    @classmethod
    async def open(cls, argv: Sequence[str], directory: Path, limit_s: float) -> ContainerChannel:
        """Start the engine's client, in a directory of ours, and wait until the first process is ready.

        Raises:
            ChannelLost: it didn't come up; the message is the engine's.
        """
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES,
            cwd=directory,  # some engines leave notes in it
            start_new_session=True,  # an interrupt of the terminal isn't passed on to the container
        )
        channel = cls(process)
        try:
            await asyncio.wait_for(channel._shake_hands(), limit_s)
        except TimeoutError:
            await channel.close()
            raise ChannelLost(f"the container wasn't ready within {limit_s:g} s; {channel.words}") from None
        except BaseException:
            await channel.close()
            raise
        return channel

    async def _shake_hands(self) -> None:
        await self._send(modules())
        self.hello, _ = await self._receive()

    @property
    def words(self) -> str:
        """What the client said on its standard error."""
        text = " ".join(self._words.kept.decode(errors="replace").split())
        return text or "it said nothing"

    @property
    def lost(self) -> str:
        """Why no request can be sent any more; empty while one can."""
        return self._lost

    async def request(
        self, fields: dict[str, Any], blob: bytes = b"", *, limit_s: float
    ) -> tuple[dict[str, Any], bytes]:
        """Send a request and return its answer.

        Raises:
            UnsafePath, OperationFailed: as the first process answered. ChannelLost: it didn't answer.
        """
        talk = asyncio.create_task(self._talk([(fields, blob)]))
        [(answer, content)] = await self._finish(talk, limit_s)
        return _checked(answer), content

    async def send_many(
        self, fields: dict[str, Any], entries: Sequence[tuple[dict[str, Any], bytes]], *, limit_s: float
    ) -> None:
        """Send a request that is followed by entries, and wait for its answer."""
        messages = [(fields, b""), *(({"entry": record}, content) for record, content in entries)]
        [(answer, _)] = await self._finish(asyncio.create_task(self._talk(messages)), limit_s)
        _checked(answer)

    async def receive_many(self, fields: dict[str, Any], *, limit_s: float) -> list[tuple[dict[str, Any], bytes]]:
        """Send a request that is answered by any number of entries, and return them."""
        talk = asyncio.create_task(self._talk([(fields, b"")], until_end=True))
        *entries, (last, _) = await self._finish(talk, limit_s)
        _checked(last)
        return [(answer["entry"], content) for answer, content in entries]

    async def _finish(
        self, talk: asyncio.Task[list[tuple[dict[str, Any], bytes]]], limit_s: float
    ) -> list[tuple[dict[str, Any], bytes]]:
        """Wait for an exchange; whatever interrupts it, what runs inside is dead when we go on, or the channel is lost."""
        self._busy = talk
        try:
            return await asyncio.wait_for(asyncio.shield(talk), limit_s)
        except TimeoutError:
            self._lost = f"no answer within {limit_s:g} s"
            raise ChannelLost(self._lost) from None
        except asyncio.CancelledError:
            with contextlib.suppress(ChannelLost, TimeoutError):
                await self._send(b'{"op": "kill", "size": 0}\n')
                await asyncio.wait_for(asyncio.shield(talk), _END_S)
            raise
        finally:
            if not talk.done():
                self._lost = self._lost or "a request was left unanswered"
                talk.cancel()
            await asyncio.gather(talk, return_exceptions=True)

    async def _talk(
        self, messages: Sequence[tuple[dict[str, Any], bytes]], *, until_end: bool = False
    ) -> list[tuple[dict[str, Any], bytes]]:
        if self._lost:
            raise ChannelLost(self._lost)
        for fields, blob in messages:
            await self._send(json.dumps({**fields, "size": len(blob)}).encode() + b"\n" + blob)
        answers = [await self._receive()]
        while until_end and "entry" in answers[-1][0]:
            answers.append(await self._receive())
        return answers

    async def _send(self, content: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(content)
            await self._process.stdin.drain()
        except (ConnectionError, RuntimeError) as error:
            await self._fail(f"the container's input is closed ({error})")

    async def _receive(self) -> tuple[dict[str, Any], bytes]:
        assert self._process.stdout is not None
        try:
            line = await self._process.stdout.readuntil(b"\n")
            answer = json.loads(line)
            return answer, await self._process.stdout.readexactly(answer["size"])
        except asyncio.IncompleteReadError:
            await self._fail("the container's output ended")
        except (ValueError, KeyError, asyncio.LimitOverrunError) as error:
            await self._fail(f"the container answered what isn't an answer ({error})")
        raise AssertionError("unreachable")

    async def _fail(self, why: str) -> None:
        with contextlib.suppress(TimeoutError):  # what the client says about it comes a moment later
            await asyncio.wait_for(asyncio.shield(self._listening), 2.0)
        self._lost = f"{why}; {self.words}"
        raise ChannelLost(self._lost)

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(_WORDS_BYTES):
            self._words.add(chunk)

    async def close(self) -> None:
        """End the conversation and the client, and wait for it. The container has to be removed by its name."""
        self._lost = self._lost or "the sandbox was destroyed"
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _LEAVE_S)
        except TimeoutError:
            os.kill(self._process.pid, signal.SIGKILL)  # not `Process.kill`, which may reap it before its watcher does
            await self._process.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._drain(), _END_S)

    async def _drain(self) -> None:
        """Read what nobody asked for any more, so that the pipes are closed."""
        assert self._process.stdout is not None
        while await self._process.stdout.read(_WORDS_BYTES):
            pass
        await self._listening


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    if "unsafe" in answer:
        raise UnsafePath(answer["unsafe"])
    if "failed" in answer:
        raise OperationFailed(answer["failed"])
    return answer
