"""A backend without isolation, for trusted code on machines without namespaces. It has to be asked for by name.

Commands run as the caller, see the whole machine and its network, and can change all of it. What remains is hygiene:
time limits that end the whole process tree, output caps, resource limits per process, files of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TypeVar

from sanderling.errors import SandboxBroken, SandboxError, SandboxLost, SandboxUnavailable
from sanderling.sandbox import digests, safe_files, workspace
from sanderling.sandbox.command_results import judged_led, unrunnable
from sanderling.sandbox.interpreter import ENVIRONMENT
from sanderling.sandbox.journal import Journal, default_state_dir
from sanderling.sandbox.launcher import copying
from sanderling.sandbox.local_command import LocalCommand
from sanderling.sandbox.output import Streams
from sanderling.sandbox.protocol import Capabilities, Command, ExecResult, Kept, Sandbox, SandboxSpec, refuse_image
from sanderling.types import Submission

_WARNING = (
    "LocalBackend runs commands WITHOUT ISOLATION: they can read and change everything that you can, hidden tests included. "
    "Use it for trusted code only; BubblewrapBackend is the default"
)
_NO_SESSIONS = "processes aren't kept between commands, so that Kept.PROCESSES is refused"
_RISKS = (
    "everything: commands run as the calling user with the whole machine and its network in reach",
    "environment_built: home and temporary directory lie at places of the machine that differ from sandbox to sandbox",
    "fork_independent: /tmp is the machine's, shared by all",
    "warm_like_fresh: tracebacks show where /tools lies, which differs from sandbox to sandbox; processes aren't counted",
    "links_lead: there is no root of its own in which a path could be added, so that links are refused",
    f"session_server: {_NO_SESSIONS}",
    f"submission_kills: {_NO_SESSIONS}",
    f"close_leaves_nothing: {_NO_SESSIONS}",
)
_log = logging.getLogger(__name__)

Result = TypeVar("Result")


class LocalBackend:
    """Runs commands without isolation, and says so each time that one is created.

    Args:
        state_dir: where a directory for all sandboxes is made, which `close` removes, or the next backend's start if we are
            killed. None: one below the temporary directory.
        max_running: commands that may run at once; others wait. None: twice the number of cores.
    """

    def __init__(self, state_dir: Path | None = None, *, max_running: int | None = None) -> None:
        warnings.warn(_WARNING, stacklevel=2)
        _log.warning(_WARNING)
        self._journal = Journal(default_state_dir() if state_dir is None else state_dir)
        self._top = self._journal.path
        self._max_running = max_running or 2 * (os.cpu_count() or 1)
        self._slots: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None
        self._sandboxes: dict[str, LocalSandbox] = {}
        self._count = 0

    @staticmethod
    def examine() -> Capabilities:
        """Say what this backend (doesn't) guarantee, without creating one."""
        usable = sys.platform == "linux"
        return Capabilities(
            name="local",
            mode="plain",
            isolation="none",
            usable=usable,
            open_risks=_RISKS,
            missing=() if usable else ("killing whole process trees needs Linux",),
        )

    def probe(self) -> Capabilities:
        """Say what this backend (doesn't) guarantee."""
        return self.examine()

    def slots(self) -> asyncio.Semaphore:
        """Return the semaphore that bounds running commands, for the running event loop."""
        loop = asyncio.get_running_loop()
        if self._slots is None or self._slots[0] is not loop:
            self._slots = (loop, asyncio.Semaphore(self._max_running))
        return self._slots[1]

    async def create(self, spec: SandboxSpec) -> Sandbox:
        """Create a directory with the files of `spec`; see `SandboxBackend.create`."""
        refuse_image(spec, "local")
        if spec.kept is Kept.PROCESSES:
            raise SandboxUnavailable(f"LocalBackend: {_NO_SESSIONS}; use BubblewrapBackend for tasks with a server")
        if spec.links:
            raise SandboxUnavailable(
                f"LocalBackend can't show the workspace at {', '.join(spec.links)}: its commands see the machine's own root; "
                "use BubblewrapBackend"
            )
        sandbox = self.new_sandbox(spec)
        for part, files in (("work", spec.files), ("tools", spec.readonly)):
            root = os.open(sandbox.path / part, os.O_RDONLY | os.O_DIRECTORY)
            try:
                for path, content in files.items():
                    safe_files.write_plain(root, path, content)
            except SandboxError:
                await sandbox.destroy()
                raise
            finally:
                os.close(root)
        return sandbox

    def new_sandbox(self, spec: SandboxSpec) -> LocalSandbox:
        """Return a sandbox without files."""
        self._count += 1
        path = self._top / str(self._count)
        try:
            for part in ("work", "tmp", "home", "tools"):
                (path / part).mkdir(parents=True)
        except OSError as error:
            raise SandboxLost(f"can't make the directory of a sandbox: {error}") from error
        sandbox = LocalSandbox(self, f"local-{os.getpid()}-{self._count}", spec, path)
        self._sandboxes[sandbox.id] = sandbox
        return sandbox

    def forget(self, sandbox: LocalSandbox) -> None:
        self._sandboxes.pop(sandbox.id, None)

    async def close(self) -> None:
        """Remove everything. May be called twice."""
        for sandbox in list(self._sandboxes.values()):
            await sandbox.destroy()
        self._journal.close()


class LocalSandbox:
    """A directory; see `sanderling.sandbox.protocol.Sandbox`."""

    def __init__(self, backend: LocalBackend, identity: str, spec: SandboxSpec, path: Path) -> None:
        self.id = identity
        self.path = path
        self._backend = backend
        self._spec = spec

    async def exec(self, command: Command) -> ExecResult:
        """Run a command; see `Sandbox.exec`."""
        self._check_alive()
        refusal = unrunnable(command)
        if refusal is not None:
            return refusal
        argv = [
            word.replace("/tools/", f"{self.path}/tools/") if word.startswith("/tools/") else word
            for word in command.argv
        ]
        async with self._backend.slots():
            began = time.monotonic()
            with Streams(command.stdin, self._spec.limits.output_bytes) as streams:
                running = LocalCommand(argv, command, self._spec.limits, self._environment(command), self.path / "work")
                answer = await running.run(streams)
        return judged_led(answer, streams, command, time.monotonic() - began)

    def _environment(self, command: Command) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
        places = {"HOME": str(self.path / "home"), "TMPDIR": str(self.path / "tmp"), "PATH": path}
        return {**ENVIRONMENT, **places, **self._spec.env, **command.env}

    async def read_file(self, path: str, max_bytes: int = 1_048_576) -> bytes:
        """Read a plain file of the workspace; see `Sandbox.read_file`."""
        with self._workspace() as root:
            return safe_files.read_plain(root, path, max_bytes)

    async def write_file(self, path: str, content: bytes) -> None:
        """Write a plain file of the workspace; see `Sandbox.write_file`."""
        with self._workspace() as root:
            try:
                safe_files.write_plain(root, path, content)
            except OSError as error:
                raise SandboxBroken(f"can't write {path!r}: {error.strerror}") from error

    async def list_files(self) -> tuple[str, ...]:
        """Return the plain files of the workspace; see `Sandbox.list_files`."""
        return await self._inspect(workspace.plain_files)

    async def state_key(self) -> str:
        """Return a digest of the workspace's content; see `Sandbox.state_key`."""
        return digests.state_key(await self._inspect(digests.scan))

    async def submission(self, editable: Sequence[str], max_bytes: int = 1_048_576) -> Submission:
        """Take out the change; see `Sandbox.submission`."""
        base = self._spec.files
        return await self._inspect(lambda root: workspace.submission(root, base, editable, max_bytes))

    async def fork(self) -> LocalSandbox:
        """Return a copy; see `Sandbox.fork`."""
        self._check_alive()
        twin = self._backend.new_sandbox(self._spec)
        try:
            await asyncio.to_thread(_copy, self.path, twin.path)
        except OSError as error:
            await twin.destroy()
            raise SandboxBroken(f"the files of the sandbox can't be copied: {error}") from error
        return twin

    async def destroy(self) -> None:
        """Remove everything; see `Sandbox.destroy`."""
        self._backend.forget(self)
        await asyncio.to_thread(_remove, self.path)

    async def _inspect(self, look: Callable[[int], Result]) -> Result:
        with self._workspace() as root:
            return await asyncio.to_thread(look, root)

    @contextlib.contextmanager
    def _workspace(self) -> Generator[int]:
        self._check_alive()
        try:
            root = os.open(self.path / "work", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise SandboxBroken(f"the workspace can't be entered any more: {error.strerror}") from error
        try:
            yield root
        finally:
            os.close(root)

    def _check_alive(self) -> None:
        if not self.path.exists():
            raise SandboxLost(f"sandbox {self.id} was destroyed; create a new one")


def _copy(source: Path, target: Path) -> None:
    for part in ("work", "tmp", "home", "tools"):
        fds = [os.open(place / part, os.O_RDONLY | os.O_DIRECTORY) for place in (source, target)]
        try:
            copying.copy_tree(fds[0], fds[1])
        finally:
            for fd in fds:
                os.close(fd)


def _remove(path: Path) -> None:
    if path.exists():
        for directory, names, _ in os.walk(path):  # what the commands closed has to be opened to be emptied
            for inner in (Path(directory, name) for name in names):
                with contextlib.suppress(OSError):
                    if not inner.is_symlink():
                        inner.chmod(0o700)
        shutil.rmtree(path, ignore_errors=True)
