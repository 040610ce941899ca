"""Attacks on the machine's resources, and processes that want to outlive their command. All amounts are bounded."""

from __future__ import annotations

import asyncio
import dataclasses
import time

from sanderling.errors import SandboxBroken
from sanderling.sandbox.protocol import Command, ExecResult, Sandbox, SandboxBackend
from sanderling.testing.sandbox_canaries import new_token, shared_places
from sanderling.testing.sandbox_check import (
    SMALL,
    Breach,
    Growth,
    Violation,
    attack,
    processes_with,
    python_command,
    reported,
    run_inside,
    sandbox_of,
)
from sanderling.types import JsonValue

MB = 1_048_576
TIGHT = dataclasses.replace(SMALL, memory_mb=96, disk_mb=8, processes=24)
PATIENT_S = 30.0  # for programs that have much to do: a busy machine must not cut them before they prove something


def _inside_fork_bomb(most: int) -> JsonValue:
    import os
    import signal
    import time

    children = []
    try:
        while len(children) < most:
            child = os.fork()
            if child == 0:
                time.sleep(4)
                os._exit(0)
            children.append(child)
    except OSError:
        pass
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return len(children)


async def fork_bomb(backend: SandboxBackend) -> None:
    """The number of processes is bounded by limits.processes, and a few are possible."""
    async with sandbox_of(backend, limits=TIGHT) as sandbox:
        started = await run_inside(sandbox, _inside_fork_bomb, 150)
        if started > TIGHT.processes:
            raise Breach(f"{started} children were alive at once, the limit is {TIGHT.processes}")
        if started < TIGHT.processes // 3:
            raise Violation(f"only {started} children could be started, the limit is {TIGHT.processes}")


def _inside_private_memory(total_mb: int) -> JsonValue:
    import sys
    import time

    held = []
    while len(held) * 8 < total_mb:
        held.append(bytearray(b"x") * (8 * 1_048_576))
    time.sleep(0.8)  # a watchdog that samples must have its chance
    sys.stdout.write(f"held {len(held) * 8}\n")
    return len(held) * 8


