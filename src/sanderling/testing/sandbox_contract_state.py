"""What state keys, forks, submissions and the end of a sandbox promise."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from sanderling.errors import SandboxError
from sanderling.sandbox.protocol import Command, Kept, Sandbox, SandboxBackend, SandboxSpec
from sanderling.testing.sandbox_attacks_resources import refuse_survivors
from sanderling.testing.sandbox_canaries import PREFIX, SCRATCH_PLACES, new_token, scratch_name
from sanderling.testing.sandbox_check import (
    SMALL,
    Breach,
    Check,
    Kind,
    NotApplicable,
    attack,
    contract,
    expect,
    expect_equal,
    processes_with,
    program,
    run_inside,
    sandbox_of,
)
from sanderling.types import JsonValue, Submission

_OTHERS_MOUNTS_S = 30.0  # how long a mount of another program, which this process sees as well, may stay

BASE = {"a.py": b"a = 1\n", "b.py": b"b = 1\n", "gone.py": b"g = 1\n", "notes.txt": b"n\n", "pkg/c.py": b"c = 1\n"}


async def shell(sandbox: Sandbox, script: str) -> None:
    """Run a shell script that has to succeed."""
    result = await sandbox.exec(Command(argv=("sh", "-ec", script)))
    expect_equal(result.exit_code, 0, f"exit code of {script!r} (stderr {result.stderr[-200:]!r})")


async def state_key_equal(backend: SandboxBackend) -> None:
    """Equal content gives equal keys, however and whenever it came to be."""
    async with sandbox_of(backend, BASE) as first, sandbox_of(backend, {"a.py": b"other"}) as second:
        name = PREFIX + new_token()
        key = await first.state_key()
        for path, content in reversed(BASE.items()):
            await second.write_file(path, content)
        expect_equal(await second.state_key(), key, "key of the same content written later")
        await shell(first, f"touch -d 2001-01-01 a.py pkg; echo scratch >/tmp/{name}; echo scratch >~/{name}")
        expect_equal(await first.state_key(), key, "key after other times and scratch files outside the workspace")
        await shell(first, f"rm /tmp/{name} ~/{name}")
        await shell(first, "cat a.py >copy; rm a.py; cat copy >a.py; rm copy; chmod 600 b.py")
        expect_equal(await first.state_key(), key, "key after rewriting the same content")


async def state_key_changes(backend: SandboxBackend) -> None:
    """Each change of content gives a new key, and undoing it gives the old one back."""
    changes = {
        "content": ("echo x >>a.py", "echo 'a = 1' >a.py"),
        "executable bit": ("chmod +x a.py", "chmod -x a.py"),
        "new file": ("echo >new", "rm new"),
        "deleted file": ("rm a.py", "echo 'a = 1' >a.py"),
        "renamed file": ("mv a.py z.py", "mv z.py a.py"),
        "link": ("ln -s a.py link", "rm link"),
        "file replaced by a link": ("rm a.py; ln -s b.py a.py", "rm a.py; echo 'a = 1' >a.py"),
        "FIFO": ("mkfifo fifo", "rm fifo"),
        "name and content shifted": ("rm b.py; printf 'b.pyb = 1\n' >b", "rm b; echo 'b = 1' >b.py"),
    }
    async with sandbox_of(backend, BASE) as sandbox:
        before = await sandbox.state_key()
        seen = {before: "the base"}
        for what, (do, undo) in changes.items():
            await shell(sandbox, do)
            key = await sandbox.state_key()
            expect(key not in seen, f"{what}: the key equals that of {seen.get(key)}")
            seen[key] = what
            await shell(sandbox, undo)
            expect_equal(await sandbox.state_key(), before, f"key after undoing: {what}")


async def fork_independent(backend: SandboxBackend) -> None:
    """A fork starts equal in workspace, /tmp and home, and afterwards neither side sees the other's changes."""
    with scratch_name() as name:
        t, h = f"/tmp/{name}", f"~/{name}"
        async with sandbox_of(backend, BASE) as parent:
            await shell(parent, f"echo 1 >made; rm gone.py; mkdir d; echo t >{t}; echo h >{h}; mv notes.txt d/")
            async with _fork_of(parent) as child:
                expect_equal(await child.state_key(), await parent.state_key(), "key of the fork")
                expect_equal(await child.list_files(), await parent.list_files(), "files of the fork")
                expect(child.id != parent.id, f"the fork has its parent's id {child.id!r}")
                await shell(child, f"[ $(cat {t}) = t ]; [ $(cat {h}) = h ]; echo c >made; echo c >{t}; rm d/notes.txt")
                await shell(
                    parent, f"[ $(cat made) = 1 ]; [ $(cat {t}) = t ]; [ -e d/notes.txt ]; echo p >late; echo p >{h}"
                )
                await shell(child, f"[ ! -e late ]; [ $(cat {h}) = h ]; [ $(cat made) = c ]")
                async with _fork_of(child) as grandchild:
                    expect_equal(await grandchild.read_file("made"), b"c\n", "file of a fork of the fork")
                    await parent.destroy()
                    await shell(grandchild, "[ $(cat made) = c ]; echo g >made")
                    await shell(child, "[ $(cat made) = c ]")


