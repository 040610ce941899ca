"""What this machine can run, found by running it."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from pathlib import Path

from sanderling.errors import SanderlingError
from sanderling.sandbox.protocol import Capabilities, Command, SandboxSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One finding about this machine."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


def explain_namespace_failure(message: str, mode: str) -> str:
    """Say why the launcher couldn't enter its namespaces, and what helps."""
    restricted = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
    if mode == "user" and _reads(restricted, "1"):
        return (
            f"AppArmor restricts user namespaces on this machine ({message}). Allow them for this Python with a profile, "
            "or with `sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or run as root"
        )
    if mode == "user" and _reads(Path("/proc/sys/user/max_user_namespaces"), "0"):
        return (
            f"user namespaces are switched off ({message}); set `sysctl user.max_user_namespaces=10000` or run as root"
        )
    if mode == "user" and _reads(Path("/proc/sys/kernel/unprivileged_userns_clone"), "0"):
        return f"user namespaces need root here ({message}); set `sysctl kernel.unprivileged_userns_clone=1` or run as root"
    return (
        f"the sandbox launcher can't set up its namespaces: {message}. Inside a container, give it CAP_SYS_ADMIN "
        "or run a seccomp profile that allows user namespaces and mounts"
    )


def _reads(path: Path, value: str) -> bool:
    try:
        return path.read_text().strip() == value
    except OSError:
        return False


def probe_bubblewrap(state_dir: Path | None = None) -> Capabilities:
    """Run a sandbox of the bubblewrap backend."""
    from sanderling.sandbox.bubblewrap import BubblewrapBackend

    backend = BubblewrapBackend(state_dir)
    try:
        _run_apart(_try_sandbox(backend))
        missing: tuple[str, ...] = ()
    except (SanderlingError, OSError) as error:
        missing = (str(error),)
    return Capabilities(
        name="bubblewrap", mode=backend.mode, isolation="namespaces", usable=not missing, open_risks=(), missing=missing
    )


async def _try_sandbox(backend) -> None:
    try:
        sandbox = await backend.create(SandboxSpec(files={"a": b"1"}))
        result = await sandbox.exec(Command(argv=("cat", "a")))
        if result.stdout != b"1":
            raise OSError(f"a command gave {result.stdout!r} instead of b'1': {result.stderr!r}")
        await sandbox.destroy()
    finally:
        await backend.close()


def _run_apart(work) -> None:
    """Run a coroutine in a loop of its own, whether or not the caller is inside one."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(work)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
