"""One command without isolation: a leader process that adopts what the command leaves behind and kills it."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from sanderling.errors import SandboxLost
from sanderling.sandbox.command_results import cpu_limit
from sanderling.sandbox.launcher.wire import memory_file
from sanderling.sandbox.output import Streams
from sanderling.sandbox.protocol import Command
from sanderling.types import Limits

_MIB = 1 << 20
_GRACE_S = 5.0
_BOOT = "import sys; sys.path[:0] = [{directory!r}]; from launcher import local_leader; local_leader.main()"


class LocalCommand:
    """Starts a leader for one command and waits for its answer."""

    def __init__(
        self, argv: list[str], command: Command, limits: Limits, environment: dict[str, str], workspace: Path
    ) -> None:
        self._timeout_s = limits.command_s if command.timeout_s is None else command.timeout_s
        self._request = {
            "argv": argv,
            "env": environment,
            "cwd": os.path.normpath(workspace / command.cwd),
            "timeout_s": self._timeout_s,
            "limits": _resource_limits(limits, limits.command_cpu_s if command.cpu_s is None else command.cpu_s),
        }

    async def run(self, streams: Streams) -> dict[str, Any]:
        """Return the leader's answer, for `judged_led`.

        Raises:
            SandboxLost: the leader failed.
        """
        reader, writer = os.pipe()
        request = memory_file(json.dumps(self._request).encode(), "request")
        try:
            process = self._start(streams, request, writer)
        finally:
            os.close(request)
            os.close(writer)
            streams.close_theirs()
        try:
            answer = await asyncio.wait_for(_read_all(reader), self._timeout_s + _GRACE_S)
        except TimeoutError as error:
            raise SandboxLost(f"the leader of a command didn't end {_GRACE_S} s after its limit") from error
        finally:
            os.close(reader)
            process.send_signal(signal.SIGTERM)  # a leader that is done is gone; one that isn't kills its command
            await asyncio.to_thread(process.wait)
        if not answer:
            return {"exit_code": 137, "timed_out": False}  # the command killed its own leader
        return json.loads(answer)

    def _start(self, streams: Streams, request: int, writer: int) -> subprocess.Popen[bytes]:
        boot = _BOOT.format(directory=str(Path(__file__).parent))
        stdin, stdout, stderr = streams.theirs
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", boot, str(request), str(writer)],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=(request, writer),
            env={},
            cwd="/",
            start_new_session=True,
        )


async def _read_all(fd: int) -> bytes:
    loop = asyncio.get_running_loop()
    os.set_blocking(fd, False)
    content = b""
    while True:
        readable: asyncio.Future[None] = loop.create_future()
        loop.add_reader(fd, lambda done=readable: done.done() or done.set_result(None))
        try:
            await readable
        finally:
            loop.remove_reader(fd)
        chunk = os.read(fd, 65_536)
        if not chunk:
            return content
        content += chunk


def _resource_limits(limits: Limits, cpu_s: float) -> list[tuple[int, int, int]]:
    """Return (kind, soft, hard) triples; the number of processes isn't among them, since the kernel counts a user's."""
    memory = limits.memory_mb * _MIB
    return [
        (resource.RLIMIT_CORE, 0, 0),
        *cpu_limit(cpu_s),
        (resource.RLIMIT_DATA, memory, memory),
        (resource.RLIMIT_FSIZE, limits.disk_mb * _MIB, limits.disk_mb * _MIB),
    ]