@asynccontextmanager
async def _fork_of(sandbox: Sandbox) -> AsyncGenerator[Sandbox]:
    fork = await sandbox.fork()
    try:
        yield fork
    finally:
        await fork.destroy()


async def fork_many_turns(backend: SandboxBackend) -> None:
    """Forty turns and a fork at each fifth keep every file right."""
    async with sandbox_of(backend, BASE) as sandbox:
        forks: dict[int, Sandbox] = {}
        try:
            for turn in range(40):
                await sandbox.write_file("counter", str(turn).encode())
                await sandbox.write_file(f"turn-{turn}", b"x")
                if turn % 5 == 0:
                    forks[turn] = await sandbox.fork()
            for turn, fork in forks.items():
                expect_equal(await fork.read_file("counter"), str(turn).encode(), f"counter of the fork at turn {turn}")
                expect_equal(len(await fork.list_files()), len(BASE) + turn + 2, f"files of the fork at turn {turn}")
            await shell(sandbox, "[ $(cat counter) = 39 ]")
        finally:
            for fork in forks.values():
                await fork.destroy()


@asynccontextmanager
async def submitted(
    backend: SandboxBackend, script: str, editable: tuple[str, ...] = ("*.py",), max_bytes: int = 10_000
) -> AsyncGenerator[Submission]:
    async with sandbox_of(backend, BASE) as sandbox:
        await shell(sandbox, script)
        yield await sandbox.submission(editable, max_bytes=max_bytes)


async def submission_takes(backend: SandboxBackend) -> None:
    """Edited and new plain files under editable paths are taken out, whole; unchanged ones aren't."""
    script = (
        "echo 'a = 2' >a.py; mkdir -p new/dir; echo n >new/dir/n.py; echo 'c = 2' >pkg/c.py; touch b.py; chmod +x b.py"
    )
    async with submitted(backend, script, ("*.py",)) as taken:
        expected: Mapping[str, bytes] = {"a.py": b"a = 2\n", "new/dir/n.py": b"n\n", "pkg/c.py": b"c = 2\n"}
        found = {path: content for path, content in taken.files.items() if path != "b.py"}
        expect_equal(found, expected, "files of the submission")
        expect_equal(taken.files.get("b.py", BASE["b.py"]), BASE["b.py"], "a file whose mode alone changed")
    async with submitted(backend, "true") as taken:
        expect_equal((dict(taken.files), taken.refused), ({}, ()), "submission without a change")


