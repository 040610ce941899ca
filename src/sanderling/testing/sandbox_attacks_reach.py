"""Attacks that reach out of the sandbox: files, processes, and what a launcher passes on.

The functions that start with `_inside` run in the sandbox; each attack stands below the code it sends in.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from sanderling.sandbox.protocol import SandboxBackend
from sanderling.testing.sandbox_canaries import (
    planted_files,
    planted_inheritance,
    planted_process,
    recorded_signals,
)
from sanderling.testing.sandbox_check import Breach, attack, run_inside, sandbox_of
from sanderling.types import JsonValue


def _inside_read(paths: list) -> JsonValue:
    import os

    found = []
    os.symlink("/", "root_link")
    for path in paths:
        for way in (path, "../" * 12 + path.lstrip("/"), "root_link" + path, "/proc/self/root" + path):
            try:
                with open(way) as file:
                    found.append(file.read(200))
            except OSError as error:
                found.append(error.strerror)
    return found


def refuse_token(token: str, answer: JsonValue, what: str) -> None:
    """Raise `Breach` when a secret came back from the sandbox."""
    if token in repr(answer):
        raise Breach(f"{what}: the planted secret came out of the sandbox")


async def host_file_read(backend: SandboxBackend) -> None:
    """A world-readable file of the host, outside the workspace, can't be read."""
    with planted_files() as planted:
        async with sandbox_of(backend) as sandbox:
            refuse_token(planted.token, await run_inside(sandbox, _inside_read, planted.paths), "host file")


async def other_home_read(backend: SandboxBackend) -> None:
    """Files in home directories of the host can't be read."""
    with planted_files((Path.home(), "/home")) as planted:
        async with sandbox_of(backend) as sandbox:
            refuse_token(planted.token, await run_inside(sandbox, _inside_read, planted.paths), "home of the host")


async def posix_shared_memory(backend: SandboxBackend) -> None:
    """POSIX shared memory of the host (/dev/shm) can't be opened."""
    with planted_files(("/dev/shm",)) as planted:
        async with sandbox_of(backend) as sandbox:
            refuse_token(planted.token, await run_inside(sandbox, _inside_read, planted.paths), "/dev/shm of the host")


def _inside_write(paths: list) -> JsonValue:
    import os

    tried = 0
    for path in paths:
        folder = os.path.dirname(path)
        actions = (
            lambda path=path: open(path, "a").write("appended"),
            lambda path=path: os.truncate(path, 1),
            lambda folder=folder: open(folder + "/new", "w").write("created"),
            lambda path=path, folder=folder: os.rename(path, folder + "/renamed"),
        )
        for action in actions:
            tried += 1
            try:
                action()
            except OSError:
                continue
    return tried


async def host_file_write(backend: SandboxBackend) -> None:
    """World-writable files and directories of the host can't be changed."""
    with planted_files() as planted:
        async with sandbox_of(backend) as sandbox:
            await run_inside(sandbox, _inside_write, planted.paths)
        changes = planted.changes()
        if changes:
            raise Breach(f"the host was changed: {changes}")


def _inside_processes(names: list) -> JsonValue:
    import os

    found = {}
    for pid in sorted(name for name in os.listdir("/proc") if name.isdigit()):
        for name in names:
            try:
                with open(f"/proc/{pid}/{name}", "rb") as file:
                    found[pid + name] = file.read(20_000).decode("latin-1")
            except OSError as error:
                found[pid + name] = error.strerror
    return found


async def host_process_list(backend: SandboxBackend) -> None:
    """Processes of the host can't be seen."""
    with planted_process() as victim:
        async with sandbox_of(backend) as sandbox:
            refuse_token(victim.name_token, await run_inside(sandbox, _inside_processes, ["cmdline"]), "process list")


async def host_process_environ(backend: SandboxBackend) -> None:
    """The environment of a host process can't be read."""
    with planted_process() as victim:
        async with sandbox_of(backend) as sandbox:
            found = await run_inside(sandbox, _inside_processes, ["environ"])
            refuse_token(victim.environment_token, found, "environment of a host process")


async def proc_root(backend: SandboxBackend) -> None:
    """No /proc/PID/root or /proc/PID/cwd leads to files of the host."""
    with planted_files() as planted, planted_process() as victim:
        async with sandbox_of(backend) as sandbox:
            names = [f"{link}{path}" for link in ("root", "cwd/../../../../..") for path in planted.paths]
            refuse_token(planted.token, await run_inside(sandbox, _inside_processes, names), "/proc/PID/root")
            direct = [f"/proc/{pid}/root{path}" for pid in (victim.pid, os.getpid()) for path in planted.paths]
            refuse_token(planted.token, await run_inside(sandbox, _inside_read_plain, direct), "/proc/PID/root")


def _inside_read_plain(paths: list) -> JsonValue:
    found = []
    for path in paths:
        try:
            with open(path) as file:
                found.append(file.read(200))
        except OSError as error:
            found.append(error.strerror)
    return found


def _inside_ptrace(pid: int, address: int, words: int) -> JsonValue:
    import ctypes
    import os

    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.restype = ctypes.c_long
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(16, pid, None, None) < 0:  # PTRACE_ATTACH
        return os.strerror(ctypes.get_errno())
    os.waitpid(pid, 0x40000000)  # __WALL
    found = b"".join(
        libc.ptrace(1, pid, address + 8 * i, None).to_bytes(8, "little", signed=True)  # PTRACE_PEEKTEXT
        for i in range(words)
    )
    libc.ptrace(17, pid, None, None)  # PTRACE_DETACH
    return found.decode("latin-1")


