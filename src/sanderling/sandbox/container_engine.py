"""The command line of a container engine: which words it takes, and what its failures mean.

Docker and Podman take the same words for almost everything. Where they differ: a tmpfs of Podman takes no number of inodes,
has its own word for its owner, and is filled from the image unless it is told not to; Podman passes proxy variables on and adds
writable places to a read-only root unless it is told not to.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sanderling.errors import SandboxLost, SandboxUnavailable
from sanderling.sandbox.container_channel import BOOT
from sanderling.types import Limits

OWNER_LABEL = "sanderling.owner"
# In a range that systems leave unused: a user of the host would share limits and keyrings with commands.
USER_ID = 61_000
_MIB = 1 << 20
_OWN_MEMORY = 64 * _MIB  # of the first process, and what the kernel charges for directories and inodes
_INODES = 50_000
_MOST_PROCESSES = 32_768  # of the user in all containers; the engine's own wish may be more than it is allowed
_COMMAND_S = 60.0
_SWEEP_S = 10.0  # who clears up after another backend doesn't wait long for an engine that hangs
_ENGINES = {"docker": "docker.io (Debian, Ubuntu) or docker-ce", "podman": "podman"}


class EngineError(Exception):
    """A command of the engine failed; the message is its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One container engine: the kind of its words, and the program."""

    kind: str  # "docker" or "podman"
    program: str

    def run(self, *words: str, limit_s: float = _COMMAND_S) -> str:
        """Run a command of the engine and return its standard output. Blocks.

        Raises:
            EngineError: it failed or didn't end within `limit_s`.
        """
        try:
            done = subprocess.run(
                [self.program, *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=limit_s,
                check=False,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired as error:
            raise EngineError(f"`{self.kind} {words[0]}` didn't end within {limit_s:g} s") from error
        except OSError as error:
            raise EngineError(f"{self.program} can't be started: {error.strerror}") from error
        if done.returncode != 0:
            text = " ".join(done.stderr.decode(errors="replace").split())
            raise EngineError(text or f"`{self.kind} {words[0]}` ended with {done.returncode} and said nothing")
        return done.stdout.decode(errors="replace")

    def remove(self, names: Sequence[str], limit_s: float = _COMMAND_S) -> None:
        """Kill and remove containers; those that are gone already are no failure."""
        for name in names:
            try:
                self.run("rm", "--force", "--volumes", name, limit_s=limit_s)
            except EngineError as error:
                if "no such container" not in str(error).lower() and "no container with" not in str(error).lower():
                    raise

    def owned_by(self, owner: str, limit_s: float = _COMMAND_S) -> list[str]:
        """Return the ids of all containers of one backend, running or not."""
        words = ("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={OWNER_LABEL}={owner}")
        return self.run(*words, limit_s=limit_s).split()

    def state(self, name: str) -> dict[str, Any] | None:
        """Return the state of a container as the engine accounts for it, None where there is no such container."""
        try:
            return json.loads(self.run("inspect", "--type", "container", "--format", "{{json .State}}", name))
        except EngineError as error:
            if "no such" in str(error).lower():
                return None
            raise

    def image_environment(self, image: str) -> dict[str, str]:
        """Return the environment that an image gives its programs.

        Raises:
            SandboxUnavailable: the engine doesn't have the image. EngineError: it doesn't answer.
        """
        try:
            answer = self.run("image", "inspect", "--format", "{{json .Config.Env}}", image)
        except EngineError as error:
            if "no such image" in str(error).lower() or "not known" in str(error).lower():
                raise SandboxUnavailable(
                    f"{self.kind} has no image {image!r}; get it with `{self.kind} pull {image}` or name another one as "
                    "`sandbox.image`. Nothing is pulled on its own"
                ) from error
            raise
        return dict(entry.split("=", 1) for entry in json.loads(answer) or [] if "=" in entry)


def find_engine(name: str) -> Engine:
    """Return the engine of a name ("docker", "podman") or of a path whose last part holds one of these.

    Raises:
        SandboxUnavailable: no such program.
    """
    kind = next((kind for kind in reversed(_ENGINES) if kind in Path(name).name), None)
    if kind is None:
        raise SandboxUnavailable(
            f"{name!r} is no container engine; expected docker or podman, or the path of one of them"
        )
    found = shutil.which(name)
    if found is None:
        raise SandboxUnavailable(f"no program {name!r} on the PATH; install {_ENGINES[kind]}, or use bubblewrap")
    return Engine(kind=kind, program=str(Path(found).absolute()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPlan:
    """What one container is made of."""

    name: str
    owner: str
    image: str
    python: str  # of the image, for the first process
    limits: Limits
    cpus: float  # processors at once; 0.0: as many as there are
    base_bytes: int  # of the files that stand in the workspace at first; they don't count against the disk limit
    base_files: int
    tools: str | None  # directory of this machine, shown at /tools
    seccomp: str  # path of a profile


def run_words(kind: str, plan: ContainerPlan) -> list[str]:
    """Return the words of `run` for a container whose first process is ours, with its streams attached."""
    limits = plan.limits
    disk = limits.disk_mb * _MIB
    memory = limits.memory_mb * _MIB + disk + plan.base_bytes + _OWN_MEMORY
    words = ["run", "--interactive", "--name", plan.name, "--label", f"{OWNER_LABEL}={plan.owner}", "--pull", "never"]
    words += ["--network", "none", "--ipc", "private", "--hostname", "sandbox", "--log-driver", "none"]
    words += ["--stop-signal", "KILL"]  # or some engines wait ten seconds for a process 1 that heeds no signal
    words += ["--user", f"{USER_ID}:{USER_ID}", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    words += ["--security-opt", f"seccomp={plan.seccomp}", "--read-only"]
    words += ["--pids-limit", str(limits.processes + 2), "--memory", str(memory), "--memory-swap", str(memory)]
    if plan.cpus:
        words += ["--cpus", f"{plan.cpus:g}"]
    for name, value in {"core": 0, "nofile": 1024, "nproc": _process_limit()}.items():
        words += ["--ulimit", f"{name}={value}:{value}"]
    words += ["--shm-size", str(disk // 8)]
    # One tmpfs can't stand at three places, so that the limit is shared out.
    for place, size, inodes in (
        ("/work", disk // 2 + plan.base_bytes, _INODES + plan.base_files),
        ("/tmp", disk // 4, _INODES // 5),
        ("/home/agent", disk // 8, _INODES // 5),
    ):
        words += _tmpfs(kind, place, size, inodes)
    if kind == "podman":
        words += ["--read-only-tmpfs=false", "--http-proxy=false", "--systemd=false"]
    if plan.tools is not None:
        words += ["--volume", f"{plan.tools}:/tools:ro,z"]
    return [*words, "--workdir", "/work", "--entrypoint", plan.python, plan.image, "-I", "-S", "-X", "utf8", "-c", BOOT]


def _tmpfs(kind: str, place: str, size: int, inodes: int) -> list[str]:
    if kind == "docker":
        owner = f"mode=755,uid={USER_ID},gid={USER_ID}"
        return ["--tmpfs", f"{place}:rw,exec,nosuid,nodev,size={size},nr_inodes={inodes},{owner}"]
    # `U` gives it to the user in some versions; in the others everybody may write
    return ["--mount", f"type=tmpfs,destination={place},tmpfs-size={size},tmpfs-mode=1777,U=true,notmpcopyup"]


def _process_limit() -> int:
    ceiling = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    return _MOST_PROCESSES if ceiling == resource.RLIM_INFINITY else min(ceiling, _MOST_PROCESSES)


def remove_leftovers(program: str, owner: str) -> bool:
    """Remove the containers of a backend that is dead; False where its engine can't be asked now."""
    engine = Engine(kind="docker", program=program)
    try:
        engine.remove(engine.owned_by(owner, _SWEEP_S), _SWEEP_S)
    except EngineError:
        return False
    return True


def explained(engine: Engine, error: Exception) -> str:
    """Say what an engine's failure means and what helps."""
    text = str(error)
    lower = text.lower()
    if "cannot connect" in lower or "is the docker daemon running" in lower or "connection refused" in lower:
        return f"{engine.kind}'s daemon doesn't answer ({text}); start it, or set its address as the engine's client expects"
    if "permission denied" in lower and "sock" in lower:
        return f"this user may not use {engine.kind} ({text}); join its group, or use podman, which needs no daemon"
    return f"{engine.kind}: {text}"


def lost(engine: Engine, error: Exception) -> SandboxLost:
    """Return the error for a failure of the engine while a run goes on."""
    return SandboxLost(explained(engine, error))