REFUSALS = {
    "link": ("ln -s /etc/passwd bad.py", "bad.py"),
    "replaced_by_link": ("rm a.py; ln -s b.py a.py", "a.py"),
    "directory_link": ("rm -r pkg; ln -s /etc pkg", "pkg"),
    "hard_link": ("ln b.py bad.py", "bad.py"),
    "fifo": ("mkfifo bad.py", "bad.py"),
    "setuid": ("echo 1 >bad.py; chmod 4755 bad.py", "bad.py"),
    "setgid": ("echo 1 >bad.py; chmod 2755 bad.py", "bad.py"),
    "too_large": ("head -c 20000 /dev/zero >bad.py", "bad.py"),
    "not_editable": ("echo 2 >notes.txt", "notes.txt"),
    "new_not_editable": ("echo 2 >conftest.cfg", "conftest.cfg"),
    "deleted": ("rm gone.py", "gone.py"),
    "directory": ("rm a.py; mkdir a.py", "a.py"),
    "not_utf8": ("printf x >\"$(printf 'b\\377d.py')\"", "b"),
    "not_utf8_directory": ('d="$(printf \'b\\377d\')"; mkdir "$d"; echo 1 >"$d/x.py"', "b"),
}


def _submission_refusal(kind: str, script: str, path: str) -> Check:
    async def run(backend: SandboxBackend) -> None:
        async with submitted(backend, f"{script}; echo 'good = 1' >good.py") as taken:
            expect_equal(dict(taken.files), {"good.py": b"good = 1\n"}, "files of the submission")
            refused = {refusal.path: refusal.reason for refusal in taken.refused}
            hits = [found for found in refused if found == path or (len(path) == 1 and found.startswith(path))]
            hits += [found for found in refused if found.startswith(path + "/")]
            expect(hits, f"expected {path!r} among the refused changes, got {refused}")
            expect(all(refused[hit] for hit in hits), f"a refusal needs a reason, got {refused}")

    description = f"A submission refuses with a reason: {kind.replace('_', ' ')}."
    return Check(id=f"submission_refuses_{kind}", kind=Kind.CONTRACT, description=description, run=run)


def _inside_beat(token: str) -> JsonValue:
    import time

    end = time.monotonic() + 8
    while time.monotonic() < end:
        with open("beat", "a") as file:
            file.write(token[:1])
        time.sleep(0.03)
    return token


async def submission_kills(backend: SandboxBackend) -> None:
    """A submission ends a session's background processes before it reads the first file."""
    token = new_token()
    async with sandbox_of(backend, BASE, kept=Kept.PROCESSES) as sandbox:
        start = 'nohup python3 -I -S -c "$0" "$1" >/dev/null 2>&1 </dev/null & while [ ! -e beat ]; do sleep 0.01; done'
        result = await sandbox.exec(Command(argv=("sh", "-c", start, program(_inside_beat), f'["{token}"]')))
        expect_equal(result.exit_code, 0, "start of a background writer")
        await sandbox.submission(("*.py",))
        await refuse_survivors(sandbox, token)


async def sandbox_to_sandbox(backend: SandboxBackend) -> None:
    """Two sandboxes share no file: workspace, /tmp and home of one can't be found from the other."""
    token = new_token()
    with scratch_name() as name:
        async with sandbox_of(backend, {"mine": token.encode()}) as first, sandbox_of(backend) as second:
            await shell(
                first, "; ".join(f"echo {token} 2>/dev/null >{place}/{name} || true" for place in SCRATCH_PLACES)
            )
            found = await run_inside(second, _inside_search, token, [f"{place}/{name}" for place in SCRATCH_PLACES])
            if found:
                raise Breach(f"files of another sandbox were found at {found}")


def _inside_search(token: str, known: list) -> JsonValue:
    import os
    import time

    # Looked at whatever the time: the walk, which ends after a second, may not come this far.
    found = [path for path in known if os.path.exists(os.path.expanduser(path))]
    end = time.monotonic() + 1
    for top in ("/work", "/tmp", "/home", "/dev/shm", "/var", "/run", "/root", "/mnt", "/oldroot", ".", ".."):
        for folder, directories, names in os.walk(top):
            if time.monotonic() >= end:  # the walk too: without isolation it would be that of a whole machine
                return sorted(set(found))
            directories[:] = [name for name in directories if folder.count("/") < 6 and name not in ("proc", "sys")]
            for name in names[:200]:
                path = os.path.join(folder, name)
                try:
                    if os.path.isfile(path) and os.path.getsize(path) < 100:
                        with open(path, "rb") as file:
                            found += [path] if token.encode() in file.read() else []
                except OSError:
                    continue
    return sorted(set(found))