async def ptrace(backend: SandboxBackend) -> None:
    """A host process can't be traced."""
    with planted_process() as victim:
        async with sandbox_of(backend) as sandbox:
            found = await run_inside(sandbox, _inside_ptrace, victim.pid, victim.address, 4)
            refuse_token(victim.memory_token, found, "ptrace of a host process")


def _inside_vm_read(pid: int, address: int, size: int) -> JsonValue:
    import ctypes
    import os

    class Vector(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]

    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(size)
    here = Vector(ctypes.cast(buffer, ctypes.c_void_p), size)
    there = Vector(ctypes.c_void_p(address), size)
    if libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) < 0:
        return os.strerror(ctypes.get_errno())
    return buffer.raw.decode("latin-1")


async def process_vm_readv(backend: SandboxBackend) -> None:
    """Memory of a host process can't be read."""
    with planted_process() as victim:
        async with sandbox_of(backend) as sandbox:
            found = await run_inside(sandbox, _inside_vm_read, victim.pid, victim.address, len(victim.memory_token))
            refuse_token(victim.memory_token, found, "process_vm_readv of a host process")


def _inside_signal(pids: list, number: int) -> JsonValue:
    import os

    answers = []
    targets = [pid for pid in {*pids, os.getppid()} if pid > 0 and pid != os.getpid()]
    for send, target in [*((os.kill, pid) for pid in targets), (os.killpg, os.getpgrp())]:
        try:
            send(target, number)
            answers.append("sent")
        except OSError as error:
            answers.append(error.strerror)
    return answers


async def signal_host_process(backend: SandboxBackend) -> None:
    """A host process can't be signalled."""
    with planted_process() as victim:
        async with sandbox_of(backend) as sandbox:
            await run_inside(sandbox, _inside_signal, [victim.pid], int(signal.SIGURG))
            if received := victim.signals():
                raise Breach(f"a host process received {received!r}")


async def signal_runner(backend: SandboxBackend) -> None:
    """The process that runs the sandbox can't be signalled, neither by id nor as parent or through the process group."""
    with recorded_signals(signal.SIGURG) as received:
        async with sandbox_of(backend) as sandbox:
            await run_inside(sandbox, _inside_signal, [os.getpid()], int(signal.SIGURG))
            await asyncio.sleep(0.05)
            if received:
                raise Breach(f"the runner received signal {received}")


def _inside_kill_all(number: int) -> JsonValue:
    import os
    import signal

    signal.signal(signal.SIGURG, signal.SIG_IGN)
    try:
        os.kill(-1, number)
    except OSError as error:
        return error.strerror
    return "sent"


async def kill_all(backend: SandboxBackend) -> None:
    """kill(-1) reaches nothing outside; the sandbox survives it and still answers."""
    with planted_process() as victim:
        async with sandbox_of(backend) as sandbox:
            await run_inside(sandbox, _inside_kill_all, int(signal.SIGURG))  # harmless: ignored by default
            if received := victim.signals():
                raise Breach(f"kill(-1) from inside: a host process received {received!r}")
            # Only now, after the harmless one was seen to stay inside, the real one.
            await run_inside(sandbox, _inside_kill_all, int(signal.SIGKILL))
            if await run_inside(sandbox, _inside_read_plain, []) != []:
                raise Breach("the sandbox doesn't answer after kill(-1, SIGKILL)")


def _inside_descriptors() -> JsonValue:
    import os

    found = []
    for fd in range(3, 1024):
        try:
            found.append(os.pread(fd, 64, 0).decode("latin-1"))
        except OSError as error:
            if error.errno == 9:
                continue
            found.append(error.strerror)
        try:
            inner = os.open("inherited", os.O_RDONLY, dir_fd=fd)
            found.append(os.read(inner, 64).decode("latin-1"))
        except OSError as error:
            found.append(error.strerror)
    return found


async def inherited_descriptor(backend: SandboxBackend) -> None:
    """No file descriptor of the runner is passed on."""
    with planted_inheritance() as planted:
        async with sandbox_of(backend) as sandbox:
            found = await run_inside(sandbox, _inside_descriptors)
            refuse_token(planted.file_token, found, "inherited file descriptor")


async def inherited_directory(backend: SandboxBackend) -> None:
    """No directory descriptor of the runner is passed on, which would lead out of every mount namespace."""
    with planted_inheritance() as planted:
        async with sandbox_of(backend) as sandbox:
            found = await run_inside(sandbox, _inside_descriptors)
            refuse_token(planted.directory_token, found, "inherited directory descriptor")


async def inherited_environment(backend: SandboxBackend) -> None:
    """No environment variable of the runner is visible, neither in the command's environment nor in a visible process."""
    with planted_inheritance() as planted:
        async with sandbox_of(backend) as sandbox:
            found = await run_inside(sandbox, _inside_processes, ["environ"])
            refuse_token(planted.environment_token, found, "environment of the runner")


ATTACKS = (
    attack(inherited_descriptor),
    attack(inherited_directory),
    attack(inherited_environment),
    attack(host_file_read),
    attack(other_home_read),
    attack(host_file_write),
    attack(posix_shared_memory),
    attack(host_process_list),
    attack(host_process_environ),
    attack(proc_root),
    attack(ptrace),
    attack(process_vm_readv),
    attack(signal_host_process),
    attack(signal_runner),
    attack(kill_all, dangerous=True),
)
