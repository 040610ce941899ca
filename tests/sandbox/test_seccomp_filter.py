"""The system call filter, run by a small interpreter of classic BPF, for both architectures."""

from __future__ import annotations

import errno
import struct

import pytest

from sanderling.sandbox.launcher import seccomp

ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
OTHER = {"x86_64": 0xC00000B7, "aarch64": 0x40000028}
CLONE, IOCTL, SOCKET = {"x86_64": 56, "aarch64": 220}, {"x86_64": 16, "aarch64": 29}, {"x86_64": 41, "aarch64": 198}
# read, write, execve, wait4, connect, memfd_create, rename, mkdir and the like
HARMLESS = {
    "x86_64": (0, 1, 59, 61, 42, 319, 82, 83, 257, 202),
    "aarch64": (63, 64, 221, 260, 203, 279, 38, 34, 56, 98),
}


def decide(program: bytes, arch: int, number: int, arguments: tuple[int, ...] = ()) -> int:
    """Interpret the filter for one call and return its verdict."""
    padded = (*arguments, *(0,) * (6 - len(arguments)))
    data = struct.pack("=IIQ6Q", number, arch, 0, *padded)
    code = [struct.unpack_from("=HBBI", program, place) for place in range(0, len(program), 8)]
    accumulator, counter = 0, 0
    while True:
        operation, if_true, if_false, value = code[counter]
        counter += 1
        if operation == 0x20:
            accumulator = struct.unpack_from("=I", data, value)[0]
        elif operation == 0x06:
            return value
        else:
            outcome = {
                0x15: accumulator == value,
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }[operation]
            counter += if_true if outcome else if_false


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_verdicts(machine: str) -> None:
    program = seccomp.program(machine)
    arch = seccomp.AUDIT_ARCH[machine]
    column = ("x86_64", "aarch64").index(machine)
    for name, numbers in seccomp.DENIED.items():
        if numbers[column] is not None:
            assert decide(program, arch, numbers[column]) == REFUSE | errno.EPERM, name
    for name, numbers in seccomp.ABSENT.items():
        assert decide(program, arch, numbers[column]) == REFUSE | errno.ENOSYS, name
    for number in HARMLESS[machine]:
        assert decide(program, arch, number) == ALLOW, number
    assert decide(program, OTHER[machine], 0) == KILL


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_arguments_decide(machine: str) -> None:
    program, arch = seccomp.program(machine), seccomp.AUDIT_ARCH[machine]
    ordinary_thread = 0x3D0F00
    assert decide(program, arch, CLONE[machine], (ordinary_thread,)) == ALLOW
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert decide(program, arch, CLONE[machine], (flag | 17,)) == REFUSE | errno.EPERM
    assert decide(program, arch, IOCTL[machine], (0, 0x5401)) == ALLOW
    assert decide(program, arch, IOCTL[machine], (0, 0x5412)) == REFUSE | errno.EPERM
    assert decide(program, arch, IOCTL[machine], (0, (7 << 32) | 0x5412)) == REFUSE | errno.EPERM
    assert [decide(program, arch, SOCKET[machine], (family,)) for family in (1, 2, 10, 16)] == [ALLOW] * 4
    for family in (17, 38, 40):  # packet, algorithms, virtual sockets to the hypervisor
        assert decide(program, arch, SOCKET[machine], (family,)) == REFUSE | errno.EAFNOSUPPORT


def test_the_second_numbering_of_x86_is_refused() -> None:
    program, arch = seccomp.program("x86_64"), seccomp.AUDIT_ARCH["x86_64"]
    assert decide(program, arch, 0x40000000 | 101) == REFUSE | errno.ENOSYS
