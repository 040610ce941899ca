"""Layers: what forks, squashing and digests make of them is the same workspace that the commands see."""

from __future__ import annotations

import random

import pytest

from sanderling.sandbox import digests
from sanderling.sandbox.protocol import Command, Kept, SandboxSpec
from sanderling.types import Limits

BASE = {"a.py": b"x = 1\n", "pkg/b.py": b"y = 2\n", "pkg/deep/c.txt": b"c", "run.sh": b"#!/bin/sh\n"}
OPERATIONS = (
    "echo {n} > a.py",
    "echo {n} >> pkg/b.py",
    "mkdir -p new{m}/inner && echo {n} > new{m}/inner/f",
    "rm -rf pkg && mkdir pkg && echo {n} > pkg/only",
    "rm -rf new{m}",
    "rm -f a.py && mkdir -p a.py",
    "rm -rf a.py && echo back > a.py",
    "mv pkg moved{m} 2>/dev/null || true; mkdir -p pkg",
    "ln -sf a.py link{m}",
    "rm -f link{m} && echo plain > link{m}",
    "chmod +x run.sh",
    "chmod -x run.sh",
    "ln -f run.sh hard{m}",
    "mkfifo fifo{m} 2>/dev/null || true",
    "touch a.py 2>/dev/null",
    "true",
    "rm -rf pkg && echo file > pkg",
    "rm -rf pkg && mkdir -p pkg/deep && echo {n} > pkg/deep/c.txt",
    "chmod 000 run.sh",
    "chmod 700 run.sh",
    "chmod 000 pkg",
    "chmod 755 pkg",
)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))])
def test_digest_of_layers_equals_digest_of_the_merged_tree(bubblewrap, seed: int) -> None:
    random_source = random.Random(seed)

    async def run(backend):
        sandbox = await backend.create(SandboxSpec(files=BASE))
        await sandbox.state_key()
        for number in range(30):
            script = random_source.choice(OPERATIONS).format(n=number, m=number % 3)
            await sandbox.exec(Command(argv=("sh", "-c", script)))
            by_layers = await sandbox.state_key()
            view = await sandbox._open_view()
            assert by_layers == digests.state_key(digests.scan(view)), f"after {script!r}"

    bubblewrap(run)


def test_a_command_that_changes_nothing_keeps_the_digest(bubblewrap) -> None:
    async def run(backend):
        sandbox = await backend.create(SandboxSpec(files=BASE))
        keys = [await sandbox.state_key()]
        for script in ("cat a.py", "echo scratch > /tmp/x; echo rc > ~/.rc", "cp a.py b; rm b", "touch a.py"):
            await sandbox.exec(Command(argv=("sh", "-c", script)))
            keys.append(await sandbox.state_key())
        twin = await backend.create(SandboxSpec(files=dict(reversed(BASE.items()))))
        keys.append(await twin.state_key())
        await sandbox.exec(Command(argv=("chmod", "+x", "a.py")))
        return keys, await sandbox.state_key()

    keys, executable = bubblewrap(run)
    assert len(set(keys)) == 1
    assert executable != keys[0]


def test_squashing_changes_nothing_and_bounds_the_layers(bubblewrap) -> None:
    async def run(backend):
        sandbox = await backend.create(SandboxSpec(files=BASE))
        await sandbox.exec(Command(argv=("sh", "-c", "rm -r pkg; echo s > /tmp/s; ln run.sh twin; ln -s a.py l")))
        fork = await sandbox.fork()
        deepest = 0
        for number in range(34):
            await sandbox.exec(Command(argv=("sh", "-c", f"echo {number} >> log; echo {number} > /tmp/n")))
            await sandbox.state_key()  # as an episode asks for it before every action
            deepest = max(deepest, len(sandbox._stack.layers))
        listing = "ls -R . /tmp | sort; cat log /tmp/n /tmp/s a.py; stat -c '%h %a %u' twin log; readlink l"
        seen = await sandbox.exec(Command(argv=("sh", "-c", listing)))
        key = await sandbox.state_key()
        view = await sandbox._open_view()
        forked = await fork.exec(Command(argv=("sh", "-c", "ls; cat /tmp/s")))
        return deepest, seen, key == digests.state_key(digests.scan(view)), forked.stdout

    deepest, seen, same, forked = bubblewrap(run)
    assert deepest <= 33
    assert seen.exit_code == 0
    lines = seen.stdout.decode().splitlines()
    assert [str(n) for n in range(34)] == lines[lines.index("0") : lines.index("0") + 34]
    assert "2 644 1000" in lines and lines[-1] == "a.py"
    assert same
    assert forked == b"a.py\nl\nrun.sh\ntwin\ns\n"


