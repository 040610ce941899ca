"""Sandboxes that are containers of Docker or Podman, driven through their command line.

A container per sandbox: no network, no capability, no way to gain privileges, a read-only root, an unprivileged user, limits on
processes, memory and processors, and a size-limited tmpfs at each of its three writable places. Its first process is ours
(`container_init`), so that a command costs no start of a container and ends with everything that it started.

The image is the caller's: it needs a Python 3.11 on its PATH, and nothing is ever pulled.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import threading
from collections.abc import Mapping
from pathlib import Path

from sanderling.errors import SandboxError, SandboxLost, SandboxUnavailable
from sanderling.sandbox import safe_files
from sanderling.sandbox.container_channel import ChannelLost, ContainerChannel
from sanderling.sandbox.container_engine import (
    ContainerPlan,
    Engine,
    EngineError,
    explained,
    find_engine,
    lost,
    run_words,
)
from sanderling.sandbox.container_sandbox import ContainerSandbox, Entries, base_entries
from sanderling.sandbox.container_seccomp import container_profile
from sanderling.sandbox.interpreter import ENVIRONMENT
from sanderling.sandbox.journal import Journal, default_state_dir
from sanderling.sandbox.protocol import Capabilities, Sandbox, SandboxSpec

DEFAULT_IMAGE = "docker.io/library/python:3-slim"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PAGE = 4096


class ContainerBackend:
    """Creates sandboxes that are containers; see `sanderling.sandbox.protocol.SandboxBackend`.

    Args:
        engine: docker or podman, or the path of a program with one of these names in its own.
        image: for sandboxes whose spec names none.
        state_dir: directory for the journal, shared by backends. None: one below the temporary directory. An engine that
            runs elsewhere doesn't see it; specs with read-only files are refused then.
        max_running: commands that may run at once; others wait. None: twice the number of cores.
        cpus: processors that a sandbox may use at once; 0.0: as many as there are.
        python: interpreter of the images that runs the first process, 3.11 or newer.
    """

    def __init__(
        self,
        engine: str = "docker",
        *,
        image: str = DEFAULT_IMAGE,
        state_dir: Path | None = None,
        max_running: int | None = None,
        cpus: float = 1.0,
        python: str = "python3",
    ) -> None:
        self.engine: Engine = find_engine(engine)
        self.alive: dict[str, ContainerSandbox | None] = {}  # by the container's name; None: on its way
        self.unbounded: set[str] = set()  # "memory", "processes": what the engine doesn't limit, as containers saw it
        self._image, self._python, self._cpus = image, python, cpus
        self._state_dir = default_state_dir() if state_dir is None else Path(state_dir)
        self._max_running = max_running or 2 * (os.cpu_count() or 1)
        self._slots: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None
        self._lock = threading.Lock()
        self._journal: Journal | None = None
        self._environments: dict[str, dict[str, str]] = {}  # by image
        self._count = 0
        self._closed = False

    def probe(self) -> Capabilities:
        """Run a sandbox of a backend like this one and say what was found."""
        from sanderling.sandbox.container_doctor import probe_container

        def twin() -> ContainerBackend:
            return ContainerBackend(
                self.engine.program,
                image=self._image,
                state_dir=self._state_dir,
                cpus=self._cpus,
                python=self._python,
            )

        return probe_container(self.engine.kind, twin)

    def slots(self) -> asyncio.Semaphore:
        """Return the semaphore that bounds running commands, for the running event loop."""
        loop = asyncio.get_running_loop()
        if self._slots is None or self._slots[0] is not loop:
            self._slots = (loop, asyncio.Semaphore(self._max_running))
        return self._slots[1]

    async def create(self, spec: SandboxSpec) -> Sandbox:
        """Create a container with the files of `spec`; see `SandboxBackend.create`."""
        if spec.links:
            raise SandboxUnavailable(
                f"a container can't show its workspace at {', '.join(spec.links)}: its root is read-only and the image's own; "
                "use the backend bubblewrap"
            )
        return await self.start_sandbox(spec, base_entries(spec))

    async def start_sandbox(self, spec: SandboxSpec, entries: Entries) -> ContainerSandbox:
        """Start a container and fill it with `entries`.

        Raises:
            SandboxUnavailable: there is no engine, or no such image. SandboxLost: it failed this time.
        """
        image = spec.image or self._image
        try:
            environment = await asyncio.to_thread(self._environment, image)
        except EngineError as error:
            if self._environments:
                raise lost(self.engine, error) from error
            raise SandboxUnavailable(explained(self.engine, error)) from error
        plan = await asyncio.to_thread(self._plan, spec, image)
        self.alive[plan.name] = None
        try:
            channel = await self._open(plan, spec)
            sandbox = ContainerSandbox(self, plan.name, spec, environment, channel)
            self.alive[plan.name] = sandbox
            _check_hello(self.engine, channel, spec, image)
            self.unbounded.update(channel.hello["unbounded"])
            await sandbox.fill(entries)
        except BaseException:
            await self._give_up(plan.name)
            raise
        return sandbox

    async def _open(self, plan: ContainerPlan, spec: SandboxSpec) -> ContainerChannel:
        words = [self.engine.program, *run_words(self.engine.kind, plan)]
        try:
            return await ContainerChannel.open(words, Path(plan.seccomp).parent, spec.limits.sandbox_create_s)
        except ChannelLost as error:
            text = str(error)
            if "3.11 or newer" in text or ("executable file" in text and plan.python in text):
                raise SandboxUnavailable(
                    f"image {plan.image!r} has no Python 3.11 or newer as {plan.python!r}: {text}"
                ) from error
            raise lost(self.engine, error) from error

    async def _give_up(self, name: str) -> None:
        sandbox = self.alive.get(name)
        with contextlib.suppress(SandboxError):
            await (self.remove(name) if sandbox is None else sandbox.destroy())

    def _environment(self, image: str) -> dict[str, str]:
        """Return the environment of commands: the image's own, then ours, but the image's PATH and language."""
        if image not in self._environments:
            own = self.engine.image_environment(image)
            kept = {"PATH": own.get("PATH", _PATH), "LANG": own.get("LANG", ENVIRONMENT["LANG"])}
            if self.engine.kind == "podman":  # in some versions the workspace's top is root's, which git would refuse
                kept["GIT_CONFIG_PARAMETERS"] = "'safe.directory=*'"
            self._environments[image] = {**own, **ENVIRONMENT, **kept}
        return self._environments[image]

    def _plan(self, spec: SandboxSpec, image: str) -> ContainerPlan:
        """Decide on a container and put it on record."""
        journal = self._started()
        with self._lock:
            self._count += 1
            name = f"sanderling-{journal.path.name.removeprefix('backend-')}-{self._count}"
        journal.record("create", "container", name)
        return ContainerPlan(
            name=name,
            owner=journal.path.name,
            image=image,
            python=self._python,
            limits=spec.limits,
            cpus=self._cpus,
            base_bytes=sum(len(content) // _PAGE + 1 for content in spec.files.values()) * _PAGE,
            base_files=sum(path.count("/") + 1 for path in spec.files),
            tools=self._tools(journal, spec.readonly) if spec.readonly else None,
            seccomp=str(journal.path / "seccomp.json"),
        )

    def _started(self) -> Journal:
        with self._lock:
            if self._closed:
                raise SandboxUnavailable("this sandbox backend was closed; create a new one")
            if self._journal is None:
                self._journal = Journal(self._state_dir)
                self._journal.record("create", "engine", self.engine.program)
                (self._journal.path / "seccomp.json").write_text(container_profile())
            return self._journal

    def _tools(self, journal: Journal, files: Mapping[str, bytes]) -> str:
        """Return a directory with these files, shared by all sandboxes with the same ones."""
        digest = hashlib.blake2b(digest_size=12)
        for path in sorted(files):
            digest.update(f"{len(path)}:{path}:{len(files[path])}:".encode() + files[path])
        place = journal.path / f"tools-{digest.hexdigest()}"
        with self._lock:
            if not place.exists():
                place.mkdir(mode=0o755)
                root = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    for path, content in files.items():
                        safe_files.write_plain(root, path, content)
                finally:
                    os.close(root)
        return str(place)

    async def remove(self, name: str) -> None:
        """Remove a container, whatever state it is in.

        Raises:
            SandboxLost: the engine didn't do it; it is tried again by `close`, and after that by the next backend.
        """
        try:
            await asyncio.to_thread(self.engine.remove, [name])
        except EngineError as error:
            raise lost(self.engine, error) from error
        if self.alive.pop(name, self) is not self and self._journal is not None:
            self._journal.record("remove", "container", name)

    async def close(self) -> None:
        """Destroy every sandbox and remove what is left under our label. May be called twice."""
        self._closed = True
        for name, sandbox in list(self.alive.items()):
            with contextlib.suppress(SandboxLost):
                await (self.remove(name) if sandbox is None else sandbox.destroy())
        journal, self._journal = self._journal, None
        if journal is None:
            return
        try:
            left = await asyncio.to_thread(self.engine.owned_by, journal.path.name)
            await asyncio.to_thread(self.engine.remove, left)
        except EngineError:
            journal.leave()  # for the next backend, which finds the containers by their label
        else:
            journal.close()


def _check_hello(engine: Engine, channel: ContainerChannel, spec: SandboxSpec, image: str) -> None:
    """See for ourselves that what was asked for is there.

    Raises:
        SandboxUnavailable: it isn't.
    """
    hello = channel.hello
    if spec.readonly and hello["tools"] != len(spec.readonly):
        raise SandboxUnavailable(
            f"{hello['tools']} of {len(spec.readonly)} read-only files arrived at /tools: {engine.kind} doesn't see this "
            "machine's directories; use an engine that runs here"
        )
    if hello["uid"] == 0 or hello["writable_root"]:
        raise SandboxUnavailable(
            f"{engine.kind} ran {image!r} as root or with a writable root; it isn't used like that"
        )
    if hello["closed"]:
        raise SandboxUnavailable(
            f"{engine.kind} gave commands no right to write to {', '.join(hello['closed'])}; use an image without these "
            "directories, or another engine"
        )


def docker_backend() -> ContainerBackend:
    """Make the backend "docker"."""
    return ContainerBackend("docker")


def podman_backend() -> ContainerBackend:
    """Make the backend "podman"."""
    return ContainerBackend("podman")
