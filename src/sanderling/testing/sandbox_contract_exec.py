"""What `Sandbox.exec` promises: exit codes, bytes, environment, persistence of files, limits, sessions, concurrency."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import resource
import sys
import time

from sanderling.errors import SandboxError
from sanderling.sandbox.protocol import Command, ExecResult, Kept, Sandbox, SandboxBackend
from sanderling.testing.sandbox_canaries import PREFIX, new_token
from sanderling.testing.sandbox_check import (
    SMALL,
    Check,
    NotApplicable,
    Violation,
    contract,
    expect,
    expect_equal,
    processes_with,
    program,
    run_inside,
    sandbox_of,
)
from sanderling.types import JsonValue

ALL_BYTES = bytes(range(256))


def python(code: str, *args: str) -> Command:
    return Command(argv=("python3", "-I", "-S", "-c", code, *args))


async def exit_codes(backend: SandboxBackend) -> None:
    """Exit codes come back as they are; a missing program is 127, as a shell reports it."""
    async with sandbox_of(backend) as sandbox:
        for code in (0, 1, 42, 255):
            result = await sandbox.exec(Command(argv=("sh", "-c", f"exit {code}")))
            expect_equal((result.exit_code, result.timed_out), (code, False), f"exit {code}")
        missing = await sandbox.exec(Command(argv=("no-such-program-anywhere",)))
        expect_equal(missing.exit_code, 127, "exit code of a missing program")


async def exit_by_signal(backend: SandboxBackend) -> None:
    """A process killed by a signal reports 128 + signal."""
    async with sandbox_of(backend) as sandbox:
        for number in (9, 11, 15):
            result = await sandbox.exec(python(f"import os; os.kill(os.getpid(), {number})"))
            expect_equal((result.exit_code, result.timed_out), (128 + number, False), f"killed by signal {number}")


async def output_bytes(backend: SandboxBackend) -> None:
    """Both streams come back apart from each other and byte for byte, text or not."""
    code = "import sys; b = bytes(range(256)); sys.stdout.buffer.write(b * 3); sys.stderr.buffer.write(b[::-1])"
    async with sandbox_of(backend) as sandbox:
        result = await sandbox.exec(python(code))
        expect_equal(result.stdout, ALL_BYTES * 3, "stdout")
        expect_equal(result.stderr, ALL_BYTES[::-1], "stderr")
        expect_equal(result.omitted_bytes, 0, "omitted bytes")


async def stdin_bytes(backend: SandboxBackend) -> None:
    """Standard input arrives byte for byte and ends; a program that doesn't read it is no problem."""
    content = ALL_BYTES * 1000
    async with sandbox_of(backend) as sandbox:
        code = "import sys, hashlib; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"
        result = await sandbox.exec(dataclasses.replace(python(code), stdin=content))
        import hashlib

        expect_equal(result.stdout.decode().strip(), hashlib.sha256(content).hexdigest(), "digest of stdin")
        unread = await sandbox.exec(Command(argv=("true",), stdin=content))
        expect_equal(unread.exit_code, 0, "exit code of a program that ignores its input")
        empty = await sandbox.exec(Command(argv=("cat",)))
        expect_equal((empty.exit_code, empty.stdout), (0, b""), "cat without input")


async def argv_exact(backend: SandboxBackend) -> None:
    """Arguments arrive exactly, whatever a shell would make of them."""
    hostile = (
        "a b",
        "",
        "$HOME `id` $(id)",
        "'\"\\",
        "*",
        "~",
        "-x",
        "--",
        "a\nb\t",
        "; exit 3",
        "&& false",
        "ünïcødé 沙",
        "%s",
    )
    async with sandbox_of(backend) as sandbox:
        result = await sandbox.exec(python("import sys, json; print(json.dumps(sys.argv[1:]))", *hostile))
        expect_equal(tuple(json.loads(result.stdout)), hostile, "argv")


async def working_directory(backend: SandboxBackend) -> None:
    """cwd is relative to the workspace; leaving it is refused or fails, and never our error."""
    async with sandbox_of(backend, {"sub/deep/file": b"x", "top": b"y"}) as sandbox:
        result = await sandbox.exec(Command(argv=("ls",)))
        expect_equal(result.stdout, b"sub\ntop\n", "ls at the top")
        result = await sandbox.exec(Command(argv=("ls",), cwd="sub/deep"))
        expect_equal(result.stdout, b"file\n", "ls in sub/deep")
        try:
            result = await sandbox.exec(Command(argv=("ls",), cwd="missing"))
            expect(result.exit_code != 0, "a missing cwd must not run the command as if nothing were wrong")
        except SandboxError as error:
            expect("Lost" not in type(error).__name__, f"a missing cwd isn't our failure, got {error!r}")


