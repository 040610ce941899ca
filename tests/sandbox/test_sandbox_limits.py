"""Limits: a limit is a limit, whatever a command does about it."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from sanderling.errors import SandboxLost
from sanderling.sandbox.journal import leftovers
from sanderling.sandbox.protocol import Command, Kept, SandboxSpec
from sanderling.types import Limits

# probe: limit 1 s; each has to be back within 1.5 s, with its output, and with nothing alive
COMMANDS = {
    "endless loop": "echo before; while :; do :; done",
    "background child and exit 0": "echo before; sleep 10 & exit 0",
    "child in a session of its own": "echo before; setsid sh -c 'while :; do date +%N >>beat; sleep 0.1; done' & sleep 9",
    "double fork": "echo before; (setsid sh -c '(while :; do date +%N >>beat; sleep 0.1; done) &' &); sleep 9",
}


def living_with(mark: str) -> list[int]:
    """Return the processes of this machine whose environment or command line holds `mark`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue
            if mark.encode() in text and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize("kept", Kept)
@pytest.mark.parametrize("script", COMMANDS.values(), ids=list(COMMANDS))
def test_probe_d9_a_limit_is_a_limit(bubblewrap, script: str, kept: Kept) -> None:
    mark = f"d9-{os.getpid()}-{time.monotonic_ns()}"

    async def probe(backend):
        sandbox = await backend.create(SandboxSpec(files={"a": b""}, kept=kept))
        await sandbox.exec(Command(argv=("true",)))  # starts the launcher, and the session
        began = time.monotonic()
        result = await sandbox.exec(Command(argv=("sh", "-c", script), env={"MARK": mark}, timeout_s=1.0))
        took = time.monotonic() - began
        expected = script != COMMANDS["background child and exit 0"]
        alive = living_with(mark)
        sizes = []
        for _ in range(2):
            beat = await sandbox.exec(Command(argv=("sh", "-c", "cat beat 2>/dev/null | wc -c")))
            sizes.append(int(beat.stdout))
            await asyncio.sleep(0.15)
        await sandbox.destroy()
        return result, took, expected, alive, sizes

    result, took, cut, alive, sizes = bubblewrap(probe)
    assert took < 1.5
    assert result.timed_out == cut
    assert result.exit_code == (137 if cut else 0)
    assert result.stdout == b"before\n"
    assert sizes[0] == sizes[1], "a process of the sandbox still writes"
    if cut or kept is not Kept.PROCESSES:  # there, what was left in the background on purpose lives on until the end
        assert alive == []
    assert living_with(mark) == []


def test_background_child_does_not_delay_the_return(bubblewrap) -> None:
    async def run(backend):
        sandbox = await backend.create(SandboxSpec(files={}))
        await sandbox.exec(Command(argv=("true",)))
        began = time.monotonic()
        result = await sandbox.exec(Command(argv=("sh", "-c", "sleep 8 & echo done"), timeout_s=9.0))
        return result, time.monotonic() - began

    result, took = bubblewrap(run)
    assert (result.exit_code, result.stdout, result.timed_out) == (0, b"done\n", False)
    assert took < 4


def test_a_gibibyte_of_output_is_drained_and_not_held(bubblewrap) -> None:
    def resident_kib() -> int:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1])
        raise AssertionError("no VmHWM")

    async def run(backend):
        sandbox = await backend.create(SandboxSpec(files={}, limits=Limits(output_bytes=1000)))
        await sandbox.exec(Command(argv=("true",)))
        before = resident_kib()
        script = "echo first; head -c 1073741824 /dev/zero; echo last"
        result = await sandbox.exec(Command(argv=("sh", "-c", script), timeout_s=60.0, cpu_s=60.0))
        return result, resident_kib() - before

    result, grown_kib = bubblewrap(run)
    assert result.exit_code == 0
    assert result.stdout.startswith(b"first\n\0") and result.stdout.endswith(b"\0last\n")
    assert len(result.stdout) + result.omitted_bytes == (1 << 30) + len(b"first\nlast\n")
    assert grown_kib < 16 * 1024


def test_a_cancelled_command_is_dead_when_the_cancellation_arrives(bubblewrap) -> None:
    mark = f"cancel-{os.getpid()}-{time.monotonic_ns()}"

    async def run(backend):
        sandbox = await backend.create(SandboxSpec(files={}))
        await sandbox.exec(Command(argv=("true",)))
        task = asyncio.create_task(sandbox.exec(Command(argv=("sleep", "9"), env={"MARK": mark})))
        while not living_with(mark):
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        alive = living_with(mark)
        return alive, await sandbox.exec(Command(argv=("echo", "still", "here")))

    alive, after = bubblewrap(run)
    assert alive == []
    assert after.stdout == b"still here\n"


def test_more_commands_than_slots_all_run(bubblewrap) -> None:
    async def run(backend):
        async def one(number: int) -> bytes:
            sandbox = await backend.create(SandboxSpec(files={"n": str(number).encode()}))
            result = await sandbox.exec(Command(argv=("cat", "n")))
            await sandbox.destroy()
            return result.stdout

        return await asyncio.gather(*(one(number) for number in range(64)))

    assert bubblewrap(run) == [str(number).encode() for number in range(64)]


def test_a_dead_launcher_is_our_failure(bubblewrap) -> None:
    async def run(backend):
        sandbox = await backend.create(SandboxSpec(files={}))
        client = await backend.client()
        task = asyncio.create_task(sandbox.exec(Command(argv=("sleep", "9"))))
        await asyncio.sleep(0.3)
        os.kill(client.pid, 9)
        with pytest.raises(SandboxLost):
            await task
        with pytest.raises(SandboxLost):
            await sandbox.exec(Command(argv=("true",)))

    bubblewrap(run)


def test_a_cancelled_creation_leaves_no_store(bubblewrap) -> None:
    async def run(backend):
        await (await backend.create(SandboxSpec(files={}))).destroy()
        for steps in range(6):
            task = asyncio.create_task(backend.create(SandboxSpec(files={"a": b"1"})))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if not task.cancelled():
                await task.result().destroy()
        assert backend._journal is not None
        return [left for left in leftovers(backend._journal.path / "journal.jsonl") if left["kind"] == "store"]

    assert bubblewrap(run) == []


def test_words_that_no_system_takes_are_the_caller_s(bubblewrap) -> None:
    async def run(backend):
        sandbox = await backend.create(SandboxSpec(files={}))
        return await sandbox.exec(Command(argv=("echo", "\ud800")))

    result = bubblewrap(run)
    assert (result.exit_code, result.stderr) == (
        126,
        b"sandbox: a command, its environment and its directory can't hold lone surrogates\n",
    )
