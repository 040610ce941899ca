"""From a command to what is sent, and from what came back to a result: the one place that decides who is to blame."""

from __future__ import annotations

import errno
import math
import os
import resource
from typing import Any, Protocol

from sanderling.errors import SandboxBroken, SandboxError, SandboxLost
from sanderling.sandbox.interpreter import ENVIRONMENT
from sanderling.sandbox.launcher_client import LauncherError
from sanderling.sandbox.output import Streams
from sanderling.sandbox.protocol import Command, ExecResult, SandboxSpec

_LONGEST_ARGUMENT = 131_071  # MAX_ARG_STRLEN
_NOT_FOUND, _NOT_RUNNABLE = 127, 126
_EXEC_FAILED = "bwrap: execvp "


def command_fields(command: Command, spec: SandboxSpec) -> dict[str, Any]:
    """Return what the starter of a command has to know about it."""
    limits = spec.limits
    return {
        "argv": list(command.argv),
        "env": {**ENVIRONMENT, **spec.env, **command.env},
        "cwd": os.path.normpath(f"/work/{command.cwd}"),
        "timeout_s": limits.command_s if command.timeout_s is None else command.timeout_s,
        "cpu_s": limits.command_cpu_s if command.cpu_s is None else command.cpu_s,
    }


def cpu_limit(seconds: float) -> list[tuple[int, int, int]]:
    """Return the limit on processor time as (kind, soft, hard): SIGXCPU first, SIGKILL a second later."""
    whole = max(1, math.ceil(seconds))
    return [(resource.RLIMIT_CPU, whole, whole + 1)]


def unrunnable(command: Command) -> ExecResult | None:
    """Return the result of a command that no system would start: the caller's words, not our failure."""
    words = [*command.argv, *command.env, *command.env.values(), command.cwd]
    if not command.argv or not command.argv[0]:
        return refused("no command was given", _NOT_FOUND)
    if any("\0" in word for word in words):
        return refused("a command, its environment and its directory can't hold NUL characters", _NOT_RUNNABLE)
    try:
        longest = max(len(os.fsencode(word)) for word in words)
    except UnicodeEncodeError:
        return refused("a command, its environment and its directory can't hold lone surrogates", _NOT_RUNNABLE)
    if longest > _LONGEST_ARGUMENT:
        return refused(f"an argument is longer than {_LONGEST_ARGUMENT} bytes; pass it on stdin", _NOT_RUNNABLE)
    if os.path.commonpath([os.path.normpath(f"/work/{command.cwd}"), "/work"]) != "/work":
        return refused(f"directory {command.cwd!r} is outside of the workspace", _NOT_RUNNABLE)
    return None


def refused(message: str, exit_code: int) -> ExecResult:
    """Return the result of a command that couldn't begin, with our words on its stderr."""
    return ExecResult(
        exit_code=exit_code, stdout=b"", stderr=f"sandbox: {message}\n".encode(), timed_out=False, omitted_bytes=0,
        duration_s=0.0,
    )  # fmt: skip


def judged(fields: dict[str, Any], streams: Streams, command: Command) -> ExecResult:
    """Return the result of a command that the launcher ran, from its account `fields`.

    Raises:
        SandboxLost: our side failed. SandboxBroken: the workspace can't be entered any more.
    """
    exit_code = fields["exit_code"]
    if fields["timed_out"] or (exit_code is None and fields["out_of_memory"]):
        exit_code = 137
    elif exit_code is None:
        return _never_began(fields["trouble"], streams.stderr.kept, command)
    return _result(fields, exit_code, streams, fields["duration_s"])


class Output(Protocol):
    """One stream of a command as far as it was kept."""

    @property
    def kept(self) -> bytes: ...

    @property
    def omitted(self) -> int: ...


class Outputs(Protocol):
    """Both streams of a command."""

    @property
    def stdout(self) -> Output: ...

    @property
    def stderr(self) -> Output: ...


def judged_led(answer: dict[str, Any], streams: Outputs, command: Command, duration_s: float) -> ExecResult:
    """Return the result of a command that ran under a leader: in a session, in a container or without isolation."""
    if "refused" in answer:
        why = os.strerror(answer["errno"])
        if answer["refused"] == "directory":
            return refused(f"can't enter directory {command.cwd!r}: {why}", _NOT_RUNNABLE)
        missing = answer["errno"] == errno.ENOENT
        return refused(f"can't run {command.argv[0]}: {why}", _NOT_FOUND if missing else _NOT_RUNNABLE)
    return _result(answer, answer["exit_code"], streams, duration_s)


def _result(fields: dict[str, Any], exit_code: int, streams: Outputs, duration_s: float) -> ExecResult:
    return ExecResult(
        exit_code=exit_code,
        stdout=streams.stdout.kept,
        stderr=streams.stderr.kept,
        timed_out=fields["timed_out"],
        omitted_bytes=streams.stdout.omitted + streams.stderr.omitted,
        duration_s=duration_s,
        out_of_memory=fields.get("out_of_memory", False),
    )


def _never_began(trouble: str, errors: bytes, command: Command) -> ExecResult:
    """The command never began: a program or directory that isn't there is the caller's doing, the rest ours."""
    text = errors.decode(errors="replace").strip()
    if text.startswith(_EXEC_FAILED):
        missing = text.endswith("No such file or directory")
        return refused(f"can't run {text.removeprefix(_EXEC_FAILED)}", _NOT_FOUND if missing else _NOT_RUNNABLE)
    if "chdir" in text:
        if os.path.normpath(command.cwd) != ".":
            return refused(f"can't enter directory {command.cwd!r}: {text.rpartition(': ')[2]}", _NOT_RUNNABLE)
        raise SandboxBroken(f"the workspace can't be entered any more: {text}")
    raise SandboxLost(f"a command couldn't be started: {trouble or text or 'bubblewrap gave no reason'}")


def setup_error(error: LauncherError) -> SandboxError:
    """Return the error for a request that the launcher couldn't fulfil."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return SandboxBroken(f"the sandbox's disk is full beyond repair: {error}")
    return SandboxLost(f"the launcher couldn't prepare the sandbox: {error}")