def _inside_environment() -> JsonValue:
    import os

    return dict(os.environ)


async def environment_built(backend: SandboxBackend) -> None:
    """The environment is built, small and the same for every sandbox; nothing of the runner's is in it."""
    async with sandbox_of(backend) as sandbox:
        first = await run_inside(sandbox, _inside_environment)
    os.environ["SANDERLING_CANARY_LATE"] = "1"
    try:
        async with sandbox_of(backend) as sandbox:
            second = await run_inside(sandbox, _inside_environment)
    finally:
        del os.environ["SANDERLING_CANARY_LATE"]
    expect_equal(second, first, "environment of a second sandbox")
    expect(len(first) <= 12, f"at most 12 variables are expected, got {sorted(first)}")
    expect({"PATH", "HOME"} <= first.keys(), f"PATH and HOME are expected, got {sorted(first)}")


async def environment_added(backend: SandboxBackend) -> None:
    """Command.env is added to the environment of that command alone."""
    async with sandbox_of(backend) as sandbox:
        value = "a 'b' $c\nd=ü"
        code = "import os; print(os.environ.get('ADDED'), 'PATH' in os.environ)"
        result = await sandbox.exec(dataclasses.replace(python(code), env={"ADDED": value}))
        expect_equal(result.stdout.decode(), f"{value} True\n", "added variable")
        result = await sandbox.exec(python(code))
        expect_equal(result.stdout.decode(), "None True\n", "added variable in the next command")


async def interpreter(backend: SandboxBackend) -> None:
    """python3 inside is the interpreter that runs Sanderling."""
    async with sandbox_of(backend) as sandbox:
        result = await sandbox.exec(python("import sys; print(sys.version)"))
        expect_equal(result.stdout.decode().strip(), sys.version.strip(), "sys.version inside")


async def files_persist(backend: SandboxBackend) -> None:
    """Files in the workspace, /tmp and the home directory are there for the next command; shell state isn't."""
    async with sandbox_of(backend) as sandbox:
        name = PREFIX + new_token()
        script = f"echo 1 >kept; echo 2 >/tmp/{name}; echo 3 >~/{name}; mkdir d; cd d; X=1"
        await sandbox.exec(Command(argv=("sh", "-c", script)))
        script = f"cat kept /tmp/{name} ~/{name}; echo [$X]; rm /tmp/{name} ~/{name}"
        result = await sandbox.exec(Command(argv=("sh", "-c", script)))
        expect_equal(result.stdout, b"1\n2\n3\n[]\n", "files of the previous command")


async def output_cap(backend: SandboxBackend) -> None:
    """Of a long output head and tail are kept, and the rest is counted."""
    total = 1_000_000
    code = "import sys; sys.stdout.write(''.join(f'{i:09d}\\n' for i in range(100_000)))"
    async with sandbox_of(backend) as sandbox:
        result = await sandbox.exec(python(code))
    expect(result.stdout.startswith(b"000000000\n000000001\n"), f"the head is missing: {result.stdout[:40]!r}")
    expect(result.stdout.endswith(b"000099998\n000099999\n"), f"the tail is missing: {result.stdout[-40:]!r}")
    expect(
        len(result.stdout) <= SMALL.output_bytes + 256, f"{len(result.stdout)} bytes kept, limit {SMALL.output_bytes}"
    )
    expect(
        len(result.stdout) >= SMALL.output_bytes // 2, f"only {len(result.stdout)} bytes of {SMALL.output_bytes} kept"
    )
    omitted, least = result.omitted_bytes, total - len(result.stdout)
    expect(least <= omitted <= total, f"omitted_bytes is {omitted}, at least {least} were dropped")


async def output_flood(backend: SandboxBackend) -> None:
    """64 MiB on each stream don't fill the runner's memory and are counted."""
    size = 64 * 1_048_576
    write = "open(s, 'wb', 0, closefd=False).write(b'x' * 65536)"
    code = f"for _ in range({size // 65536}):\n for s in (1, 2): {write}"
    async with sandbox_of(backend) as sandbox:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = await sandbox.exec(python(code))
        grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    kept = len(result.stdout) + len(result.stderr)
    expect(grown_mb < 32, f"the runner grew by {grown_mb:.0f} MB while 128 MiB were written")
    expect(
        kept <= 2 * (SMALL.output_bytes + 256), f"{kept} bytes were kept, the limit is {SMALL.output_bytes} per stream"
    )
    expect(result.exit_code != 0 or result.omitted_bytes >= 2 * size - kept, f"omitted_bytes is {result.omitted_bytes}")


