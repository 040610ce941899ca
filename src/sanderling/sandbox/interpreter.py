"""Where the Python that runs us lives, and the environment in which sandboxed commands see it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sanderling.errors import SandboxUnavailable
from sanderling.sandbox.launcher.root import INTERPRETER_BIN

ENVIRONMENT = {
    "PATH": f"{INTERPRETER_BIN}:/usr/local/bin:/usr/bin:/bin",
    "HOME": "/home/agent",
    "USER": "agent",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "TMPDIR": "/tmp",
    # bytecode holds the time of its source: with it, equal workspaces would get unequal digests
    "PYTHONDONTWRITEBYTECODE": "1",
}
_TOO_MUCH = {"/", "/home", "/root", "/opt", "/etc", "/var", "/tmp"}


def base_interpreter() -> tuple[str, str]:
    """Return the prefix and the executable of the interpreter behind any virtual environment.

    Raises:
        SandboxUnavailable: its prefix is a directory that must not be shown to sandboxed commands.
    """
    prefix = os.path.realpath(sys.base_prefix)
    if prefix in _TOO_MUCH or prefix == str(Path.home()):
        raise SandboxUnavailable(
            f"the running Python has the prefix {prefix}, which can't be shown to sandboxed commands; "
            "use an interpreter with a directory of its own, such as /usr/bin/python3"
        )
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for name in (f"python{version}", "python3", "python"):
        candidate = Path(prefix, "bin", name)
        if candidate.exists():
            return prefix, os.path.realpath(candidate)
    raise SandboxUnavailable(f"no python executable in {prefix}/bin; sandboxed commands need one")
