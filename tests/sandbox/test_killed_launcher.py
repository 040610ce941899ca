"""A launcher that is killed costs its sandboxes and nothing else; a killed owner's directory is cleared up by the next one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sanderling.errors import SandboxLost
from sanderling.sandbox.local import LocalBackend
from sanderling.sandbox.protocol import Command, SandboxSpec


def test_a_killed_launcher_is_replaced_and_its_sandboxes_are_lost(bubblewrap):
    async def work(backend) -> None:
        old = await backend.create(SandboxSpec(files={"a": b"1"}))
        assert (await old.exec(Command(argv=("cat", "a")))).stdout == b"1"
        os.kill((await backend.client()).pid, signal.SIGKILL)
        with pytest.raises(SandboxLost):
            await old.exec(Command(argv=("cat", "a")))
        new = await backend.create(SandboxSpec(files={"a": b"2"}))
        assert (await new.exec(Command(argv=("cat", "a")))).stdout == b"2"
        for call in (old.state_key(), old.submission(("*",)), old.exec(Command(argv=("true",))), old.fork()):
            with pytest.raises(SandboxLost):
                await call
        await old.destroy()
        assert (await new.exec(Command(argv=("cat", "a")))).stdout == b"2"
        await new.destroy()

    bubblewrap(work)


def descendants(pid: int) -> list[int]:
    own = [int(word) for file in Path(f"/proc/{pid}/task").glob("*/children") for word in file.read_text().split()]
    return own + [further for child in own for further in descendants(child)]


def test_a_sandbox_that_is_killed_from_outside_is_our_failure(bubblewrap):
    async def work(backend) -> None:
        sandbox, other = [await backend.create(SandboxSpec(files={"a": b"1"})) for _ in range(2)]
        running = asyncio.ensure_future(sandbox.exec(Command(argv=("sleep", "20"), timeout_s=30)))
        launcher, found = (await backend.client()).pid, []
        while not found:
            await asyncio.sleep(0.02)
            programs = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0] for pid in descendants(launcher)}
            asleep = [pid for pid, program in programs.items() if program == b"sleep"]
            found = [pid for pid, program in programs.items() if program.endswith(b"bwrap") and asleep]
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(SandboxLost):
            await running
        assert (await other.exec(Command(argv=("cat", "a")))).stdout == b"1"

    bubblewrap(work)


_OWNER = """
import asyncio, os, signal, sys
from pathlib import Path
from sanderling.sandbox.local import LocalBackend
from sanderling.sandbox.protocol import SandboxSpec

asyncio.run(LocalBackend(Path(sys.argv[1])).create(SandboxSpec(files={"a": b"1"})))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.filterwarnings("ignore:LocalBackend")
def test_what_a_killed_owner_of_local_sandboxes_left_is_removed_by_the_next(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", _OWNER, str(tmp_path)], check=False, capture_output=True)
    (left,) = tmp_path.glob("backend-*")
    assert (left / "1" / "work" / "a").read_bytes() == b"1"
    backend = LocalBackend(tmp_path)
    assert not left.exists()
    asyncio.run(backend.close())
    assert list(tmp_path.iterdir()) == []