async def _timed(sandbox: Sandbox, command: Command) -> tuple[ExecResult, float]:
    before = time.monotonic()
    result = await sandbox.exec(command)
    return result, time.monotonic() - before


async def timeout_loop(backend: SandboxBackend) -> None:
    """An endless loop is cut at its limit; what it wrote before is kept; the sandbox goes on."""
    token = new_token()
    code = "import sys\nprint('before', flush=True); print('warning', file=sys.stderr, flush=True)\nwhile True: pass"
    async with sandbox_of(backend) as sandbox:
        result, took = await _timed(sandbox, dataclasses.replace(python(code, token), timeout_s=0.5))
        alive = processes_with(token)
        after = await sandbox.exec(Command(argv=("echo", "on")))
    expect(result.timed_out, f"expected timed_out, got exit code {result.exit_code}")
    expect(result.exit_code != 0, "a command cut by the clock must not report exit code 0")
    expect_equal((result.stdout, result.stderr), (b"before\n", b"warning\n"), "output before the limit")
    expect(took < 2.5, f"limit 0.5 s, the call took {took:.1f} s")
    expect_equal(alive, [], "processes alive after the limit")
    expect_equal(after.stdout, b"on\n", "next command")


async def timeout_default(backend: SandboxBackend) -> None:
    """limits.command_s holds where the command names no limit."""
    async with sandbox_of(backend, limits=dataclasses.replace(SMALL, command_s=0.4)) as sandbox:
        result, took = await _timed(sandbox, Command(argv=("sleep", "5")))
        expect(result.timed_out and took < 2.4, f"limit 0.4 s: timed_out {result.timed_out} after {took:.1f} s")


async def cpu_limit(backend: SandboxBackend) -> None:
    """limits.command_cpu_s ends a command that burns more processor time, before the wall clock does."""
    async with sandbox_of(backend) as sandbox:
        command = dataclasses.replace(python("while True: pass"), cpu_s=1.0, timeout_s=8.0)
        result, took = await _timed(sandbox, command)
        expect(result.exit_code != 0 and took < 7.0, f"1 s of cpu allowed: exit {result.exit_code} after {took:.1f} s")
        expect(not result.timed_out, "the processor limit isn't the wall clock: timed_out must be false")


_READY_THEN_SLEEP = """
import os, time
print(time.time(), file=open("said", "w"))
os.rename("said", "ready")
time.sleep(4)
"""


async def background_child(backend: SandboxBackend) -> None:
    """A background child that holds the output open neither delays the call nor survives it; exit code 0 stays."""
    token = new_token()
    # The shell waits for the child's own word: a program that is just being started has no command line to be found by.
    script = f'echo out; sleep 4 & python3 -I -S -c "$0" {token} & while [ ! -e ready ]; do sleep 0.01; done'
    async with sandbox_of(backend) as sandbox:
        result = await sandbox.exec(Command(argv=("sh", "-c", script, _READY_THEN_SLEEP)))
        ended = time.time()
        alive = processes_with(token)
        expect_equal((result.exit_code, result.stdout, result.timed_out), (0, b"out\n", False), "result")
        # From the child's word on, and not from the call: how long a busy machine takes to start it is no matter here.
        late = ended - float(await sandbox.read_file("ready"))
    expect(0.0 <= late < 2.0, f"the shell ended once a child said that it sleeps for 4 s, the call {late:.1f} s later")
    expect_equal(alive, [], "processes alive after the call")


def _inside_orphans(count: int) -> JsonValue:
    import os

    for _ in range(count):
        child = os.fork()
        if child == 0:
            if os.fork() == 0:
                os._exit(0)
            os._exit(0)
        os.waitpid(child, 0)
    return count


async def orphans_reaped(backend: SandboxBackend) -> None:
    """Orphaned dead children are reaped: 200 of them in a row, twice, don't fill the process table of 32."""
    async with sandbox_of(backend) as sandbox:
        for _ in range(2):
            expect_equal(await run_inside(sandbox, _inside_orphans, 200), 200, "orphans made")


