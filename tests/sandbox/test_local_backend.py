"""The backend without isolation: loud, and hygienic all the same."""

from __future__ import annotations

import asyncio
import os
import time
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from sanderling.errors import SandboxUnavailable
from sanderling.sandbox.local import LocalBackend
from sanderling.sandbox.protocol import Command, Kept, SandboxSpec
from sanderling.types import Limits


def run(tmp_path: Path, work: Callable[[LocalBackend], Awaitable]):
    async def main():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            backend = LocalBackend(tmp_path)
        try:
            return await work(backend)
        finally:
            await backend.close()

    outcome = asyncio.run(main())
    assert list(tmp_path.iterdir()) == []
    return outcome


def test_it_warns_each_time(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.warns(UserWarning, match="WITHOUT ISOLATION"):
            backend = LocalBackend(tmp_path)
        assert backend.probe().isolation == "none"
        asyncio.run(backend.close())


def test_a_daemon_is_found_and_killed(tmp_path: Path) -> None:
    async def work(backend):
        sandbox = await backend.create(SandboxSpec(files={}))
        daemon = "setsid sh -c '(while :; do date +%N >>beat; sleep 0.05; done) &' & sleep 0.3; echo out"
        ended = await sandbox.exec(Command(argv=("sh", "-c", daemon)))
        began = time.monotonic()
        cut = await sandbox.exec(Command(argv=("sh", "-c", f"{daemon}; while :; do :; done"), timeout_s=1.0))
        took = time.monotonic() - began
        first = await sandbox.read_file("beat")
        await asyncio.sleep(0.3)
        return ended, cut, took, first == await sandbox.read_file("beat")

    ended, cut, took, still = run(tmp_path, work)
    assert (ended.exit_code, ended.stdout, ended.timed_out) == (0, b"out\n", False)
    assert (cut.exit_code, cut.stdout, cut.timed_out) == (137, b"out\n", True)
    assert took < 2.5
    assert still


def test_files_limits_and_forks(tmp_path: Path) -> None:
    async def work(backend):
        spec = SandboxSpec(
            files={"a.py": b"1"}, readonly={"tool.py": b"print(open('a.py').read())"}, limits=Limits(disk_mb=1)
        )
        sandbox = await backend.create(spec)
        tool = await sandbox.exec(Command(argv=("python3", "/tools/tool.py")))
        big = await sandbox.exec(Command(argv=("sh", "-c", "head -c 5000000 /dev/zero > big")))
        await sandbox.exec(Command(argv=("sh", "-c", "rm big; echo 2 > a.py; ln -s a.py link; chmod 0 .")))
        await sandbox.destroy()
        sandbox = await backend.create(spec)
        await sandbox.exec(Command(argv=("sh", "-c", "echo 2 > a.py; ln -s a.py link")))
        fork = await sandbox.fork()
        await fork.write_file("a.py", b"3")
        missing = await fork.exec(Command(argv=("no-such-program",)))
        nowhere = await fork.exec(Command(argv=("true",), cwd="no/such"))
        keys = (await sandbox.state_key(), await fork.state_key())
        return tool, big, await sandbox.submission(["*.py"]), await fork.submission(["*.py"]), missing, nowhere, keys

    tool, big, submitted, forked, missing, nowhere, keys = run(tmp_path, work)
    assert tool.stdout == b"1\n"
    assert big.exit_code != 0
    assert dict(submitted.files) == {"a.py": b"2\n"}
    assert [(refusal.path, refusal.reason) for refusal in submitted.refused] == [("link", "symbolic link")]
    assert dict(forked.files) == {"a.py": b"3"}
    assert (missing.exit_code, nowhere.exit_code) == (127, 126)
    assert keys[0] != keys[1]


def test_sessions_are_refused_and_the_host_environment_stays_out(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(os.environ, "A_SECRET", "1")

    async def work(backend):
        with pytest.raises(SandboxUnavailable, match="PROCESSES"):
            await backend.create(SandboxSpec(files={}, kept=Kept.PROCESSES))
        sandbox = await backend.create(SandboxSpec(files={}))
        return await sandbox.exec(Command(argv=("env",)))

    assert b"A_SECRET" not in run(tmp_path, work).stdout
