"""What the container backends guarantee on this machine, found by running a container."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sanderling.errors import SanderlingError
from sanderling.sandbox.protocol import Capabilities

if TYPE_CHECKING:
    from sanderling.sandbox.container import ContainerBackend

_ALWAYS_OPEN = (
    "shared_kernel: a bug of the kernel is a way out; for hostile code use an engine whose runtime makes virtual machines",
    "links_lead: the root is the image's own and read-only, so that links are refused",
    "interpreter: python3 is the image's own, whose version may differ from ours",
)
_DOCKER_OPEN = (
    "engine_access: whoever may use docker's daemon is as good as root on this machine; commands can't reach it",
)
_PODMAN_OPEN = (
    "many_files: a tmpfs of podman takes no bound on its inodes; empty files count against the memory limit alone",
)
_UNBOUNDED = {
    "memory": (
        "memory_total: the engine sets no limit on memory here; each process has one, but not all together",
        "memory_shared: the engine sets no limit on memory here, and shared memory isn't counted",
    ),
    "processes": ("fork_bomb: the engine sets no limit on processes here",),
}


def probe_container(kind: str, make: Callable[[], ContainerBackend]) -> Capabilities:
    """Run a sandbox of the backend that `make` makes and say what it guarantees here."""
    from sanderling.sandbox.doctor import run_apart, try_sandbox

    async def attempt() -> set[str]:
        backend = make()
        try:
            await try_sandbox(backend)
        finally:
            await backend.close()
        return backend.unbounded

    missing: tuple[str, ...] = ()
    unbounded: set[str] = set()
    try:
        unbounded = run_apart(attempt())
    except (SanderlingError, OSError) as error:
        missing = (str(error),)
    return Capabilities(
        name=kind,
        mode="container",
        isolation="container",
        usable=not missing,
        open_risks=(
            *(risk for name in sorted(unbounded) for risk in _UNBOUNDED[name]),
            *(_PODMAN_OPEN if kind == "podman" else _DOCKER_OPEN),
            *_ALWAYS_OPEN,
        ),
        missing=missing,
    )


def probe_engine(kind: str) -> Capabilities:
    """Probe the backend "docker" or "podman" with its own settings."""
    from sanderling.sandbox.container import ContainerBackend

    return probe_container(kind, lambda: ContainerBackend(kind))
