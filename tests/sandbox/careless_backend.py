"""A backend that makes the classical mistakes, as negative control: the conformance suite has to catch every one of them.

It passes on its environment and descriptors, kills only the direct child at a limit, keeps all output, follows links, and
contains nothing.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sanderling.sandbox.protocol import Capabilities, Command, ExecResult, Sandbox, SandboxSpec, Start
from sanderling.types import Submission


class CarelessBackend:
    """Claims to isolate with namespaces; `open_risks` and `usable` as given."""

    def __init__(self, open_risks: tuple[str, ...] = (), usable: bool = True) -> None:
        self.open_risks, self.usable = open_risks, usable

    def probe(self) -> Capabilities:
        missing = () if self.usable else ("a machine: buy one",)
        return Capabilities(
            name="careless",
            mode="plain",
            isolation="namespaces",
            usable=self.usable,
            open_risks=self.open_risks,
            missing=missing,
        )

    async def create(self, spec: SandboxSpec) -> Sandbox:
        sandbox = CarelessSandbox(spec)
        for path, content in spec.files.items():
            await sandbox.write_file(path, content)
        return sandbox

    async def close(self) -> None:
        return None


class CarelessSandbox:
    def __init__(self, spec: SandboxSpec) -> None:
        self.spec = spec
        self.id = tempfile.mkdtemp(prefix="sanderling-careless-")
        self.top = Path(self.id)

    async def exec(self, command: Command) -> ExecResult:
        timed_out = False
        with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            stdin.write(command.stdin)
            stdin.seek(0)
            process = await asyncio.create_subprocess_exec(
                *command.argv, cwd=self.top / command.cwd, stdin=stdin, stdout=stdout, stderr=stderr, close_fds=False
            )
            try:
                await asyncio.wait_for(process.wait(), command.timeout_s or self.spec.limits.command_s)
            except TimeoutError:
                process.kill()
                await process.wait()
                timed_out = True
            stdout.seek(0)
            stderr.seek(0)
            out, err = stdout.read(), stderr.read()
        code = process.returncode or 0
        return ExecResult(
            exit_code=128 - code if code < 0 else code,
            stdout=out,
            stderr=err,
            timed_out=timed_out,
            omitted_bytes=0,
            duration_s=0.0,
        )

    async def read_file(self, path: str, max_bytes: int = 1_048_576) -> bytes:
        return (self.top / path).read_bytes()

    async def write_file(self, path: str, content: bytes) -> None:
        (self.top / path).parent.mkdir(parents=True, exist_ok=True)
        (self.top / path).write_bytes(content)

    async def list_files(self) -> tuple[str, ...]:
        return tuple(os.listdir(self.top))  # noqa: PTH208

    async def state_key(self) -> str:
        return str(os.stat(self.top).st_mtime_ns)  # noqa: PTH116

    async def fork(self) -> Sandbox:
        return self

    async def submission(self, editable: Sequence[str], max_bytes: int = 1_048_576) -> Submission:
        return Submission(files={path: await self.read_file(path) for path in await self.list_files()})

    async def destroy(self) -> None:
        shutil.rmtree(self.top, ignore_errors=True)


class SharingBackend(CarelessBackend):
    """Runs the warm scripts of a sandbox one after another in the same interpreter."""

    async def create(self, spec: SandboxSpec) -> Sandbox:
        return SharingSandbox(spec)


class SharingSandbox(CarelessSandbox):
    def __init__(self, spec: SandboxSpec) -> None:
        super().__init__(spec)
        self.warm = 0

    async def exec(self, command: Command) -> ExecResult:
        script = self.spec.readonly["script.py"].decode()
        if command.start is Start.WARM:
            self.warm += 1
            script = f"for _ in range({self.warm}): exec({script!r})"
        argv = (*command.argv[:3], "-c", script, *command.argv[4:])
        return await super().exec(dataclasses.replace(command, argv=argv))


class SuicidalBackend(CarelessBackend):
    """A command takes its runner along: what an attack that reaches the suite itself looks like."""

    async def create(self, spec: SandboxSpec) -> Sandbox:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("alive after SIGKILL")