async def destroy_twice(backend: SandboxBackend) -> None:
    """destroy may be called twice, and afterwards no call pretends to work."""
    sandbox = await backend.create(SandboxSpec(files=BASE, limits=SMALL))
    await sandbox.destroy()
    await sandbox.destroy()
    for what, call in (
        ("exec", lambda: sandbox.exec(Command(argv=("true",)))),
        ("read_file", lambda: sandbox.read_file("a.py")),
    ):
        with contextlib.suppress(SandboxError):
            answer = await call()
            expect(False, f"{what} after destroy: expected a SandboxError, got {answer!r:.100}")


def _footprint() -> dict[str, int]:
    """Return what this process holds: descriptors and children."""
    children = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                children += int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) == os.getpid()
    return {"descriptors": len(os.listdir("/proc/self/fd")), "children": children}


def _mounts() -> set[str]:
    """Return the mounts that this process can see, by identity and place."""
    lines = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return {f"{fields[0]} {fields[4]}" for fields in lines}


async def no_leak(backend: SandboxBackend) -> None:
    """Eight sandboxes come and go without a descriptor, child process or mount that stays."""

    async def cycle() -> None:
        async with sandbox_of(backend, BASE) as sandbox:
            await sandbox.exec(Command(argv=("sh", "-c", "echo 1 >f; sleep 9 &")))
            fork = await sandbox.fork()
            await fork.destroy()

    await cycle()  # what is made once and kept for all is no leak
    before, mounts = _footprint(), _mounts()
    for _ in range(8):
        await cycle()
    expect_equal(_footprint(), before, "what the runner holds after eight sandboxes")
    deadline = time.monotonic() + _OTHERS_MOUNTS_S
    while (new := _mounts() - mounts) and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
    expect_equal(new, set(), "mounts that stayed after eight sandboxes")


async def close_leaves_nothing(backend: SandboxBackend) -> None:
    """close destroys every sandbox and ends every process, and may be called twice."""
    token = new_token()
    for kept in Kept:
        sandbox = await backend.create(SandboxSpec(files=BASE, limits=SMALL, kept=kept))
        start = 'python3 -I -S -c "$0" "$1" >/dev/null 2>&1 </dev/null & while [ ! -e beat ]; do sleep 0.01; done'
        result = await sandbox.exec(Command(argv=("sh", "-c", start, program(_inside_beat), f'["{token}"]')))
        expect_equal(result.exit_code, 0, "start of a background writer")
    await backend.close()
    await backend.close()
    expect_equal(processes_with(token), [], "processes alive after close")


async def not_host_root(backend: SandboxBackend) -> None:
    """Commands don't run as user 0 of the host, who may write core_pattern and owns every file that it leaves behind."""
    if os.geteuid() != 0:
        raise NotApplicable("only a runner that is root could run commands as root of the host")
    token = new_token()
    async with sandbox_of(backend) as sandbox:
        command = Command(argv=("python3", "-I", "-S", "-c", "import time; time.sleep(6)", token))
        running = asyncio.create_task(sandbox.exec(command))
        users: set[int] = set()
        while not users and not running.done():
            await asyncio.sleep(0.02)
            users = {user for pid in processes_with(token) if (user := _user_of_command(pid)) is not None}
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    if not users:
        raise NotApplicable("the command's process can't be seen from the host")
    if 0 in users:
        raise Breach("commands run as user 0 of the host")


def _user_of_command(pid: int) -> int | None:
    """Return the host's user id of a process that is the command itself (its program is a python)."""
    with contextlib.suppress(OSError):
        if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].rpartition(b"/")[2].startswith(b"python"):
            return Path(f"/proc/{pid}").stat().st_uid
    return None


CHECKS: tuple[Check, ...] = (
    attack(sandbox_to_sandbox),
    attack(not_host_root),
    *(
        contract(run)
        for run in (state_key_equal, state_key_changes, fork_independent, fork_many_turns, submission_takes)
    ),
    *(_submission_refusal(kind, script, path) for kind, (script, path) in REFUSALS.items()),
    *(contract(run) for run in (submission_kills, destroy_twice, no_leak)),
    contract(close_leaves_nothing, ends_backend=True),
)
