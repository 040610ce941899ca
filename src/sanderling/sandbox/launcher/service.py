"""The launcher's event loop: requests from the backend, messages from bubblewrap, deaths of children, deadlines."""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from . import command, layers, watchdog, wire
from .cgroups import Home
from .command import Running
from .seats import Seat


class Service:
    """Serves one backend until its end of the socket is closed."""

    def __init__(
        self, sock: socket.socket, mode: dict[str, Any], bubblewrap: int, system: list[str], groups: Home | None
    ) -> None:
        self._sock = sock
        self._mode = mode
        self._overlay = layers.overlay_options(mode)
        self._bubblewrap = bubblewrap
        self._system = system
        self._groups = groups
        self._running: dict[int, Running] = {}  # by request id
        self._selector = selectors.DefaultSelector()
        self._operations: dict[str, Callable[[dict[str, Any]], tuple[dict[str, Any], list[int]]]] = {
            "create_store": self._create_store,
            "drop_store": self._drop_store,
            "open": self._open,
            "view": self._view,
            "finish": self._finish,
            "kill": self._kill,
            "open_kills": self._open_kills,
        }
        self._slow = {"exec": self._exec, "merge": self._merge, "copy": self._copy}
        self._next_look = 0.0
        self._free_seats: list[Seat] = []
        self._taken_seats: dict[int, Seat] = {}  # by request id
        self._seat_count = 0
        self._jobs: dict[int, tuple[int, int]] = {}  # process id: request id, read end of its answer

    def run(self) -> None:
        """Serve until the backend is gone."""
        wake_reader, wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(self._sock, selectors.EVENT_READ, None)
        self._selector.register(wake_reader, selectors.EVENT_READ, None)
        gc.collect()
        gc.freeze()
        while True:
            for key, _ in self._selector.select(self._patience()):
                if key.fileobj is self._sock:
                    if not self._serve_one():
                        return
                elif key.fd == wake_reader:
                    os.read(wake_reader, 4096)
                elif key.data in self._running:
                    self._on_event(key.data, key.fd)
            self._reap()
            self._enforce_deadlines()
            self._watch_memory()

    def _patience(self) -> float | None:
        waiting = [r.deadline for r in self._running.values() if not r.timed_out and r.deadline < math.inf]
        if self._running and self._groups is None:
            waiting.append(self._next_look)
        return max(0.0, min(waiting) - time.monotonic()) if waiting else None

    def _serve_one(self) -> bool:
        received = wire.receive(self._sock)
        if received is None:
            return False
        request, fds = received
        try:
            if request["op"] in self._slow:
                self._slow[request["op"]](request, fds)
                return True
            reply, passed = self._operations[request["op"]](request)
        except OSError as error:
            self._reply(request["id"], {"error": str(error), "errno": error.errno})
            return True
        finally:
            for fd in fds:
                os.close(fd)
        self._reply(request["id"], reply, passed)
        return True

    def _reply(self, number: int, fields: dict[str, Any], fds: list[int] | None = None) -> None:
        try:
            wire.send(self._sock, {"id": number, **fields}, fds or ())
        finally:
            for fd in fds or ():
                os.close(fd)

    def _create_store(self, request: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        layers.create_store(request["store"], request["bytes"], request["inodes"])
        uid, gid = request["uid"], request["gid"]
        layers.create_first(f"{request['store']}/0", uid, gid)
        return {}, [layers.open_directory(request["store"])]

    def _drop_store(self, request: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        layers.drop_store(request["store"])
        return {}, []

    def _open(self, request: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        return {}, [layers.open_directory(request["path"])]

    def _view(self, request: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        upper = request["upper"]
        if upper is not None:
            layers.resize_store(upper.split("/")[0], request["extra"], request["extra_inodes"])
            layers.create_upper(upper)
        return {}, [layers.open_workspace(request["layers"], upper, self._overlay)]

    def _finish(self, request: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        changed = layers.finish_upper(request["upper"])
        return {"changed": changed, "used": layers.used_bytes(request["upper"].split("/")[0])}, []

    def _merge(self, request: dict[str, Any], fds: list[int]) -> None:
        store = request["target"].split("/")[0]
        layers.resize_store(store, request["extra"], request["extra_inodes"])
        self._start_job(
            request, lambda: layers.merge(request["layers"], request["target"], self._overlay, request["obsolete"])
        )

    def _copy(self, request: dict[str, Any], fds: list[int]) -> None:
        layers.resize_store(request["target"].split("/")[0], request["extra"], request["extra_inodes"])
        self._start_job(request, lambda: layers.copy_parts(request["target"], fds))

    def _start_job(self, request: dict[str, Any], work: Callable[[], None]) -> None:
        """Do in a process of its own what takes as long as there is data."""
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            answer: dict[str, Any] = {}
            try:
                work()
                answer = {"used": layers.used_bytes(request["target"].split("/")[0])}
            except OSError as error:
                answer = {"error": str(error), "errno": error.errno}
            finally:
                os.write(writer, json.dumps(answer).encode())
                os._exit(0)
        os.close(writer)
        self._jobs[pid] = (request["id"], reader)

    def _end_job(self, pid: int) -> None:
        number, reader = self._jobs.pop(pid)
        answer = os.read(reader, 65_536) or b'{"error": "the copying process was killed", "errno": null}'
        os.close(reader)
        self._reply(number, json.loads(answer))

    def _kill(self, request: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        running = self._running.get(request["target"])
        if running is not None:
            running.kill()
        return {"found": running is not None}, []

    def _open_kills(self, request: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        """Give a descriptor for `Kills` of what runs; none where no control group bounds it."""
        seat = self._taken_seats.get(request["target"])
        return {}, [] if seat is None else [os.dup(seat.kills.fd)]

    def _exec(self, request: dict[str, Any], fds: list[int]) -> None:
        request["overlay"] = self._overlay
        request["user_namespace"] = self._mode["user_namespace"]
        layers.resize_store(request["upper"].split("/")[0], request["extra"], request["extra_inodes"])
        running = command.start(request, fds, self._launch)
        self._running[request["id"]] = running
        self._selector.register(running.status, selectors.EVENT_READ, request["id"])

    def _launch(self, request: dict[str, Any], fds: list[int]) -> int:
        if self._groups is None:
            pid = os.fork()
            if pid == 0:
                self._become(request, fds)
            return pid
        while self._free_seats:
            seat = self._free_seats.pop()
            try:
                return self._launch_from(seat, request, fds)
            except OSError:
                seat.close()  # what ran there last took it along
        self._seat_count += 1
        seat = Seat(self._groups, f"seat{self._seat_count}", self._become, self._bubblewrap)
        return self._launch_from(seat, request, fds)

    def _launch_from(self, seat: Seat, request: dict[str, Any], fds: list[int]) -> int:
        pid = seat.start(request, fds)
        self._taken_seats[request["id"]] = seat
        return pid

    def _become(self, request: dict[str, Any], fds: Sequence[int]) -> None:
        command.become_bubblewrap(request, fds, self._bubblewrap, self._system)

    def _on_event(self, number: int, fd: int) -> None:
        running = self._running[number]
        if fd == running.init_handle:
            self._selector.unregister(fd)
            running.init_gone = True
            return
        before = len(running.messages)
        if running.read_status():
            self._release(number, running)
        elif len(running.messages) == before:
            self._selector.unregister(running.status)  # bubblewrap closed it

    def _release(self, number: int, running: Running) -> None:
        self._hold(number, running)
        try:
            command.limit_processes(running.init or 0, running.request)
        except OSError as error:
            running.trouble = str(error)
            running.kill()
            return
        with contextlib.suppress(BrokenPipeError):  # it was killed meanwhile; its end is seen elsewhere
            os.write(running.release, b"1")

    def _hold(self, number: int, running: Running) -> None:
        """Get a handle of the sandbox's first process, through which it is killed and its end is seen."""
        try:
            running.init_handle = os.pidfd_open(running.init or 0)
        except OSError:
            running.init_gone = True
            return
        self._selector.register(running.init_handle, selectors.EVENT_READ, number)

    def _reap(self) -> None:
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                pid = 0
            if pid == 0:
                break
            self._note_death(pid)
        for number, running in list(self._running.items()):
            if running.outer_gone and running.init_gone:
                self._complete(number, running)

    def _note_death(self, pid: int) -> None:
        if pid in self._jobs:
            self._end_job(pid)
            return
        for number, running in self._running.items():
            if running.outer == pid:
                running.outer_gone = True
                if running.init_handle is None and running.read_status():
                    self._hold(number, running)
                if running.init_handle is not None:
                    running.kill()
                else:
                    running.init_gone = True
            elif running.init == pid:
                running.init_gone = True

    def _enforce_deadlines(self) -> None:
        now = time.monotonic()
        for running in self._running.values():
            if not running.timed_out and now >= running.deadline:
                running.timed_out = True
                running.kill()

    def _watch_memory(self) -> None:
        if self._groups is not None or not self._running or time.monotonic() < self._next_look:
            return
        children = watchdog.children_by_parent()
        for running in self._running.values():
            limit = running.request["memory_bytes"]
            if running.init is not None and watchdog.tree_bytes(running.init, children, limit) > limit:
                running.over_memory = True
                running.kill()
        self._next_look = time.monotonic() + watchdog.INTERVAL_S

    def _complete(self, number: int, running: Running) -> None:
        del self._running[number]
        for fd in (running.status, running.init_handle):
            if fd is not None and fd in self._selector.get_map():
                self._selector.unregister(fd)
        running.read_status()
        trouble = running.read_trouble()
        running.close()
        seat = self._taken_seats.pop(number, None)
        fields: dict[str, Any] = {
            "out_of_memory": running.over_memory or (seat is not None and seat.ran_out()),
            "exit_code": running.exit_code,
            "timed_out": running.timed_out,
            "duration_s": time.monotonic() - running.started,
            "trouble": trouble,
        }
        if seat is not None:
            self._free_seats.append(seat)
        upper = running.request["upper"]
        try:
            fields |= {"changed": layers.finish_upper(upper), "used": layers.used_bytes(upper.split("/")[0])}
        except OSError as error:  # given up and destroyed while it ran: nothing that the others should suffer from
            fields = {"error": str(error), "errno": error.errno}
        self._reply(number, fields)