async def loopback_inside(backend: SandboxBackend) -> None:
    """A server and a client of one command meet on 127.0.0.1 inside."""
    async with sandbox_of(backend) as sandbox:
        code = (
            "import socket; s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname());"
            "s.accept()[0].sendall(b'met'); print(c.recv(3))"
        )
        result = await sandbox.exec(python(code))
        expect_equal(result.stdout, b"b'met'\n", f"own loopback (stderr {result.stderr[-200:]!r})")


def _inside_server(token: str) -> JsonValue:
    import socket

    server = socket.create_server(("127.0.0.1", 7391))
    with open("ready", "w") as file:
        file.write("1")
    while True:
        server.accept()[0].sendall(token.encode())
    return token


_ASK = """
import os, socket, time
end = time.monotonic() + 4
while not os.path.exists("ready") and time.monotonic() < end: time.sleep(0.01)
print(socket.create_connection(("127.0.0.1", 7391), 2).recv(99).decode())
"""


async def session_server(backend: SandboxBackend) -> None:
    """With Kept.PROCESSES a server started by one command answers the next, and ends with the sandbox."""
    token = new_token()
    async with sandbox_of(backend, kept=Kept.PROCESSES) as sandbox:
        start = 'nohup python3 -I -S -c "$0" "$1" >/dev/null 2>&1 </dev/null &'
        result = await sandbox.exec(Command(argv=("sh", "-c", start, program(_inside_server), json.dumps([token]))))
        expect_equal(result.exit_code, 0, "start of the server")
        result = await sandbox.exec(python(_ASK))
        expect_equal(result.stdout.decode().strip(), token, f"answer of the server (stderr {result.stderr[-200:]!r})")
        slow, took = await _timed(sandbox, dataclasses.replace(python("while True: pass"), timeout_s=0.4))
        expect(slow.timed_out and took < 2.4, f"in a session: timed_out {slow.timed_out} after {took:.1f} s")
        result = await sandbox.exec(Command(argv=("echo", "on")))
        expect_equal(result.stdout, b"on\n", "the session answers after a timeout")
    expect_equal(processes_with(token), [], "processes alive after destroy")


async def concurrency(backend: SandboxBackend) -> None:
    """16 sandboxes work at once, each with its own files."""

    async def work(number: int) -> None:
        async with sandbox_of(backend, {"name": str(number).encode()}) as sandbox:
            script = "cp name out; cat name; sleep 0.1; cat out"
            result = await sandbox.exec(Command(argv=("sh", "-c", script)))
            expect_equal(result.stdout.decode(), f"{number}{number}", f"output of sandbox {number}")
            expect_equal(await sandbox.read_file("out"), str(number).encode(), f"file of sandbox {number}")

    outcomes = await asyncio.gather(*(work(number) for number in range(16)), return_exceptions=True)
    failed = [outcome for outcome in outcomes if outcome is not None]
    if failed:
        raise Violation(f"{len(failed)} of 16 sandboxes working at once failed, first: {failed[0]!r}")


_JOIN_THEN_SLEEP = """
import os, sys
os.execv(sys.executable, ["python3", "-I", "-S", "-c", "import time; time.sleep(8)", "".join(sys.argv[1:])])
"""


async def cancelled_exec(backend: SandboxBackend) -> None:
    """A cancelled exec leaves no process behind, and the sandbox can still be destroyed."""
    token = new_token()
    start, end = token[:16], token[16:]
    async with sandbox_of(backend) as sandbox:
        # The whole token is seen once the program itself has joined it, so that more than a launcher is cancelled.
        running = asyncio.create_task(sandbox.exec(python(_JOIN_THEN_SLEEP, start, end)))
        while not processes_with(token):
            if running.done():
                expect_equal(running.result().exit_code, 0, "exit code of a program that nobody cancelled")
                raise NotApplicable("the command's process can't be seen from the host")
            await asyncio.sleep(0.02)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    expect_equal(processes_with(start), [], "processes alive after cancellation and destroy")


CHECKS: tuple[Check, ...] = tuple(
    contract(run)
    for run in (
        exit_codes,
        exit_by_signal,
        output_bytes,
        stdin_bytes,
        argv_exact,
        working_directory,
        environment_built,
        environment_added,
        interpreter,
        files_persist,
        output_cap,
        output_flood,
        timeout_loop,
        timeout_default,
        cpu_limit,
        background_child,
        orphans_reaped,
        loopback_inside,
        session_server,
        concurrency,
        cancelled_exec,
    )
)
