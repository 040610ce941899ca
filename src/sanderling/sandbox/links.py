"""Further names of places in a sandbox, for commands that were written for another layout (`/app`, `/tests`, `/logs`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from sanderling.errors import SandboxUnavailable

_TAKEN = (
    "usr",
    "bin",
    "sbin",
    "lib",
    "lib32",
    "lib64",
    "libx32",
    "etc",
    "dev",
    "proc",
    "run",
    "sys",
    "tmp",
    "tools",
    "work",
)
_TARGETS = ("/work", "/tools")


def link_problem(link: str) -> str | None:
    """Return why a sandbox can't have this absolute path as a further name of a place, None where it can."""
    parts = PurePosixPath(link).parts
    if (
        len(parts) < 2
        or parts[0] != "/"
        or str(PurePosixPath(link)) != link
        or {"..", "."} & set(parts)
        or "\0" in link
    ):
        return f"{link!r} isn't a plain absolute path below /"
    if parts[1] in _TAKEN:
        return f"{link!r} lies in /{parts[1]}, which belongs to the sandbox itself"
    if parts[1] == "home" and (len(parts) == 2 or parts[2] == "agent"):
        return f"{link!r} is the home of the sandbox's user"
    return None


def checked_links(links: Mapping[str, str]) -> dict[str, str]:
    """Return the links of a spec, by their path, shortest first.

    Raises:
        SandboxUnavailable: a path that belongs to the sandbox itself, one inside another, or a target that is neither in the
            workspace nor in /tools.
    """
    for link, target in links.items():
        if (problem := link_problem(link)) is not None:
            raise SandboxUnavailable(f"a sandbox can't link to {target!r} from there: {problem}; take another path")
        place = PurePosixPath(target)
        if ".." in place.parts or not any(place.is_relative_to(top) for top in _TARGETS):
            raise SandboxUnavailable(f"link {link!r} leads to {target!r}; expected a place in {' or '.join(_TARGETS)}")
        if any(link.startswith(f"{other}/") for other in links):
            raise SandboxUnavailable(f"link {link!r} lies inside of another link; give one of them only")
    return dict(sorted(links.items()))
