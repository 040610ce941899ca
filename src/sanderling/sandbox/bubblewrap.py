"""The default backend: bubblewrap, hardened by a launcher of our own, over copy-on-write layers.

Modes: "root" gives every sandbox its own unprivileged host user and lets real root mount the overlays; "user" does the
same inside a user namespace of the caller. Neither falls back to anything weaker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sanderling.errors import SandboxError, SandboxLost, SandboxUnavailable
from sanderling.sandbox import safe_files
from sanderling.sandbox.control_groups import ControlGroupHome, create_home
from sanderling.sandbox.host_users import HostUsers
from sanderling.sandbox.interpreter import base_interpreter, hidden_directories
from sanderling.sandbox.journal import Journal, default_state_dir
from sanderling.sandbox.launcher_client import LauncherClient, LauncherError
from sanderling.sandbox.layered_sandbox import LayeredSandbox
from sanderling.sandbox.layers import Stack, Store
from sanderling.sandbox.links import checked_links
from sanderling.sandbox.protocol import Capabilities, Sandbox, SandboxSpec, refuse_image

_log = logging.getLogger(__name__)
_NAME = "bubblewrap"
_INSIDE_ID = 1000
_INODES = 100_000
_BASE_SLACK = 1 << 20
_ID_LOCKS = Path("/run/sanderling")


class BubblewrapBackend:
    """Creates sandboxes of namespaces; see `sanderling.sandbox.protocol.SandboxBackend`.

    Args:
        state_dir: directory for locks, journal and log; shared by backends. None: one below the temporary directory.
        max_running: commands that may run at once; others wait. None: twice the number of cores.
    """

    def __init__(self, state_dir: Path | None = None, *, max_running: int | None = None) -> None:
        self._state_dir = default_state_dir() if state_dir is None else Path(state_dir)
        self._max_running = max_running or 2 * (os.cpu_count() or 1)
        self._slots: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None
        self._start_lock = threading.Lock()
        self._client: LauncherClient | None = None
        self._journal: Journal | None = None
        self._users: HostUsers | None = None
        self._groups: ControlGroupHome | None = None
        self._user_counts: dict[int, int] = {}
        self._sandboxes: dict[str, LayeredSandbox] = {}
        self._count = 0
        self._closed = False
        self.launcher = 0  # number of the launcher in use: a sandbox ends with its own

    @property
    def mode(self) -> str:
        """ "root" or "user"."""
        return "root" if os.geteuid() == 0 else "user"

    @property
    def has_control_groups(self) -> bool:
        """Whether the kernel bounds memory and processes of whole trees; known once the launcher runs."""
        return self._groups is not None

    def probe(self) -> Capabilities:
        """Run a sandbox of a backend like this one and say what was found."""
        from sanderling.sandbox.doctor import probe_bubblewrap

        return probe_bubblewrap(self._state_dir)

    def slots(self) -> asyncio.Semaphore:
        """Return the semaphore that bounds running commands, for the running event loop."""
        loop = asyncio.get_running_loop()
        if self._slots is None or self._slots[0] is not loop:
            self._slots = (loop, asyncio.Semaphore(self._max_running))
        return self._slots[1]

    async def client(self) -> LauncherClient:
        """Return the launcher's client, started on first use, and again when somebody killed it.

        Raises:
            SandboxUnavailable: this machine can't run it; the message says what is missing.
        """
        if self._client is None or self._client.dead:
            await asyncio.to_thread(self._start)
        assert self._client is not None
        return self._client

    def _start(self) -> None:
        with self._start_lock:
            if self._client is not None and not self._client.dead:
                return
            if self._closed:
                raise SandboxUnavailable("this sandbox backend was closed; create a new one")
            settings = launcher_settings(self.mode)
            try:
                journal = self._journal = self._journal or Journal(self._state_dir)
                if self._client is None:
                    self._prepare(journal)
                else:
                    _log.warning("the sandbox launcher was killed: its sandboxes are lost, a new one is started")
                    self._client.close()
                    self.launcher += 1
                settings["base"] = str(journal.path / "root")
                with contextlib.ExitStack() as stack:
                    fds = _group_descriptors(self._groups, stack)
                    settings["cgroup_version"] = self._groups.version if self._groups else 0
                    journal.record("create", "launcher", self.mode)
                    self._client = LauncherClient(settings, journal.path / "launcher.log", fds)
            except BaseException as error:
                self._release()
                if isinstance(error, LauncherError):
                    raise SandboxUnavailable(_explain(error, self.mode)) from error
                raise

    def _prepare(self, journal: Journal) -> None:
        if self.mode == "root":
            self._users = HostUsers(_ID_LOCKS if os.access(_ID_LOCKS.parent, os.W_OK) else default_state_dir())
        (journal.path / "root").mkdir()
        self._groups = create_home(journal, f"sanderling-{journal.path.name}")

    async def create(self, spec: SandboxSpec) -> Sandbox:
        """Create a sandbox with the files of `spec`; see `SandboxBackend.create`."""
        checked_links(spec.links)
        refuse_image(spec, "bubblewrap")
        client = await self.client()
        uid = self._take_user()
        try:
            store, tools = await self._create_store(client, spec, uid)
        except BaseException:
            self.give_back_user(uid)
            raise
        stack = Stack(store=store, layers=[f"{store.name}/0"], held=[store])
        return self.adopt(LayeredSandbox(self, spec, stack, owner=uid, tools=tools))

    async def _create_store(self, client: LauncherClient, spec: SandboxSpec, uid: int) -> tuple[Store, str | None]:
        sizes = [len(content) for content in (*spec.files.values(), *spec.readonly.values())]
        pages = sum(size // 4096 + 1 for size in sizes) * 4096
        store, top = await self.new_store(client, pages + _BASE_SLACK, uid)
        owner = (uid, uid) if self.mode == "root" else None
        try:
            _fill(top, "0/work", spec.files, owner)
            if spec.readonly:
                os.mkdir("tools", 0o755, dir_fd=top)
                _fill(top, "tools", spec.readonly, None)
            usage = os.fstatvfs(top)
        except BaseException:
            await self.drop(store)
            raise
        finally:
            os.close(top)
        store.pristine_bytes = (usage.f_blocks - usage.f_bfree) * usage.f_frsize
        return store, f"{store.name}/tools" if spec.readonly else None

    async def new_store(self, client: LauncherClient, size: int, uid: int) -> tuple[Store, int]:
        """Mount a new store for a sandbox of `uid`; return it and a descriptor of its top directory."""
        assert self._journal is not None
        self._count += 1
        name = f"s{self._count}"
        self._journal.record("create", "store", name)
        inside = uid if self.mode == "root" else _INSIDE_ID
        fields = {"store": name, "bytes": size, "inodes": _INODES, "uid": inside, "gid": inside}
        try:
            reply = await client.call("create_store", fields)
        except LauncherError as error:
            self._journal.record("remove", "store", name)
            raise SandboxLost(f"can't create a sandbox: {error}") from error
        except asyncio.CancelledError:
            await self.drop(
                Store(name=name, launcher=self.launcher, users=1)
            )  # asked for after the creation, hence done after it
            raise
        return Store(name=name, launcher=self.launcher, users=1), reply.fds[0]

    async def drop(self, store: Store) -> None:
        """Give up one use of a store; the last one unmounts it."""
        store.users -= 1
        if store.users == 0 and self._client is not None and self._journal is not None:
            if store.launcher == self.launcher:
                await self._client.call("drop_store", {"store": store.name})
            self._journal.record("remove", "store", store.name)

    def adopt(self, sandbox: LayeredSandbox) -> LayeredSandbox:
        self._sandboxes[sandbox.id] = sandbox
        return sandbox

    def next_id(self) -> str:
        """Return an id that is unique on this machine at this time."""
        self._count += 1
        return f"{_NAME}-{os.getpid()}-{self._count}"

    def forget(self, sandbox: LayeredSandbox) -> None:
        self._sandboxes.pop(sandbox.id, None)

    def _take_user(self) -> int:
        if self._users is None:
            return os.getuid()
        uid = self._users.take()
        self._user_counts[uid] = 1
        return uid

    def share_user(self, uid: int) -> None:
        """Count one more sandbox of a host user: forks stand on layers that belong to the same one."""
        if self._users is not None:
            self._user_counts[uid] += 1

    def give_back_user(self, uid: int) -> None:
        """Count one sandbox less; the host user of none is free again."""
        if self._users is None:
            return
        self._user_counts[uid] -= 1
        if self._user_counts[uid] == 0:
            del self._user_counts[uid]
            self._users.give_back(uid)

    async def close(self) -> None:
        """Destroy every sandbox and stop the launcher. May be called twice."""
        self._closed = True
        for sandbox in list(self._sandboxes.values()):
            with contextlib.suppress(SandboxError):
                await sandbox.destroy()
        await asyncio.to_thread(self._release)

    def _release(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._groups is not None and self._journal is not None:
            self._groups.remove(self._journal)
            self._groups = None
        if self._users is not None:
            self._users.close()
            self._users = None
        if self._journal is not None:
            self._journal.close()
            self._journal = None


def _fill(top: int, where: str, files: Mapping[str, bytes], owner: tuple[int, int] | None) -> None:
    root = safe_files.open_beneath(top, where, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for path, content in files.items():
            safe_files.write_plain(root, path, content, owner)
    except OSError as error:
        raise SandboxLost(f"can't write the base of a sandbox: {error}") from error
    finally:
        os.close(root)


def _group_descriptors(home: ControlGroupHome | None, stack: contextlib.ExitStack) -> list[int]:
    fds: list[int] = []
    for path in home.paths if home is not None else ():
        fds.append(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        stack.callback(os.close, fds[-1])
    return fds


def find_bubblewrap() -> str | None:
    """Return the path of bubblewrap's executable, None where it isn't installed."""
    found = shutil.which("bwrap", path=os.environ.get("PATH", "") + ":/usr/bin:/usr/local/bin")
    return None if found is None else os.path.realpath(found)


def launcher_settings(mode: str) -> dict[str, Any]:
    """Return what the launcher has to know.

    Raises:
        SandboxUnavailable: bubblewrap isn't installed, or the interpreter can't be shown.
    """
    bubblewrap = find_bubblewrap()
    if bubblewrap is None:
        raise SandboxUnavailable(
            "bubblewrap isn't installed (no `bwrap` on the PATH); install it with `apt-get install bubblewrap` "
            "or your distribution's package of that name"
        )
    if (
        "--disable-userns"
        not in subprocess.run([bubblewrap, "--help"], check=False, capture_output=True, text=True).stdout
    ):
        raise SandboxUnavailable(
            f"{bubblewrap} is too old: it knows no --disable-userns; install bubblewrap 0.8 or newer"
        )
    prefix, executable = base_interpreter()
    return {
        "user_namespace": mode == "user",
        "bubblewrap": bubblewrap,
        "prefix": prefix,
        "executable": executable,
        "hidden": hidden_directories(prefix),
    }


def _explain(error: LauncherError, mode: str) -> str:
    from sanderling.sandbox.doctor import explain_namespace_failure

    return explain_namespace_failure(str(error), mode)
