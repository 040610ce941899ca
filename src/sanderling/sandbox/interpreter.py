"""Where the Python that runs us lives, and the environment in which sandboxed commands see it."""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.metadata import entry_points
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
    # sets of strings are walked in one order, so that an episode repeats; graders choose an order of their own
    "PYTHONHASHSEED": "0",
}
_PACKAGES = {"site-packages", "dist-packages"}
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


def hidden_directories(prefix: str) -> list[str]:
    """Return directories below /usr or `prefix` that commands must not see: where packages are installed, and we ourselves.

    An environment's package holds the right answers of its tasks. Installed for the whole machine, as in a container, it
    lies where every sandbox could read it; and a task made from a library must not show an installed release of it. So no
    installed packages are shown inside, neither those of the running interpreter nor those of the one behind its virtual
    environment, nor those of the system's.
    """
    found = {Path(entry).resolve() for entry in sys.path if Path(entry).name in _PACKAGES}
    for top in (Path(prefix, "lib"), Path("/usr/lib"), Path("/usr/local/lib")):
        found |= {path.resolve() for name in _PACKAGES for path in top.glob(f"python3*/{name}")}
    environments = {point.module.partition(".")[0] for point in entry_points(group="sanderling.environments")}
    for name in ("sanderling", *environments):
        spec = importlib.util.find_spec(name)
        found |= {Path(place).resolve() for place in (spec.submodule_search_locations or () if spec else ())}
    shown = [path for path in sorted(found) if path.is_dir() and _is_below(path, Path("/usr"), Path(prefix))]
    return [str(path) for path in shown if not any(other in path.parents for other in shown)]


def _is_below(path: Path, *tops: Path) -> bool:
    return any(top in path.parents for top in tops)
