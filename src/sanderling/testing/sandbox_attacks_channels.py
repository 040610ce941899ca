"""Attacks through channels that aren't files: sockets, shared memory, keyrings, the terminal."""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import termios
import tty

from sanderling.sandbox.protocol import SandboxBackend
from sanderling.testing.sandbox_attacks_privilege import refuse_permissions
from sanderling.testing.sandbox_attacks_reach import refuse_token
from sanderling.testing.sandbox_canaries import (
    planted_abstract_socket,
    planted_path_sockets,
    planted_shared_memory,
    planted_tcp_server,
)
from sanderling.testing.sandbox_check import Breach, NotApplicable, attack, run_inside, sandbox_of
from sanderling.types import JsonValue


def _inside_connect(targets: list) -> JsonValue:
    import socket

    found = []
    for family, address in targets:
        where = tuple(address) if isinstance(address, list) else address
        try:
            with socket.socket(socket.AF_INET if family == "tcp" else socket.AF_UNIX) as client:
                client.settimeout(1.0)
                client.connect(where)
                found.append(client.recv(200).decode())
        except OSError as error:
            found.append(str(error))
    return found


async def loopback_tcp(backend: SandboxBackend) -> None:
    """A server on the host's loopback address can't be reached."""
    async with planted_tcp_server() as server, sandbox_of(backend) as sandbox:
        targets = [["tcp", [host, server.port]] for host in ("127.0.0.1", "0.0.0.0", "localhost")]
        refuse_token(server.token, await run_inside(sandbox, _inside_connect, targets), "loopback of the host")
        if server.visitors:
            raise Breach(f"the host's loopback server had {server.visitors} visitors")


async def unix_path_socket(backend: SandboxBackend) -> None:
    """A unix socket in the host's file system can't be reached."""
    async with planted_path_sockets() as server, sandbox_of(backend) as sandbox:
        targets = [["unix", path] for path in server.addresses]
        refuse_token(server.token, await run_inside(sandbox, _inside_connect, targets), "unix socket of the host")
        if server.visitors:
            raise Breach(f"the host's unix socket had {server.visitors} visitors")


async def abstract_socket(backend: SandboxBackend) -> None:
    """An abstract unix socket of the host can't be reached."""
    async with planted_abstract_socket() as server, sandbox_of(backend) as sandbox:
        targets = [["unix", "\0" + name] for name in server.addresses]
        refuse_token(server.token, await run_inside(sandbox, _inside_connect, targets), "abstract socket of the host")
        if server.visitors:
            raise Breach(f"the host's abstract socket had {server.visitors} visitors")


def _inside_shared_memory(key: int, segment: int) -> JsonValue:
    import ctypes
    import os

    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    found = []
    for candidate in (libc.shmget(key, 0, 0), segment):
        address = libc.shmat(candidate, None, 0o10000)  # SHM_RDONLY
        if address in (None, ctypes.c_void_p(-1).value):
            found.append(os.strerror(ctypes.get_errno()))
        else:
            found.append(ctypes.string_at(address, 64).decode("latin-1"))
    return found


async def sysv_shared_memory(backend: SandboxBackend) -> None:
    """A System V shared memory segment of the host can't be attached."""
    with planted_shared_memory() as planted:
        async with sandbox_of(backend) as sandbox:
            found = await run_inside(sandbox, _inside_shared_memory, planted.key, planted.segment)
            refuse_token(planted.token, found, "System V shared memory of the host")


def _inside_keyring(description: str, add_key: int, keyctl: int) -> JsonValue:
    import ctypes
    import os

    libc = ctypes.CDLL(None, use_errno=True)
    found = []
    for ring in (-3, -4, -5):  # session, user, user session keyring
        key = libc.syscall(keyctl, 10, ring, b"user", description.encode(), 0)  # KEYCTL_SEARCH
        buffer = ctypes.create_string_buffer(64)
        if key < 0 or libc.syscall(keyctl, 11, key, buffer, 64) < 0:  # KEYCTL_READ
            found.append(os.strerror(ctypes.get_errno()))
        else:
            found.append(buffer.value.decode("latin-1"))
    return found


KEY_CALLS = {"x86_64": (248, 250), "aarch64": (217, 219)}  # add_key, keyctl by machine


async def kernel_keyring(backend: SandboxBackend) -> None:
    """A secret in the runner's session keyring can't be read; keyrings are inherited across namespaces."""
    machine = os.uname().machine
    if machine not in KEY_CALLS:
        raise NotApplicable(f"system call numbers of {machine} aren't known to this check")
    add_key, keyctl = KEY_CALLS[machine]
    libc = ctypes.CDLL(None, use_errno=True)
    description, token = f"sanderling-{secrets.token_hex(8)}", secrets.token_hex(16)
    key = libc.syscall(add_key, b"user", description.encode(), token.encode(), len(token), -3)
    if key < 0:
        raise NotApplicable(f"add_key failed: {os.strerror(ctypes.get_errno())}")
    libc.syscall(keyctl, 5, key, 0x3F3F3F3F)  # KEYCTL_SETPERM: readable by everybody who finds it
    try:
        async with sandbox_of(backend) as sandbox:
            found = await run_inside(sandbox, _inside_keyring, description, add_key, keyctl)
            refuse_token(token, found, "session keyring of the runner")
    finally:
        libc.syscall(keyctl, 3, key)  # KEYCTL_REVOKE


def _inside_terminal() -> JsonValue:
    import fcntl
    import glob
    import os

    descriptors = [0, 1, 2]
    for path in ("/dev/tty", "/dev/console", "/dev/tty0", *glob.glob("/dev/pts/[0-9]*")):
        try:
            descriptors.append(os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK))
        except OSError:
            continue
    injected = []
    for fd in descriptors:
        try:
            fcntl.ioctl(fd, 0x5412, b"#")  # TIOCSTI
            injected.append(f"descriptor {fd}")
        except OSError:
            continue
    return injected


async def terminal_injection(backend: SandboxBackend) -> None:
    """No character can be pushed into the terminal of the runner (TIOCSTI)."""
    terminal = None
    with contextlib.suppress(OSError):
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NONBLOCK)
    try:
        if terminal is not None:
            tty.setcbreak(terminal, termios.TCSANOW)  # so that a single character can be read at once
        async with sandbox_of(backend) as sandbox:
            refuse_permissions(await run_inside(sandbox, _inside_terminal), "characters injected through")
        if terminal is not None:
            with contextlib.suppress(BlockingIOError):
                if received := os.read(terminal, 100):
                    raise Breach(f"the runner's terminal received {received!r}")
    finally:
        if terminal is not None:
            os.close(terminal)


ATTACKS = (
    attack(loopback_tcp),
    attack(unix_path_socket),
    attack(abstract_socket),
    attack(sysv_shared_memory),
    attack(kernel_keyring),
    attack(terminal_injection, dangerous=True),
)
