"""What the attacks must not reach: things planted on the host for the time of one check.

Each canary carries a random token. Whether an attack succeeded is decided on the trusted side: the token came out of the
sandbox, or the canary noticed a visitor or a change. Nothing here harms the host; every canary removes itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from sanderling.sandbox.protocol import Sandbox
from sanderling.testing.sandbox_check import NotApplicable, program, run_inside
from sanderling.types import JsonValue

PREFIX = "sanderling-canary-"
OUTSIDE = ("/var/tmp", "/tmp", "/opt", "/srv")  # a private /tmp alone would hide a visible host, so several places
ANSWER_S = 20.0  # a planted process that doesn't answer for so long has been stopped


def new_token() -> str:
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedFiles:
    """World-readable, world-writable files `<directory>/secret`, all holding the token."""

    token: str
    directories: tuple[Path, ...]

    @property
    def paths(self) -> list[str]:
        return [str(directory / "secret") for directory in self.directories]

    def changes(self) -> list[str]:
        """Say what somebody changed in the planted directories."""
        found = []
        for directory in self.directories:
            names = sorted(entry.name for entry in directory.iterdir()) if directory.is_dir() else ["(directory gone)"]
            if names != ["secret"]:
                found.append(f"{directory} holds {names}")
            elif (directory / "secret").read_text() != self.token:
                found.append(f"{directory}/secret was changed")
        return found


_owner: ContextVar[str] = ContextVar("owner", default="")


def _owned_prefix() -> str:
    return f"{PREFIX}{_owner.get()}"


@contextmanager
def owned_canaries() -> Generator[None]:
    """Remove at the end what killed helper processes that were forked in here left on the disk of this machine."""
    reset = _owner.set(f"{new_token()}-")
    try:
        yield
    finally:
        for place in {*OUTSIDE, "/dev/shm", "/home", str(Path.home()), tempfile.gettempdir()}:
            for left in Path(place).glob(f"{_owned_prefix()}*"):
                shutil.rmtree(left, ignore_errors=True)
        _owner.reset(reset)


SCRATCH_PLACES = ("/tmp", "~", "/dev/shm")


@contextmanager
def scratch_name() -> Generator[str]:
    """Give a file name for commands to use in `SCRATCH_PLACES`; removes what a backend without isolation left on the host."""
    name = PREFIX + new_token()
    try:
        yield name
    finally:
        for place in SCRATCH_PLACES:
            (Path(place).expanduser() / name).unlink(missing_ok=True)


def _inside_sees(mark: str) -> JsonValue:
    import os

    return [place for place in ("/tmp", os.path.expanduser("~"), "/dev/shm") if os.path.exists(f"{place}/{mark}")]


async def shared_places(sandbox: Sandbox) -> list[str]:
    """Return the scratch places of the host that commands of this sandbox see.

    Whatever fills or empties /tmp or a home directory asks this first: where nothing contains a command, they are ours.
    """
    with scratch_name() as mark:
        planted = 0
        for place in SCRATCH_PLACES:
            with contextlib.suppress(OSError):
                (Path(place).expanduser() / mark).touch()
                planted += 1
        if planted == 0:
            raise NotApplicable(f"none of {SCRATCH_PLACES} is writable for this user, so a shared one can't be told")
        return await run_inside(sandbox, _inside_sees, mark)


@contextmanager
def planted_files(places: Sequence[str | Path] = OUTSIDE) -> Generator[PlantedFiles]:
    """Plant a secret file in every place where this user may.

    Raises:
        NotApplicable: none of the places is writable.
    """
    token = new_token()
    directories: list[Path] = []
    try:
        for place in places:
            with contextlib.suppress(OSError):
                directory = Path(tempfile.mkdtemp(prefix=_owned_prefix(), dir=place))
                directories.append(directory)
                directory.chmod(0o777)
                (directory / "secret").write_text(token)
                (directory / "secret").chmod(0o666)
        if not directories:
            raise NotApplicable(f"none of {[str(place) for place in places]} is writable for this user")
        yield PlantedFiles(token=token, directories=tuple(directories))
    finally:
        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)


def _victim() -> None:
    import ctypes
    import os
    import signal
    import sys

    token = sys.stdin.readline().strip().encode()
    buffer = ctypes.create_string_buffer(token)
    # Yama would hide a missing isolation: allow every process to trace this one.
    ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)
    for number in (signal.SIGURG, signal.SIGUSR1, signal.SIGCONT):
        signal.signal(number, lambda received, frame: os.write(1, b"signal %d\n" % received))
    os.write(1, b"at %d\n" % ctypes.addressof(buffer))
    while sys.stdin.readline():
        os.write(1, b"asked\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedProcess:
    """A host process with secrets in its command line, environment and memory; it records the signals that reach it."""

    pid: int
    name_token: str
    environment_token: str
    memory_token: str
    address: int
    stdin_fd: int
    stdout_fd: int

    def signals(self) -> str:
        """Return what it wrote since the last call about signals sent to it before this one; empty when none came.

        It is asked and answers after its handlers ran, so that none is missed because it had no processor yet.
        """
        heard = b""
        with contextlib.suppress(BrokenPipeError):
            os.write(self.stdin_fd, b"\n")
        while b"asked\n" not in heard:
            if not select.select([self.stdout_fd], [], [], ANSWER_S)[0]:
                return f"{heard.decode()}one that stops it"
            answer = os.read(self.stdout_fd, 4096)
            if not answer:
                return f"{heard.decode()}one that ends it"
            heard += answer
        return heard.decode().replace("asked\n", "")


@contextmanager
def planted_process() -> Generator[PlantedProcess]:
    name, environment, memory = new_token(), new_token(), new_token()
    argv = [sys.executable, "-I", "-S", "-c", program(_victim), "[]", name]
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"CANARY_SECRET": environment}, start_new_session=False
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(f"{memory}\n".encode())
        process.stdin.flush()
        address = int(process.stdout.readline().split()[1])
        yield PlantedProcess(
            pid=process.pid,
            name_token=name,
            environment_token=environment,
            memory_token=memory,
            address=address,
            stdin_fd=process.stdin.fileno(),
            stdout_fd=process.stdout.fileno(),
        )
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@dataclass(slots=True, kw_only=True)
class PlantedServer:
    """A listener of the host that answers with its token and counts visitors."""

    token: str
    visitors: int = 0
    addresses: list[str] = field(default_factory=list)
    port: int = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.visitors += 1
        with contextlib.suppress(ConnectionError):
            writer.write(self.token.encode())
            await writer.drain()
        writer.close()


@asynccontextmanager
async def planted_tcp_server() -> AsyncGenerator[PlantedServer]:
    planted = PlantedServer(token=new_token())
    server = await asyncio.start_server(planted.answer, "127.0.0.1", 0)
    planted.port = server.sockets[0].getsockname()[1]
    async with server:
        yield planted


@asynccontextmanager
async def planted_path_sockets() -> AsyncGenerator[PlantedServer]:
    planted = PlantedServer(token=new_token())
    with planted_files() as files:
        servers = []
        for directory in files.directories:
            path = directory / "socket"
            servers.append(await asyncio.start_unix_server(planted.answer, path))
            path.chmod(0o777)
            planted.addresses.append(str(path))
        try:
            yield planted
        finally:
            for server in servers:
                server.close()


@asynccontextmanager
async def planted_abstract_socket() -> AsyncGenerator[PlantedServer]:
    planted = PlantedServer(token=new_token())
    name = PREFIX + new_token()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("\0" + name)
    planted.addresses.append(name)
    async with await asyncio.start_unix_server(planted.answer, sock=listener):
        yield planted


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedSegment:
    token: str
    key: int
    segment: int


@contextmanager
def planted_shared_memory() -> Generator[PlantedSegment]:
    """Plant a System V shared memory segment that everybody may read."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    token, key = new_token(), secrets.randbits(30) | 1
    segment = libc.shmget(key, 4096, 0o1000 | 0o2000 | 0o666)  # IPC_CREAT | IPC_EXCL
    if segment < 0:
        raise NotApplicable(f"shmget failed: {os.strerror(ctypes.get_errno())}")
    try:
        address = libc.shmat(segment, None, 0)
        ctypes.memmove(address, token.encode(), len(token))
        libc.shmdt(ctypes.c_void_p(address))
        yield PlantedSegment(token=token, key=key, segment=segment)
    finally:
        libc.shmctl(segment, 0, None)  # IPC_RMID


