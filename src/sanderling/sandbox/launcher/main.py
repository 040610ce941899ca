"""Start of the launcher: namespaces, then a root of its own, then the event loop."""

from __future__ import annotations

import os
import signal
import socket
from typing import Any

from . import layers, root, syscalls, wire
from .cgroups import Home
from .service import Service

_INSIDE_UID = 1000


def main() -> None:
    """Take the settings from the first message of the inherited socket (descriptor 0) and serve it."""
    sock = socket.socket(fileno=os.dup(0))
    received = wire.receive(sock)
    if received is None:
        return
    settings, group_fds = received
    try:
        _enter_namespaces(settings)
    except OSError as error:
        wire.send(sock, {"id": 0, "error": str(error), "errno": error.errno, "stage": "namespaces"})
        return
    child = os.fork()
    if child != 0:
        sock.close()
        _wait_as_guard(child)
    _serve(sock, settings, _groups(settings, group_fds))


def _groups(settings: dict[str, Any], fds: list[int]) -> Home | None:
    """Return the home of control groups; the descriptors are one per hierarchy."""
    if not fds:
        return None
    return Home(version=settings["cgroup_version"], memory=fds[0], pids=fds[-1])


def _enter_namespaces(settings: dict[str, Any]) -> None:
    uid, gid = os.getuid(), os.getgid()
    flags = syscalls.CLONE_NEWNS | syscalls.CLONE_NEWPID
    if settings["user_namespace"]:
        flags |= syscalls.CLONE_NEWUSER
    syscalls.unshare(flags)
    if settings["user_namespace"]:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{_INSIDE_UID} {uid} 1"),
            ("gid_map", f"{_INSIDE_UID} {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    syscalls.mount("none", "/", "", syscalls.MS_REC | syscalls.MS_PRIVATE)


def _wait_as_guard(child: int) -> None:
    """Stay outside of the pid namespace only to pass its end on."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    _, status = os.waitpid(child, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _serve(sock: socket.socket, settings: dict[str, Any], groups: Home | None) -> None:
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    stage = "bubblewrap"
    try:
        bubblewrap = os.open(settings["bubblewrap"], os.O_RDONLY | os.O_CLOEXEC)
        interpreter = root.Interpreter(
            prefix=settings["prefix"], executable=settings["executable"], hidden=tuple(settings["hidden"])
        )
        stage = "a root directory"
        system = root.build(settings["base"], interpreter)
        stage = "an overlay"
        layers.check_overlay(layers.overlay_options(settings))
    except OSError as error:
        wire.send(sock, {"id": 0, "error": str(error), "errno": error.errno, "stage": stage})
        return
    wire.send(sock, {"id": 0, "pid": os.getpid()})
    Service(sock, settings, bubblewrap, system, groups).run()
