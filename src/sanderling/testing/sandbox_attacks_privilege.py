"""Attacks on the kernel's privileges: mounts, namespaces, devices, settings, limits, shared files.

Where no canary on the host can notice a success (a mount inside is invisible outside), the code inside reports what it was
allowed to do, and any such permission counts as a breach. A report that fails to come is a failure too.
"""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

from sanderling.sandbox.protocol import SandboxBackend
from sanderling.testing.sandbox_attacks_reach import refuse_token
from sanderling.testing.sandbox_canaries import planted_files
from sanderling.testing.sandbox_check import Breach, Violation, attack, joined, run_inside, sandbox_of
from sanderling.types import JsonValue


def refuse_permissions(allowed: JsonValue, what: str) -> None:
    """Raise `Breach` unless the list of what was allowed is empty."""
    if allowed:
        raise Breach(f"{what}: {joined(allowed)}")


def _inside_setuid(extra: list) -> JsonValue:
    import os
    import subprocess
    import time

    before = os.geteuid()
    names = ("su", "passwd", "newgrp", "gpasswd", "chsh", "sudo", "pkexec", "mount")
    candidates = [folder + name for folder in ("/bin/", "/usr/bin/") for name in names]
    elevated = []
    for path in [*candidates, *extra]:
        try:
            if not os.stat(path).st_mode & 0o4000:
                continue
            child = subprocess.Popen(
                [path, "5"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        except OSError:
            continue
        deadline = time.monotonic() + 0.2
        while time.monotonic() < deadline and child.poll() is None:
            with open(f"/proc/{child.pid}/status") as status:
                effective = next(line for line in status if line.startswith("Uid:")).split()[2]
            if int(effective) != before:
                elevated.append(f"{path} ran as uid {effective}")
                break
            time.sleep(0.01)
        child.kill()
        child.wait()
    with open("/proc/self/status") as status:
        if any(line.split() == ["NoNewPrivs:", "0"] for line in status):
            elevated.append("no_new_privs isn't set")
    return elevated


async def setuid_binary(backend: SandboxBackend) -> None:
    """No setuid program of the image or of the host raises privileges."""
    with planted_files() as planted:
        copies = []
        sleep = shutil.which("sleep")
        for directory in planted.directories if sleep else ():
            copies.append(str(shutil.copy(str(sleep), directory / "sleep")))
            Path(copies[-1]).chmod(0o4755)
        async with sandbox_of(backend) as sandbox:
            refuse_permissions(await run_inside(sandbox, _inside_setuid, copies), "setuid programs act")


def _inside_devices() -> JsonValue:
    import os
    import stat

    opened = []
    for name in (
        "mem",
        "port",
        "kmsg",
        "kvm",
        "fuse",
        "net/tun",
        "sda",
        "vda",
        "nvme0n1",
        "loop0",
        "loop-control",
        "dm-0",
    ):
        try:
            os.close(os.open("/dev/" + name, os.O_RDONLY | os.O_NONBLOCK))
            opened.append("opened /dev/" + name)
        except OSError:
            continue
    for kind, major, minor in ((stat.S_IFCHR, 1, 1), (stat.S_IFCHR, 1, 3), (stat.S_IFBLK, 7, 0)):
        path = f"node-{major}-{minor}"
        try:
            os.mknod(path, kind | 0o600, os.makedev(major, minor))
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
            opened.append(f"made and opened device {major}:{minor}")
        except OSError:
            continue
    return opened


async def device_nodes(backend: SandboxBackend) -> None:
    """No device but the harmless ones can be opened, and none can be made."""
    async with sandbox_of(backend) as sandbox:
        refuse_permissions(await run_inside(sandbox, _inside_devices), "devices")


def _inside_mount() -> JsonValue:
    import ctypes
    import os

    libc = ctypes.CDLL(None, use_errno=True)
    os.mkdir("point")
    allowed = []
    if libc.mount(b"tmpfs", b"point", b"tmpfs", 0, None) == 0:
        allowed.append("mounted a tmpfs")
        libc.umount2(b"point", 2)
    if libc.mount(b"/", b"point", None, 4096, None) == 0:  # MS_BIND
        allowed.append("bound the root directory")
        libc.umount2(b"point", 2)
    context = libc.syscall(430, b"tmpfs", 0)  # fsopen, the same number on every machine
    if context >= 0:
        allowed.append("opened a file system context")
        os.close(context)
    return allowed


async def mount(backend: SandboxBackend) -> None:
    """Nothing can be mounted, by the old calls or the new ones."""
    async with sandbox_of(backend) as sandbox:
        refuse_permissions(await run_inside(sandbox, _inside_mount), "mount calls allowed")


def _inside_namespaces() -> JsonValue:
    import ctypes
    import os

    libc = ctypes.CDLL(None, use_errno=True)
    flags = {"user": 0x10000000, "mount": 0x20000, "pid": 0x20000000, "net": 0x40000000, "user+mount": 0x10020000}
    allowed = []
    for name, flag in flags.items():
        child = os.fork()
        if child == 0:
            os._exit(0 if libc.unshare(flag) == 0 else 1)
        if os.waitpid(child, 0)[1] == 0:
            allowed.append(name)
    return allowed


async def nested_user_namespace(backend: SandboxBackend) -> None:
    """No new namespace can be made inside: a user namespace would open the kernel's largest attack surface again."""
    async with sandbox_of(backend) as sandbox:
        refuse_permissions(await run_inside(sandbox, _inside_namespaces), "namespaces created")


def _inside_chroot(paths: list) -> JsonValue:
    import os

    found = []
    os.mkdir("jail")
    try:
        os.chroot("jail")
        for _ in range(30):
            os.chdir("..")
        os.chroot(".")
        found.append("chroot allowed")
    except OSError as error:
        found.append(error.strerror)
    for path in paths:
        try:
            with open(path) as file:
                found.append(file.read(100))
        except OSError as error:
            found.append(error.strerror)
    return found


async def chroot_escape(backend: SandboxBackend) -> None:
    """The chroot escape leads nowhere and chroot itself isn't allowed."""
    with planted_files() as planted:
        async with sandbox_of(backend) as sandbox:
            found = await run_inside(sandbox, _inside_chroot, planted.paths)
            refuse_token(planted.token, found, "chroot escape")
            if "chroot allowed" in found:
                raise Breach("chroot is allowed inside")


def _inside_settings() -> JsonValue:
    import glob
    import os

    kernel = (
        "core_pattern",
        "modprobe",
        "hotplug",
        "sysrq",
        "hostname",
        "domainname",
        "randomize_va_space",
        "kptr_restrict",
    )
    paths = [f"/proc/sys/kernel/{name}" for name in kernel]
    paths += ["/proc/sysrq-trigger", "/proc/sys/vm/drop_caches", "/proc/sys/vm/overcommit_memory", "/proc/kcore"]
    paths += ["/proc/sys/user/max_user_namespaces", "/proc/sys/fs/file-max", "/proc/sys/net/ipv4/ip_forward"]
    paths += ["/sys/kernel/uevent_helper", "/sys/power/state", "/sys/kernel/mm/ksm/run"]
    for pattern in ("cgroup.procs", "*/cgroup.procs", "*/release_agent", "*/*/cgroup.procs", "cgroup.kill"):
        paths += glob.glob("/sys/fs/cgroup/" + pattern)[:20]
    opened = []
    for path in paths:
        try:
            os.close(os.open(path, os.O_WRONLY))  # opened and closed, never written
            opened.append(path)
        except OSError:
            continue
    return opened


async def kernel_settings(backend: SandboxBackend) -> None:
    """No file of /proc/sys, /sys or a cgroup can be opened for writing; core_pattern is the classical way out."""
    async with sandbox_of(backend) as sandbox:
        refuse_permissions(await run_inside(sandbox, _inside_settings), "opened for writing")


def _inside_raise_limits() -> JsonValue:
    import resource

    raised = []
    for name in ("NPROC", "DATA", "AS", "NOFILE", "FSIZE", "CORE", "CPU", "MEMLOCK", "MSGQUEUE"):
        which = getattr(resource, "RLIMIT_" + name)
        hard = resource.getrlimit(which)[1]
        if hard == resource.RLIM_INFINITY:
            continue
        for value in (hard + 1, resource.RLIM_INFINITY):
            try:
                resource.setrlimit(which, (value, value))
                raised.append(f"{name} from {hard} to {value}")
            except (OSError, ValueError):
                continue
    return raised


async def raise_limits(backend: SandboxBackend) -> None:
    """A hard resource limit can't be raised."""
    async with sandbox_of(backend) as sandbox:
        refuse_permissions(await run_inside(sandbox, _inside_raise_limits), "limits raised")


def _inside_hostname(name: str) -> JsonValue:
    import socket

    try:
        socket.sethostname(name)
    except OSError as error:
        return error.strerror
    return "set"


async def hostname_change(backend: SandboxBackend) -> None:
    """The host keeps its name."""
    before = socket.gethostname()
    async with sandbox_of(backend) as sandbox:
        await run_inside(sandbox, _inside_hostname, "sanderling-canary")
    after = socket.gethostname()
    if after != before:
        socket.sethostname(before)
        raise Breach(f"the host was renamed from {before!r} to {after!r}")


def _inside_interpreter() -> JsonValue:
    import os
    import sys

    places = [
        os.path.dirname(os.__file__),
        os.path.dirname(sys.executable),
        sys.prefix,
        "/usr/bin",
        "/usr/lib",
        "/etc",
        "/",
    ]
    writable = []
    for path in (os.__file__, sys.executable, "/bin/sh", "/etc/passwd"):
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_APPEND))  # opened and closed, never written
            writable.append(path)
        except OSError:
            continue
    for place in places:
        path = os.path.join(place, ".sanderling-canary")
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            os.unlink(path)
            writable.append(place)
        except OSError:
            continue
    return writable