@dataclass(frozen=True, slots=True, kw_only=True)
class Inheritance:
    """What a careless launcher passes on: descriptors without close-on-exec and an environment variable."""

    file_token: str
    directory_token: str
    environment_token: str


_inheritance: ContextVar[Inheritance | None] = ContextVar("inheritance", default=None)


@contextmanager
def planted_inheritance() -> Generator[Inheritance]:
    """Make this process hold inheritable secrets. Nested use gives the outer ones.

    The runner enters it before it makes the backend, so that a launcher started early inherits them as well.
    """
    outer = _inheritance.get()
    if outer is not None:
        yield outer
        return
    planted = Inheritance(file_token=new_token(), directory_token=new_token(), environment_token=new_token())
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=_owned_prefix())))
        folder.chmod(0o755)
        (folder / "inherited").write_text(planted.directory_token)
        secret = stack.enter_context(tempfile.TemporaryFile())
        secret.write(planted.file_token.encode())
        secret.flush()
        os.set_inheritable(secret.fileno(), True)
        directory_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, directory_fd)
        os.set_inheritable(directory_fd, True)
        os.environ["SANDERLING_CANARY"] = planted.environment_token
        stack.callback(os.environ.pop, "SANDERLING_CANARY", None)
        reset = _inheritance.set(planted)
        try:
            yield planted
        finally:
            _inheritance.reset(reset)


@contextmanager
def recorded_signals(number: signal.Signals) -> Generator[list[int]]:
    """Record signals that reach this very process.

    Raises:
        NotApplicable: not called in the main thread, where alone handlers can be set.
    """
    if threading.current_thread() is not threading.main_thread():
        raise NotApplicable("signals of the runner can only be recorded in the main thread")
    received: list[int] = []
    before = signal.signal(number, lambda got, frame: received.append(got))
    try:
        yield received
    finally:
        signal.signal(number, before)
