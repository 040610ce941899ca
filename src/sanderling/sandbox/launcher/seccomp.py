"""The system calls that a sandboxed process may not make, as a classic BPF program.

A deny list: the namespaces do the isolating, the filter takes away the parts of the kernel that would let a process
build new namespaces, look into others, or reach rarely tested code. Sockets are an allow list, since families such as
AF_VSOCK aren't confined by a network namespace.
"""

from __future__ import annotations

import errno
import platform
import struct

_LOAD_WORD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JUMP_EQUAL = 0x15
_JUMP_GREATER_EQUAL = 0x35
_JUMP_ANY_BIT = 0x45
_RETURN = 0x06
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_KILL_PROCESS = 0x80000000

_OFFSET_NUMBER, _OFFSET_ARCH = 0, 4
_X32_BIT = 0x40000000
NAMESPACE_FLAGS = 0x7E020080  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET} and NEWTIME
TERMINAL_INJECTION = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
SOCKET_FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_COLUMNS = ("x86_64", "aarch64")

# name: (x86_64, aarch64); None where the architecture has no such call. Numbers above 423 are the same everywhere.
DENIED: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "memfd_secret": (447, 447),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
# Callers fall back to older calls when told that these don't exist. The flags of clone3 are out of a filter's reach.
ABSENT: dict[str, tuple[int, int]] = {
    "clone3": (435, 435),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
_CLONE = (56, 220)
_IOCTL = (16, 29)
_SOCKET = (41, 198)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _argument(index: int) -> int:
    return 16 + 8 * index  # low half of a 64-bit argument; both architectures are little-endian


def _refuse(number: int, error: int) -> list[bytes]:
    return [_instruction(_JUMP_EQUAL, number, 0, 1), _instruction(_RETURN, _ERRNO | error)]


def _guard(number: int, body: list[bytes]) -> list[bytes]:
    """Run `body` (which ends in a return) only for one call."""
    return [_instruction(_JUMP_EQUAL, number, 0, len(body)), *body]


def _argument_rules(column: int) -> list[bytes]:
    clone = [
        _instruction(_LOAD_WORD, _argument(0)),
        _instruction(_JUMP_ANY_BIT, NAMESPACE_FLAGS, 0, 1),
        _instruction(_RETURN, _ERRNO | errno.EPERM),
        _instruction(_RETURN, _ALLOW),
    ]
    ioctl = [_instruction(_LOAD_WORD, _argument(1))]
    for request in TERMINAL_INJECTION:
        ioctl += _refuse(request, errno.EPERM)
    ioctl.append(_instruction(_RETURN, _ALLOW))
    socket = [_instruction(_LOAD_WORD, _argument(0))]
    for family in SOCKET_FAMILIES:
        socket += [_instruction(_JUMP_EQUAL, family, 0, 1), _instruction(_RETURN, _ALLOW)]
    socket.append(_instruction(_RETURN, _ERRNO | errno.EAFNOSUPPORT))
    return [*_guard(_CLONE[column], clone), *_guard(_IOCTL[column], ioctl), *_guard(_SOCKET[column], socket)]


def program(machine: str | None = None) -> bytes:
    """Return the filter for a machine ("x86_64" or "aarch64"; None: this one) as an array of `struct sock_filter`.

    Raises:
        KeyError: there is no table for that machine.
    """
    name = machine or platform.machine()
    arch = AUDIT_ARCH[name]
    column = _COLUMNS.index(name)
    code = [
        _instruction(_LOAD_WORD, _OFFSET_ARCH),
        _instruction(_JUMP_EQUAL, arch, 1, 0),
        _instruction(_RETURN, _KILL_PROCESS),
        _instruction(_LOAD_WORD, _OFFSET_NUMBER),
    ]
    if name == "x86_64":
        code += [_instruction(_JUMP_GREATER_EQUAL, _X32_BIT, 0, 1), _instruction(_RETURN, _ERRNO | errno.ENOSYS)]
    for numbers in DENIED.values():
        number = numbers[column]
        if number is not None:
            code += _refuse(number, errno.EPERM)
    for numbers in ABSENT.values():
        code += _refuse(numbers[column], errno.ENOSYS)
    code += _argument_rules(column)
    code.append(_instruction(_RETURN, _ALLOW))
    return b"".join(code)
