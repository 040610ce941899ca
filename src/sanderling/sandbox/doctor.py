"""What this machine can run, found by running it: never by looking at versions, and without falling back to less."""

from __future__ import annotations

import asyncio
import platform
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sanderling.errors import SandboxLost, SanderlingError
from sanderling.sandbox.launcher.seccomp import AUDIT_ARCH
from sanderling.sandbox.protocol import Capabilities, Command, SandboxBackend, SandboxSpec

if TYPE_CHECKING:
    from sanderling.sandbox.bubblewrap import BubblewrapBackend

Result = TypeVar("Result")

_PROBE = """
import errno, os, shutil, socket
problems = []
if os.getuid() == 0 or any(line.split()[1].strip("0") for line in open("/proc/self/status") if line.startswith("CapEff")):
    problems.append("commands hold privileges")
names = [n for n in os.listdir("/proc") if n.isdigit()]
if len(names) > 3:
    problems.append(f"{len(names)} processes are visible")
try:
    socket.create_connection(("192.0.2.1", 9), 0.2)
    problems.append("the network is reachable")
except OSError as error:
    if error.errno not in (errno.ENETUNREACH, errno.EHOSTUNREACH):
        problems.append(f"the network answers {error}")
os.unlink("folder/file"); os.rmdir("folder"); os.mkdir("folder")
if os.listdir("folder"):
    problems.append("a removed directory came back")
print("; ".join(problems) or "contained")
"""

_USER_MODE_RISKS = (
    "memory_shared: without a memory control group, memory files that nothing maps aren't counted",
    "kernel_user_limits: all sandboxes share the kernel's limits per user, such as inotify instances",
    "directory_rename: renaming a directory of the base with rename(2) gives EXDEV; `mv` copies instead",
)
_ALWAYS_OPEN = ("shared_kernel: a bug of the kernel is a way out; for hostile code use a backend of virtual machines",)
_NO_GROUPS = ("memory_shared: without a memory control group, memory files that nothing maps aren't counted",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One finding about this machine."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""  # what to do where it isn't ok
    open_risks: tuple[str, ...] = ()  # with which `detail` ends

    def lines(self) -> list[str]:
        """Return what people read: the finding, then each open risk and the remedy on a line of its own."""
        found = self.detail.removesuffix(_risk_text(self.open_risks))
        remedy = [f"     -> {self.remedy}"] if self.remedy and not self.ok else []
        risks = [f"     open: {risk}" for risk in self.open_risks]
        return [f"{'ok  ' if self.ok else 'MISS'} {self.name}: {found}", *risks, *remedy]

    def as_json(self) -> dict[str, str | bool]:
        return {"name": self.name, "ok": self.ok, "detail": self.detail, "remedy": self.remedy}


def examine(state_dir: Path | None = None) -> list[Check]:
    """Find out what the sandbox backends can do on this machine. Prints nothing and raises nothing."""
    from sanderling.sandbox.bubblewrap import find_bubblewrap
    from sanderling.sandbox.container_doctor import probe_engine
    from sanderling.sandbox.control_groups import available
    from sanderling.sandbox.local import LocalBackend

    found = find_bubblewrap()
    machine = platform.machine()
    groups = available()
    checks = [
        Check(
            name="kernel",
            ok=platform.system() == "Linux" and machine in AUDIT_ARCH,
            detail=f"{platform.system()} {platform.release()} on {machine}",
            remedy=f"sandboxes need Linux on one of: {', '.join(AUDIT_ARCH)}",
        ),
        Check(
            name="bubblewrap",
            ok=found is not None,
            detail=found or "no `bwrap` on the PATH",
            remedy="" if found else "apt-get install bubblewrap",
        ),
        Check(
            name="control groups",
            ok=groups is not None,
            detail=groups or "no memory and pids controllers that we may use",
            remedy="" if groups else "run as root, or in a scope that systemd delegates (Delegate=yes)",
        ),
    ]
    checks.append(_as_check(probe_bubblewrap(state_dir)))
    checks += [_as_check(probe_engine(kind)) for kind in ("docker", "podman")]
    checks.append(_as_check(LocalBackend.examine()))
    return checks


def _as_check(capabilities: Capabilities) -> Check:
    return Check(
        name=f"backend {capabilities.name}",
        ok=capabilities.usable,
        detail=f"mode {capabilities.mode}, isolation {capabilities.isolation}{_risk_text(capabilities.open_risks)}",
        remedy="; ".join(capabilities.missing),
        open_risks=capabilities.open_risks,
    )


def _risk_text(risks: tuple[str, ...]) -> str:
    return f"; open: {', '.join(risks)}" if risks else ""


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
    if "an overlay" in message:
        return (
            f"this kernel can't stack the layers of a workspace ({message}). As a plain user that takes Linux 6.6 or newer "
            "(overlays in user namespaces, tmpfs with user attributes); as root, any kernel with overlayfs"
        )
    return (
        f"the sandbox launcher can't set up its namespaces: {message}. Inside a container, give it CAP_SYS_ADMIN "
        "or run it with a seccomp profile that allows user namespaces and mounts"
    )


def _reads(path: Path, value: str) -> bool:
    try:
        return path.read_text().strip() == value
    except OSError:
        return False


def probe_bubblewrap(state_dir: Path | None = None) -> Capabilities:
    """Run a sandbox of the bubblewrap backend and say what it guarantees here."""
    from sanderling.sandbox.bubblewrap import BubblewrapBackend

    backend = BubblewrapBackend(state_dir)
    grouped, missing = False, ()
    try:
        grouped = run_apart(_try_bubblewrap(backend))
    except (SanderlingError, OSError) as error:
        missing = (str(error),)
    risks = _USER_MODE_RISKS if backend.mode == "user" else () if grouped else _NO_GROUPS
    return Capabilities(
        name="bubblewrap",
        mode=backend.mode,
        isolation="namespaces",
        usable=not missing,
        open_risks=(*risks, *_ALWAYS_OPEN),
        missing=missing,
    )


async def _try_bubblewrap(backend: BubblewrapBackend) -> bool:
    """Return whether memory and processes are bounded by the kernel."""
    try:
        await try_sandbox(backend)
        return backend.has_control_groups
    finally:
        await backend.close()


async def try_sandbox(backend: SandboxBackend) -> None:
    """Run a command that looks about itself in a new sandbox.

    Raises:
        SandboxLost: it isn't contained, or failed. SandboxUnavailable: as the backend says.
    """
    sandbox = await backend.create(SandboxSpec(files={"folder/file": b"1"}))
    result = await sandbox.exec(Command(argv=("python3", "-I", "-S", "-c", _PROBE)))
    if result.stdout != b"contained\n":
        text = (result.stdout + result.stderr).decode(errors="replace").strip()
        raise SandboxLost(f"a probing command isn't contained or failed (exit code {result.exit_code}): {text}")
    await sandbox.destroy()


def run_apart(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine in a loop of its own, whether or not the caller is inside one."""
    outcome: list[Result] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(asyncio.run(work))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return outcome[0]
