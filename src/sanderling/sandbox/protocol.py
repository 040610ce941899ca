"""What a sandbox is, for everybody above this layer.

Between turns a sandbox is a directory and a spec, not a process: copy-on-write layers, one per turn, on a size-limited
tmpfs. Each command gets a fresh process tree that the kernel kills as a whole. So a fork, the diff of a turn and the
digest of the workspace cost next to nothing.

A sandbox can keep more (`Kept`). With an interpreter kept, the first command starts a process tree whose first process is
ours; each command is a fork of it, and all but this process is killed when the command ends. A command that may begin warm
(`Start.WARM`) then costs a tenth of a fresh one. Nothing of one command reaches the next but through files, as before.

Who is to blame: a command that fails is a result (`ExecResult`); `SandboxLost` means that our side failed (retried on fresh
parts); `SandboxBroken` means that the agent destroyed its own world (reward 0). A backend never mixes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from sanderling.errors import SandboxUnavailable
from sanderling.types import Limits, Submission

# How scripts at /tools are started: they see no packages and no modules of the agent's. Unlike -I this minds PYTHONHASHSEED,
# which says in what order sets of strings are walked.
PYTHON = ("python3", "-P", "-s", "-S")


class Kept(StrEnum):
    """What lives on between the commands of a sandbox, besides its files."""

    NOTHING = "nothing"  # each command gets a fresh process tree
    # ours, for warm commands; whatever a command started ends with it. A backend may keep nothing
    INTERPRETER = "interpreter"
    PROCESSES = "processes"  # what commands leave in the background, for tasks that need a server


class Start(StrEnum):
    """How a command may begin. The result is the same, the price isn't."""

    FRESH = "fresh"  # as a program of its own
    # In a fork of an interpreter that runs already. For `python3 -P -s -S /tools/<script> ...` where an interpreter is kept;
    # everything else, and everything on a backend that keeps none, begins fresh. What a warm script can tell:
    # /proc/self/cmdline isn't its own.
    WARM = "warm"


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """What to create: the workspace's files and the limits under which commands run.

    Example::

        SandboxSpec(files={"solution.py": b"..."}, readonly={"visible.py": b"..."}, limits=Limits(command_s=2.0))
    """

    files: Mapping[str, bytes]  # workspace, by relative POSIX path; writable by the commands
    readonly: Mapping[str, bytes] = field(default_factory=dict)  # mounted read-only at /tools, outside the workspace
    limits: Limits = field(default_factory=Limits)
    kept: Kept = Kept.NOTHING
    env: Mapping[str, str] = field(default_factory=dict)  # of every command, added to the built environment
    # further absolute paths of places in /work or /tools, such as {"/app": "/work"}; a backend without room of its own for
    # them refuses the spec
    links: Mapping[str, str] = field(default_factory=dict)
    # of a container engine, such as "docker.io/library/python:3-slim"; "": the backend's own system. A backend without images
    # refuses one (`refuse_image`)
    image: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command. Nothing is carried from command to command but files: no shell state, no environment.

    `python3` on the sandbox's PATH is the interpreter that runs Sanderling (read-only, at its own prefix inside).
    The workspace is /work, read-only tools are at /tools, home is /home/agent; /tmp and home persist per sandbox.
    """

    argv: tuple[str, ...]
    stdin: bytes = b""
    env: Mapping[str, str] = field(default_factory=dict)  # added to the built environment of about seven variables
    cwd: str = "."  # relative to the workspace
    timeout_s: float | None = None  # None: limits.command_s
    cpu_s: float | None = None  # None: limits.command_cpu_s
    start: Start = Start.FRESH


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """What one command did. Output keeps head and tail up to `limits.output_bytes` per stream."""

    exit_code: int  # as a shell reports it: 128 + signal for a killed process
    stdout: bytes
    stderr: bytes
    timed_out: bool  # cut by the wall clock
    omitted_bytes: int  # dropped from the middle of both streams
    duration_s: float
    out_of_memory: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a backend guarantees on this machine, found by running a sandbox, never by looking at versions."""

    name: str  # of the backend, such as "bubblewrap"
    mode: str  # such as "root" or "user"
    isolation: str  # mark stored in every record: "namespaces", "none", ...
    usable: bool
    open_risks: tuple[str, ...]  # what this mode does not contain
    missing: tuple[str, ...]  # why it isn't usable, each with the way to get it


def refuse_image(spec: SandboxSpec, backend: str) -> None:
    """Raise `SandboxUnavailable` where a spec names an image: for backends that show this machine's own system."""
    if spec.image:
        raise SandboxUnavailable(
            f"the sandbox needs the container image {spec.image!r}, and {backend} has none: its commands see this machine's "
            "own system. Use the backend docker or podman"
        )


class Sandbox(Protocol):
    """One workspace and the right to run commands in it. Methods may be called by one task at a time."""

    id: str

    async def exec(self, command: Command) -> ExecResult:
        """Run a command and return when nothing of it is alive any more, unless `Kept.PROCESSES` is asked for.

        Raises:
            SandboxLost: our side failed. SandboxBroken: the agent's doing made it impossible.
        """
        ...

    async def read_file(self, path: str, max_bytes: int = 1_048_576) -> bytes:
        """Read a plain file of the workspace without following links.

        Raises:
            UnsafePath: it is a link, a device, outside, missing or larger than `max_bytes`.
        """
        ...

    async def write_file(self, path: str, content: bytes) -> None:
        """Write a plain file of the workspace (create or replace), never through a link.

        Raises:
            UnsafePath: the path leaves the workspace or passes through something that isn't a directory.
        """
        ...

    async def list_files(self) -> tuple[str, ...]:
        """Return the plain files of the workspace, sorted relative paths; links and special files are left out."""
        ...

    async def state_key(self) -> str:
        """Return a digest of the workspace's content: paths, kinds, bytes, executable bits; no times, no owners."""
        ...

    async def fork(self) -> Sandbox:
        """Return an independent sandbox with the same files (workspace, /tmp, home). Process memory isn't forked."""
        ...

    async def submission(self, editable: Sequence[str], max_bytes: int = 1_048_576) -> Submission:
        """Kill what is alive and take out the changes: plain files whose path matches an `editable` pattern (fnmatch).

        Every other change against the base is listed in `refused` with the reason: links, hard links, devices, FIFOs,
        mode tricks (setuid, setgid), not editable, too large, name not UTF-8.
        """
        ...

    async def destroy(self) -> None:
        """Kill what is alive and remove everything. May be called twice."""
        ...


class SandboxBackend(Protocol):
    """Creates sandboxes. One instance serves a whole run and owns a state directory on disk."""

    def probe(self) -> Capabilities:
        """Run a sandbox and say what this backend guarantees here. Never raises for a machine that lacks something."""
        ...

    async def create(self, spec: SandboxSpec) -> Sandbox:
        """Create a sandbox.

        Raises:
            SandboxUnavailable: the machine can't run this backend. SandboxLost: creation failed this time.
        """
        ...

    async def close(self) -> None:
        """Destroy every sandbox and stop the launcher. May be called twice."""
        ...
