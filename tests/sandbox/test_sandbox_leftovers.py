"""What a killed backend leaves behind, and what the next one makes of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sanderling.sandbox.journal import Journal, leftovers, sweep

_OWNER = """
import asyncio, sys
from pathlib import Path
from sanderling.sandbox.bubblewrap import BubblewrapBackend
from sanderling.sandbox.protocol import Command, Kept, SandboxSpec

async def main():
    backend = BubblewrapBackend(Path(sys.argv[1]))
    sandbox = await backend.create(SandboxSpec(files={"a": b"1"}, kept=Kept.PROCESSES))
    await sandbox.exec(Command(argv=("sh", "-c", "sleep 300 &"), env={"MARK": sys.argv[2]}))
    print("ready", flush=True)
    await asyncio.sleep(300)

asyncio.run(main())
"""


def living_with(mark: str) -> int:
    count = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                count += mark.encode() in (entry / "environ").read_bytes()
            except OSError:
                continue
    return count


def test_nothing_survives_a_killed_owner(bubblewrap, tmp_path: Path) -> None:
    mark = f"leftover-{os.getpid()}-{time.monotonic_ns()}"
    state = tmp_path / "state"
    owner = subprocess.Popen([sys.executable, "-c", _OWNER, str(state), mark], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"ready\n"
    (directory,) = state.glob("backend-*")
    created = leftovers(directory / "journal.jsonl")
    assert {entry["kind"] for entry in created} >= {"launcher", "store"}
    assert sweep(state) == []  # its owner lives
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    end = time.monotonic() + 10
    while living_with(mark) and time.monotonic() < end:
        time.sleep(0.02)
    assert living_with(mark) == 0
    bubblewrap(lambda backend: backend.client())  # starting one in the same state directory sweeps
    assert not directory.exists()
    assert not any(Path(entry["name"]).exists() for entry in created if entry["kind"] == "cgroup")


def test_a_journal_survives_a_torn_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for event, name in (("create", "one"), ("create", "two"), ("remove", "one")):
        journal.record(event, "store", name)
    path = journal.path / "journal.jsonl"
    path.write_text(path.read_text() + '{"event": "cre')
    assert [entry["name"] for entry in leftovers(path)] == ["two"]
    assert [json.loads(line)["event"] for line in path.read_text().splitlines()[:3]] == ["create", "create", "remove"]
    journal.close()
    assert list(tmp_path.iterdir()) == []


def test_a_directory_whose_owner_is_just_starting_is_left_alone(tmp_path: Path) -> None:
    starting = tmp_path / "backend-1-a"
    starting.mkdir()
    assert sweep(tmp_path) == []
    (starting / "owner.lock").touch()  # made, not yet held
    assert sweep(tmp_path) == []
    os.utime(starting, (0, 0))
    assert sweep(tmp_path) == [starting.name]


def test_a_state_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can make a link that belongs to somebody else")
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    os.chown(link, 61_423, 61_423, follow_symlinks=False)
    with pytest.raises(PermissionError, match="61423"):
        Journal(link)