async def interpreter_write(backend: SandboxBackend) -> None:
    """Neither the interpreter, its library nor a system directory can be changed."""
    async with sandbox_of(backend) as sandbox:
        refuse_permissions(await run_inside(sandbox, _inside_interpreter), "writable")


def _inside_change(path: str) -> JsonValue:
    import os

    with open(path) as file:
        seen = file.read()
    changes = (
        lambda: os.chmod(path, 0o666),
        lambda: open(path, "a").write("changed"),
        lambda: os.unlink(path),
        lambda: os.rename(path, path + ".old"),
        lambda: open(os.path.dirname(path) + "/new", "w").write("new"),
        lambda: os.rename(os.path.dirname(path), os.path.dirname(path) + ".old"),
    )
    allowed = []
    for number, change in enumerate(changes):
        try:
            change()
            allowed.append(f"change {number}")
        except OSError:
            continue
    return [seen, allowed]


async def tools_write(backend: SandboxBackend) -> None:
    """Read-only files at /tools are readable inside and can't be changed, removed or replaced."""
    tools = {"check.py": b"original", "deep/more.py": b"original"}
    async with sandbox_of(backend, readonly=tools) as sandbox:
        for name in tools:
            seen, allowed = await run_inside(sandbox, _inside_change, f"/tools/{name}")
            if seen != "original":
                raise Violation(f"/tools/{name}: expected 'original' at first, got {seen!r}")
            refuse_permissions(allowed, f"/tools/{name} changed by")


ATTACKS = (
    attack(setuid_binary),
    attack(device_nodes, dangerous=True),
    attack(mount, dangerous=True),
    attack(nested_user_namespace),
    attack(chroot_escape),
    attack(kernel_settings),
    attack(raise_limits),
    attack(hostname_change, dangerous=True),
    attack(interpreter_write),
    attack(tools_write),
)