def _inside_shared_memory(total_mb: int) -> JsonValue:
    import mmap
    import os
    import time

    held = []
    for _ in range(total_mb // 32):
        area = mmap.mmap(-1, 16 * 1_048_576)  # MAP_SHARED | MAP_ANONYMOUS, which RLIMIT_DATA doesn't count
        area.write(b"x" * len(area))
        fd = os.memfd_create("hog")
        for _ in range(16):
            os.write(fd, b"x" * 1_048_576)
        held.append((area, fd))
    time.sleep(0.8)
    return len(held) * 32


def _inside_many_hogs(processes: int, each_mb: int) -> JsonValue:
    import os
    import select
    import time

    reader, writer = os.pipe()
    children = []
    for _ in range(processes):
        child = os.fork()
        if child == 0:
            held = bytearray(b"x") * (each_mb * 1_048_576)
            os.write(writer, b"1")
            os.close(writer)  # the reader's end comes when each has either said this or been killed
            time.sleep(8)
            os._exit(len(held) == 0)
        children.append(child)
    os.close(writer)
    deadline = time.monotonic() + 4.0
    ready = 0
    while ready < processes and select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
        if not os.read(reader, 1):
            break  # each of the others was killed
        ready += 1
    time.sleep(0.8)
    alive = [child for child in children if os.waitpid(child, os.WNOHANG)[0] == 0]
    for child in alive:
        os.kill(child, 9)
    return min(ready, len(alive)) * each_mb


def _held(result: ExecResult) -> int:
    """Return how many MB the program held, 0 when it was stopped before it could report."""
    try:
        return int(reported(result))
    except Violation:
        if result.exit_code == 0:
            raise
        return 0


async def _hog(sandbox: Sandbox, command: Command) -> None:
    held = _held(await sandbox.exec(command))
    if held >= 2 * TIGHT.memory_mb:
        raise Breach(f"{held} MB of memory were held for 0.8 s, the limit is {TIGHT.memory_mb} MB")
    if await run_inside(sandbox, _inside_fork_bomb, 1) != 1:
        raise Violation("the sandbox doesn't answer after its memory limit was met")


async def memory_hog(backend: SandboxBackend) -> None:
    """One process can't hold much more private memory than limits.memory_mb."""
    async with sandbox_of(backend, limits=TIGHT) as sandbox:
        await _hog(sandbox, python_command(_inside_private_memory, 224))


async def memory_total(backend: SandboxBackend) -> None:
    """All processes of a command together can't hold much more memory than limits.memory_mb."""
    async with sandbox_of(backend, limits=TIGHT) as sandbox:
        await _hog(sandbox, python_command(_inside_many_hogs, 5, 56))


async def memory_shared(backend: SandboxBackend) -> None:
    """Shared anonymous memory and memory files count against limits.memory_mb as well."""
    async with sandbox_of(backend, limits=TIGHT) as sandbox:
        await _hog(sandbox, python_command(_inside_shared_memory, 224))


async def _refuse_shared(sandbox: Sandbox) -> None:
    if shared := await shared_places(sandbox):
        raise Breach(f"commands write to {shared} of the host, whose size nothing limits")


def _inside_fill(most_mb: int, cleaning: str) -> JsonValue:
    import os

    home = os.path.expanduser("~")
    places = (
        ".",
        "/tmp",
        home,
        "/var/tmp",
        "/dev/shm",
        "/dev",
        "/dev/pts",
        "/run",
        "/run/lock",
        "/",
        "/etc",
        "/tools",
        "/home",
    )
    written = {}
    made = []
    for place in places:
        for number in range(most_mb):
            if sum(written.values()) >= most_mb * 1_048_576:
                break
            path = os.path.join(place, f".fill-{number}")
            try:
                with open(path, "xb", buffering=0) as file:
                    made.append(path)
                    for _ in range(16):
                        written[place] = written.get(place, 0) + (file.write(b"x" * 65_536) or 0)
            except OSError:
                break
    if cleaning == "clean":
        for path in made:
            os.unlink(path)
    return written


async def disk_fill(backend: SandboxBackend) -> None:
    """Bytes written to all writable places together are bounded by limits.disk_mb."""
    async with sandbox_of(backend, limits=TIGHT) as sandbox:
        await _refuse_shared(sandbox)
        written = await run_inside(sandbox, _inside_fill, 48, "clean")
        total = sum(written.values())
        if total > (1.25 * TIGHT.disk_mb + 2) * MB:
            by_place = {place: f"{size / MB:.1f} MB" for place, size in written.items()}
            raise Breach(f"{total / MB:.1f} MB were written, the limit is {TIGHT.disk_mb} MB: {by_place}")
        if written.get(".", 0) < MB:
            raise Violation(f"less than 1 MB could be written to the workspace, the limit is {TIGHT.disk_mb} MB")


def _inside_many_files(most: int) -> JsonValue:
    import os

    made = 0
    try:
        while made < most:
            if made % 5000 == 0:
                os.mkdir(f"folder-{made}")
                folder = f"folder-{made}"
            os.close(os.open(f"{folder}/{made}", os.O_WRONLY | os.O_CREAT))
            made += 1
    except OSError:
        pass
    return made


async def many_files(backend: SandboxBackend) -> None:
    """The number of files is bounded: 70,000 empty ones can't be made."""
    async with sandbox_of(backend, limits=TIGHT) as sandbox:
        made = await run_inside(sandbox, _inside_many_files, 70_000, timeout_s=PATIENT_S)
        if made >= 70_000:
            raise Breach(f"{made} files were made in a workspace of {TIGHT.disk_mb} MB")
        if made < 500:
            raise Violation(f"only {made} files could be made in the workspace, at least 500 were expected")


def _inside_full_disk() -> JsonValue:
    import os

    for folder in (".", "/tmp", os.path.expanduser("~")):
        number = 0
        try:
            while number < 200:
                with open(f"{folder}/full-{number}", "wb", buffering=0) as file:
                    for _ in range(16):
                        file.write(b"x" * 65_536)
                number += 1
        except OSError:
            pass
    try:
        for inode in range(20_000):
            os.close(os.open(f"inode-{inode}", os.O_WRONLY | os.O_CREAT))
    except OSError:
        pass
    return "full"


async def full_disk(backend: SandboxBackend) -> None:
    """A disk filled to the last byte and inode is the agent's doing: calls work or raise SandboxBroken, never another error."""
    async with sandbox_of(backend, {"solution.py": b"x = 1\n"}, limits=TIGHT) as sandbox:
        await _refuse_shared(sandbox)
        await run_inside(sandbox, _inside_full_disk, timeout_s=PATIENT_S)
        with _agents_doing("write_file"):
            await sandbox.write_file("report.txt", b"y" * 100_000)
        with _agents_doing("exec"):
            await sandbox.exec(Command(argv=("true",)))
        with _agents_doing("submission"):
            await sandbox.submission(("solution.py",))


class _agents_doing:  # noqa: N801  used like a function
    """Let `SandboxBroken` pass as an answer; anything else that is raised violates the protocol."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if error is None or isinstance(error, SandboxBroken):
            return True
        if not isinstance(error, Exception):
            return False
        raise Violation(
            f"{self.what} after the agent's destruction: expected an answer or SandboxBroken, got {error!r}"
        )


def _inside_daemon(token: str, seconds: float, then: str) -> JsonValue:
    import os
    import signal
    import time

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                with open("beat", "a") as file:
                    file.write(".")
                time.sleep(0.03)
        os._exit(0)
    while not os.path.exists("beat"):
        time.sleep(0.01)
    while then == "hang":
        time.sleep(0.1)
    return "started"


async def refuse_survivors(sandbox: Sandbox, token: str) -> None:
    """Raise `Breach` when a process that carries `token` is alive or the file `beat` still grows."""
    if alive := processes_with(token):
        raise Breach(f"processes {alive} outlived the command that started them")
    growth = Growth(path="beat")
    await growth.look(sandbox)
    await asyncio.sleep(0.15)
    await growth.look(sandbox)
    if not growth.still:
        raise Breach(f"a file still grows after the command ended: {growth.sizes} bytes")


async def daemon(backend: SandboxBackend) -> None:
    """A daemon in a session of its own ends with the command that started it, and doesn't delay its end."""
    token = new_token()
    async with sandbox_of(backend) as sandbox:
        before = time.monotonic()
        result = await sandbox.exec(python_command(_inside_daemon, token, 6.0, "exit"))
        took = time.monotonic() - before
        await refuse_survivors(sandbox, token)
        if took > 3.0:
            raise Breach(f"the call took {took:.1f} s because a daemon kept the output open")
        reported(result)


async def daemon_after_timeout(backend: SandboxBackend) -> None:
    """A daemon dies when its command is cut by the wall clock."""
    token = new_token()
    async with sandbox_of(backend) as sandbox:
        result = await sandbox.exec(python_command(_inside_daemon, token, 8.0, "hang", timeout_s=2.0))
        await refuse_survivors(sandbox, token)
        if not result.timed_out:
            raise Violation(f"expected timed_out, got exit code {result.exit_code}")


def _inside_stubborn(token: str) -> JsonValue:
    import contextlib
    import signal
    import time

    for number in range(1, 65):
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    with open("beat", "w") as file:
        file.write(".")
    while True:
        time.sleep(0.1)
    return token


async def ignore_sigterm(backend: SandboxBackend) -> None:
    """A process that ignores every signal it can is cut at its limit all the same."""
    token = new_token()
    async with sandbox_of(backend) as sandbox:
        before = time.monotonic()
        result = await sandbox.exec(python_command(_inside_stubborn, token, timeout_s=2.0))
        took = time.monotonic() - before
        await refuse_survivors(sandbox, token)
        if not result.timed_out or took > 4.5:
            raise Breach(f"limit 2 s: the call took {took:.1f} s, timed_out {result.timed_out}")


ATTACKS = (
    attack(fork_bomb, dangerous=True),
    attack(memory_hog, dangerous=True),
    attack(memory_total, dangerous=True),
    attack(memory_shared, dangerous=True),
    attack(disk_fill, dangerous=True),
    attack(many_files, dangerous=True),
    attack(full_disk, dangerous=True),
    attack(daemon),
    attack(daemon_after_timeout),
    attack(ignore_sigterm),
)
