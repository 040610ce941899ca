"""What `Start.WARM` promises: the result of a fresh command, and nothing of a command in the next."""

from __future__ import annotations

import asyncio
import dataclasses

from sanderling.sandbox.protocol import PYTHON, Command, ExecResult, Kept, SandboxBackend, Start
from sanderling.testing.sandbox_check import Check, contract, expect, expect_equal, sandbox_of
from sanderling.testing.warm_scripts import WARM_SCRIPTS

_AT_ONCE = 4
_CUT = "import os\nprint('before', flush=True)\nos.fork()\nwhile True: pass\n"
_SPOIL = """
import builtins, os, sys
found = [getattr(builtins, "spoilt", None), sys.modules.get("spoilt"), os.environ.get("SPOILT"), "spoilt" in globals()]
before = os.getcwd()
builtins.spoilt = sys.modules["spoilt"] = spoilt = os
os.environ["SPOILT"] = "1"
os.chdir("/tmp")
os.umask(0o777)
if os.fork() == 0:
    import time
    time.sleep(20)
print(*found, open(before + "/solution.py").read(), flush=True)
os.close(1)
"""


def _command(start: Start, name: str = "") -> Command:
    argv = (*PYTHON, "/tools/script.py", "a b", "--c")
    timeout_s, cpu_s = 1.0 if name == "cut" else None, 1.0 if name == "processor" else None
    return Command(argv=argv, stdin=b"input", start=start, timeout_s=timeout_s, cpu_s=cpu_s)


async def _result(backend: SandboxBackend, script: str, kept: Kept, command: Command) -> ExecResult:
    async with sandbox_of(
        backend, {"solution.py": b"X = 1\n"}, readonly={"script.py": script.encode()}, kept=kept
    ) as sandbox:
        return dataclasses.replace(await sandbox.exec(command), duration_s=0.0)


async def warm_like_fresh(backend: SandboxBackend) -> None:
    """Scripts of every ending, output and appetite have the same result warm as fresh."""
    turn = asyncio.Semaphore(_AT_ONCE)

    async def compare(name: str, script: str) -> ExecResult:
        async with turn:
            fresh = await _result(backend, script, Kept.NOTHING, _command(Start.FRESH, name))
            warm = await _result(backend, script, Kept.INTERPRETER, _command(Start.WARM, name))
        expect_equal(warm, fresh, f"result of the script {name!r}")
        return fresh

    scripts = {**WARM_SCRIPTS, "cut": _CUT}
    try:
        # The first difference ends the others: nothing may go on beside the next check.
        async with asyncio.TaskGroup() as group:
            running = {name: group.create_task(compare(name, script)) for name, script in scripts.items()}
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    results = {name: task.result() for name, task in running.items()}
    expect_equal(results["ok"].stdout.decode(), "ünï ['a b', '--c']\n", "output of the script that is all right")
    expect_equal(results["exit 3"].exit_code, 3, "exit code of a script that ends with 3")
    expect(results["cut"].timed_out, "an endless script wasn't cut")


async def warm_leaves_nothing(backend: SandboxBackend) -> None:
    """What a warm script does to its interpreter, its surroundings and its processes is gone for the next; files count."""
    files = {"solution.py": b"1"}
    async with sandbox_of(backend, files, readonly={"script.py": _SPOIL.encode()}, kept=Kept.INTERPRETER) as sandbox:
        for content in (b"1", b"22", b"333"):
            await sandbox.write_file("solution.py", content)
            result = await sandbox.exec(_command(Start.WARM))
            expect_equal(result.stdout.decode(), f"None None None False {content.decode()}\n", "what a script found")
            expect_equal((result.exit_code, result.stderr), (0, b""), "end of the script")


CHECKS: tuple[Check, ...] = (contract(warm_like_fresh), contract(warm_leaves_nothing))
