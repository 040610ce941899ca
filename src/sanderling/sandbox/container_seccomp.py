"""The policy of `launcher.seccomp` as the JSON profile that container engines take."""

from __future__ import annotations

import errno
import json
from typing import Any

from sanderling.sandbox.launcher.seccomp import ABSENT, DENIED, NAMESPACE_FLAGS, SOCKET_FAMILIES, TERMINAL_INJECTION

_LOW_WORD = 0xFFFFFFFF  # what the kernel looks at in an argument that is an int


def container_profile() -> str:
    """Return the profile: the same calls are refused as in every other sandbox.

    A profile has no way to say "none of these", so that the families of sockets between the allowed ones are listed.
    Calls of a foreign architecture, such as those of 32-bit programs, end the process: none is named as allowed.
    """
    families = [number for number in range(max(SOCKET_FAMILIES)) if number not in SOCKET_FAMILIES]
    rules = [
        _rule(sorted(DENIED), errno.EPERM),
        _rule(sorted(ABSENT), errno.ENOSYS),
        *(_rule(["clone"], errno.EPERM, _masked(0, bit, bit)) for bit in _bits(NAMESPACE_FLAGS)),
        *(_rule(["ioctl"], errno.EPERM, _masked(1, _LOW_WORD, request)) for request in TERMINAL_INJECTION),
        *(_rule(["socket"], errno.EAFNOSUPPORT, _masked(0, _LOW_WORD, family)) for family in families),
        _rule(["socket"], errno.EAFNOSUPPORT, {"index": 0, "value": max(SOCKET_FAMILIES), "op": "SCMP_CMP_GT"}),
    ]
    return json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules}, indent=1)


def _rule(names: list[str], error: int, *arguments: dict[str, Any]) -> dict[str, Any]:
    return {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": error, "args": list(arguments)}


def _masked(index: int, mask: int, value: int) -> dict[str, Any]:
    return {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}


def _bits(flags: int) -> list[int]:
    return [1 << place for place in range(32) if flags >> place & 1]