def test_an_agent_that_fills_its_disk_loses_nothing_but_its_time(bubblewrap) -> None:
    async def run(backend):
        sandbox = await backend.create(SandboxSpec(files=BASE, limits=Limits(disk_mb=4)))
        await sandbox.exec(Command(argv=("sh", "-c", "echo 1 > n")))
        await sandbox.state_key()
        filled = await sandbox.exec(
            Command(argv=("sh", "-c", "head -c 9M /dev/zero > a; head -c 9M /dev/zero > b; echo ok"))
        )
        key = await sandbox.state_key()
        view = await sandbox._open_view()
        submission = await sandbox.submission(("a.py",))
        return filled, key == digests.state_key(digests.scan(view)), submission

    filled, same, submission = bubblewrap(run)
    assert filled.stdout == b"ok\n"
    assert same
    assert {refusal.path for refusal in submission.refused} == {"a", "b", "n"}


def test_what_was_deleted_is_free_again_and_the_limit_holds(bubblewrap) -> None:
    limits = Limits(disk_mb=8)

    async def run(backend):
        sandbox = await backend.create(SandboxSpec(files=BASE, limits=limits))
        codes = []
        for _ in range(6):  # 36 MiB in all, never more than 6 at once
            filled = await sandbox.exec(Command(argv=("sh", "-c", "rm -f big; head -c 6291456 /dev/zero > big")))
            codes.append(filled.exit_code)
        spill = "for i in 1 2 3 4; do head -c 6291456 /dev/zero > more$i || exit 3; done"
        over = await sandbox.exec(Command(argv=("sh", "-c", spill)))
        again = await sandbox.exec(Command(argv=("sh", "-c", "rm -f big more*; ls")))
        fresh = await sandbox.exec(Command(argv=("sh", "-c", "head -c 6291456 /dev/zero > big")))
        return codes, over.exit_code, again, fresh.exit_code

    codes, over, again, fresh = bubblewrap(run)
    assert codes == [0] * 6
    assert over == 3
    assert (again.exit_code, again.stdout) == (0, b"a.py\npkg\nrun.sh\n")
    assert fresh == 0


def test_a_fork_outlives_its_parent(bubblewrap) -> None:
    async def run(backend):
        parent = await backend.create(SandboxSpec(files=BASE, readonly={"check.py": b"print('tool')"}))
        await parent.exec(Command(argv=("sh", "-c", "echo p > made; echo t > /tmp/t")))
        child = await parent.fork()
        await parent.destroy()
        grandchild = await child.fork()
        await child.destroy()
        result = await grandchild.exec(Command(argv=("sh", "-c", "cat made /tmp/t; python3 /tools/check.py")))
        await grandchild.destroy()
        return result.stdout

    assert bubblewrap(run) == b"p\nt\ntool\n"


def test_a_session_forks_and_submits_its_files(bubblewrap) -> None:
    async def run(backend):
        sandbox = await backend.create(SandboxSpec(files=BASE, kept=Kept.PROCESSES))
        await sandbox.exec(Command(argv=("sh", "-c", "(while :; do :; done) & echo 1 > a.py; echo t > /tmp/t")))
        await sandbox.write_file("host.txt", b"h")
        fork = await sandbox.fork()
        seen = await fork.exec(Command(argv=("sh", "-c", "cat a.py host.txt /tmp/t")))
        await sandbox.exec(Command(argv=("sh", "-c", "kill -9 -1")))
        after = await sandbox.exec(Command(argv=("cat", "host.txt")))
        return seen.stdout, after.stdout, await sandbox.submission(["*"])

    seen, after, submitted = bubblewrap(run)
    assert seen == b"1\nht\n"
    assert after == b"h"
    assert dict(submitted.files) == {"a.py": b"1\n", "host.txt": b"h"}
    assert submitted.refused == ()


def test_a_mark_that_a_command_sets_itself_misleads_no_digest(bubblewrap) -> None:
    mark = "import os; [os.setxattr('pkg', f'user.overlay.{name}', b'y') for name in ('opaque', 'redirect')]"

    async def look(backend):
        sandbox = await backend.create(SandboxSpec(files=BASE))
        before = await sandbox.state_key()
        await sandbox.exec(Command(argv=("python3", "-I", "-S", "-c", mark)))
        return before, await sandbox.state_key()

    before, after = bubblewrap(look)
    assert before == after  # attributes aren't content
