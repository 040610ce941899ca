"""The system calls that the standard library of Python 3.11 lacks. All raise `OSError` with the call's name."""

from __future__ import annotations

import ctypes
import os
import platform
import signal

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

CLONE_PARENT = 0x00008000
_CLONE = {"x86_64": 56, "aarch64": 220}
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CAPSET = {"x86_64": 126, "aarch64": 91}
_LINUX_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)
_libc_holding_the_lock = ctypes.PyDLL(None, use_errno=True)  # so that a forked child holds the interpreter's lock too
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
_libc.umount2.argtypes = (ctypes.c_char_p, ctypes.c_int)
_libc.unshare.argtypes = (ctypes.c_int,)
_libc.prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    """mount(2)."""
    result = _libc.mount(os.fsencode(source), os.fsencode(target), kind.encode(), flags, os.fsencode(options))
    _check(result, f"mount {kind or 'bind'} {source} on {target}")


def bind(source: str, target: str) -> None:
    """Bind-mount a file or a whole directory tree. Recursive, since a namespace may not uncover what it inherited."""
    mount(source, target, "", MS_BIND | MS_REC)


def umount(target: str) -> None:
    """Lazily unmount; open descriptors keep working."""
    _check(_libc.umount2(os.fsencode(target), MNT_DETACH), f"umount {target}")


def unshare(flags: int) -> None:
    """unshare(2)."""
    _check(_libc.unshare(flags), f"unshare {flags:#x}")


def pivot_root(new_root: str, put_old: str) -> None:
    """pivot_root(2)."""
    number = _PIVOT_ROOT[platform.machine()]
    _check(_libc.syscall(number, os.fsencode(new_root), os.fsencode(put_old)), f"pivot_root {new_root}")


def prctl(option: int, value: int) -> None:
    """prctl(2) with one argument."""
    _check(_libc.prctl(option, value, 0, 0, 0), f"prctl {option}")


def fork_sibling() -> int:
    """Fork a child whose parent is our own parent. Only for single-threaded processes whose child soon executes."""
    arguments = (ctypes.c_ulong(value) for value in (CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0))
    pid = _libc_holding_the_lock.syscall(ctypes.c_long(_CLONE[platform.machine()]), *arguments)
    if pid < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"clone: {os.strerror(number)}")
    return pid


def drop_capabilities() -> None:
    """Empty the effective, permitted and inheritable sets of this process."""
    header = (ctypes.c_uint32 * 2)(_LINUX_CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)()
    number = _CAPSET[platform.machine()]
    _check(_libc.syscall(number, ctypes.byref(header), ctypes.byref(data)), "capset")
