"""Sandbox backends with something between them and the verifier: to watch, to move the clock, to break things.

A verifier gets its sandboxes from the backend that it is handed, so that any verifier can be examined in this way without its
help.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sanderling.errors import SandboxLost, UnsafePath
from sanderling.sandbox.protocol import Capabilities, Command, ExecResult, Sandbox, SandboxBackend, SandboxSpec
from sanderling.types import Submission

_CLOCK = Path(__file__).with_name("shifted_clock.py").read_bytes()
_CLOCK_TOOLS = {
    "shifted_clock.py": _CLOCK,
    "clock/shifted_clock.py": _CLOCK,
    "clock/sitecustomize.py": b"import shifted_clock\nshifted_clock.from_environment()\n",
}
_DAYS = "SHIFTED_CLOCK_DAYS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tap:
    """What happens to everything that passes between a verifier and its sandboxes. Each may raise in place of an answer."""

    spec: Callable[[SandboxSpec], SandboxSpec] = lambda spec: spec
    command: Callable[[SandboxSpec, Command], Command] = lambda spec, command: command
    result: Callable[[ExecResult], ExecResult] = lambda result: result
    content: Callable[[str, bytes], bytes] = lambda path, content: content


class TappedBackend:
    """Implements `SandboxBackend` on another backend, with a tap; probes it once. Closing it leaves the other one open."""

    def __init__(self, inner: SandboxBackend, tap: Tap) -> None:
        self._inner = inner
        self._tap = tap
        self._probed: Capabilities | None = None

    def probe(self) -> Capabilities:
        self._probed = self._probed or self._inner.probe()
        return self._probed

    async def create(self, spec: SandboxSpec) -> Sandbox:
        spec = self._tap.spec(spec)
        return _TappedSandbox(await self._inner.create(spec), spec, self._tap)

    async def close(self) -> None:
        """Leave the other backend alone: it isn't ours."""


class _TappedSandbox:
    def __init__(self, inner: Sandbox, spec: SandboxSpec, tap: Tap) -> None:
        self.id = inner.id
        self._inner = inner
        self._spec = spec
        self._tap = tap

    async def exec(self, command: Command) -> ExecResult:
        return self._tap.result(await self._inner.exec(self._tap.command(self._spec, command)))

    async def read_file(self, path: str, max_bytes: int = 1_048_576) -> bytes:
        return self._tap.content(path, await self._inner.read_file(path, max_bytes))

    async def write_file(self, path: str, content: bytes) -> None:
        await self._inner.write_file(path, content)

    async def list_files(self) -> tuple[str, ...]:
        return await self._inner.list_files()

    async def state_key(self) -> str:
        return await self._inner.state_key()

    async def fork(self) -> Sandbox:
        return _TappedSandbox(await self._inner.fork(), self._spec, self._tap)

    async def submission(self, editable: Sequence[str], max_bytes: int = 1_048_576) -> Submission:
        return await self._inner.submission(editable, max_bytes)

    async def destroy(self) -> None:
        await self._inner.destroy()


@dataclass(slots=True)
class Watched:
    """Everything that a verifier sent into sandboxes and got back, in order."""

    specs: list[SandboxSpec] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    results: list[ExecResult] = field(default_factory=list)

    def tap(self) -> Tap:
        def spec(value: SandboxSpec) -> SandboxSpec:
            self.specs.append(value)
            return value

        def command(_: SandboxSpec, value: Command) -> Command:
            self.commands.append(value)
            return value

        def result(value: ExecResult) -> ExecResult:
            self.results.append(value)
            return value

        return Tap(spec=spec, command=command, result=result)

    def requests(self) -> tuple[bytes, ...]:
        """Return what commands were given to read."""
        return tuple(command.stdin for command in self.commands)

    def said(self) -> str:
        """Return the ends of all output, for people and for telling causes apart."""
        parts = [part[-20_000:] for result in self.results for part in (result.stdout, result.stderr)]
        return b"\n".join(parts).decode("utf-8", "replace")


def shifted_clock(days: float) -> Tap:
    """Return a tap that moves the wall clock of Python programs in the sandbox by so many days; other clocks stay.

    Scripts of the verifier at /tools start through one that moves `time` and `datetime` first; other Python programs get it
    through PYTHONPATH, unless they run isolated. Programs in other languages see the true time.
    """

    def spec(value: SandboxSpec) -> SandboxSpec:
        return replace(value, readonly={**value.readonly, **_CLOCK_TOOLS})

    def command(given: SandboxSpec, value: Command) -> Command:
        env = {**given.env, **value.env}
        path = ":".join(filter(None, ("/tools/clock", env.get("PYTHONPATH", ""))))
        moved = {**value.env, _DAYS: str(days), "PYTHONPATH": path}
        script = next(
            (i for i, part in enumerate(value.argv) if part.startswith("/tools/") and part.endswith(".py")), None
        )
        if script is None or not value.argv[0].rpartition("/")[2].startswith("python"):
            return replace(value, env=moved)
        argv = (*value.argv[:script], "/tools/shifted_clock.py", *value.argv[script:])
        return replace(value, argv=argv, env=moved)

    return Tap(spec=spec, command=command)


def _lost(*_: object) -> SandboxSpec:
    raise SandboxLost("the audit lost this sandbox on purpose")


def _lost_result(_: ExecResult) -> ExecResult:
    raise SandboxLost("the audit lost this sandbox on purpose, after the command")


def _killed(value: ExecResult) -> ExecResult:
    return replace(value, exit_code=137, stdout=value.stdout[: len(value.stdout) // 2], stderr=b"")


def _timed_out(value: ExecResult) -> ExecResult:
    return replace(value, exit_code=124, stdout=value.stdout[: len(value.stdout) // 2], timed_out=True)


def _silent(value: ExecResult) -> ExecResult:
    return replace(value, stdout=b"", stderr=b"")


def _garbled(value: ExecResult) -> ExecResult:
    return replace(value, stdout=bytes(byte ^ 0x55 for byte in value.stdout))


def _dropped(value: ExecResult) -> ExecResult:
    kept = value.stdout[: len(value.stdout) * 2 // 3]
    return replace(value, stdout=kept, omitted_bytes=len(value.stdout) - len(kept))


def _no_file(path: str, _: bytes) -> bytes:
    raise UnsafePath(f"no such file {path!r} (taken away by the audit)")


FAULTS: Mapping[str, Tap] = {
    "creation lost": Tap(spec=_lost),
    "lost after the command": Tap(result=_lost_result),
    "grader killed": Tap(result=_killed),
    "grader cut off by the clock": Tap(result=_timed_out),
    "report empty": Tap(result=_silent),
    "report garbled": Tap(result=_garbled),
    "report dropped in part, as on a full disk": Tap(result=_dropped),
}
"""Faults of what runs the grader; its exit code and output are what a dying one leaves."""

FILE_FAULTS: Mapping[str, Tap] = {
    "reward file gone": Tap(content=_no_file),
    "reward file empty": Tap(content=lambda path, content: b""),
    "reward file garbled": Tap(content=lambda path, content: bytes(byte ^ 0x55 for byte in content)),
}
"""Faults of verdicts that are read from files."""
