"""Warm commands: what a script sees and leaves is what it would see and leave as a program of its own."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sanderling.sandbox.bubblewrap import BubblewrapBackend
from sanderling.sandbox.doctor import probe_bubblewrap
from sanderling.sandbox.local import LocalBackend
from sanderling.sandbox.protocol import PYTHON, Command, Kept, SandboxBackend, SandboxSpec, Start
from sanderling.testing.warm_scripts import WARM_SCRIPTS
from sanderling.types import Limits

SCRIPT = "/tools/script.py"
LIMITS = Limits(command_s=6.0, command_cpu_s=3.0, output_bytes=4096, disk_mb=16, memory_mb=128, processes=16)

SOME = ("ok", "exception", "flood", "many processes", "orphans", "facts")


def spec(script: str, kept: Kept) -> SandboxSpec:
    files = {"solution.py": b"X = 1\n", "sub/a": b""}
    return SandboxSpec(files=files, readonly={"script.py": script.encode()}, kept=kept, limits=LIMITS)


def command(start: Start = Start.WARM, **changes) -> Command:
    argv = (*PYTHON, SCRIPT, "a b", "--c")
    return dataclasses.replace(Command(argv=argv, stdin=b"input", start=start), **changes)


@pytest.fixture(scope="module")
def backend(tmp_path_factory) -> Iterator[BubblewrapBackend]:
    missing = probe_bubblewrap().missing
    if missing:
        pytest.skip("; ".join(missing))
    backend = BubblewrapBackend(tmp_path_factory.mktemp("warm") / "state")
    yield backend
    asyncio.run(backend.close())


async def outcome(backend: SandboxBackend, script: str, kept: Kept, what: Command) -> tuple:
    """Return what a command did: its result and the files that it left."""
    sandbox = await backend.create(spec(script, kept))
    try:
        result = await sandbox.exec(what)
        files = {name: await sandbox.read_file(name) for name in await sandbox.list_files()}
        return dataclasses.replace(result, duration_s=0.0), files
    finally:
        await sandbox.destroy()


@pytest.mark.parametrize("name", WARM_SCRIPTS)
def test_a_warm_command_does_what_a_fresh_one_does(backend, name: str) -> None:
    changes = {"cpu_s": 1.0} if name == "processor" else {}
    fresh, warm = command(Start.FRESH, **changes), command(Start.WARM, **changes)

    async def run():
        expected = await outcome(backend, WARM_SCRIPTS[name], Kept.NOTHING, fresh)
        found = await outcome(backend, WARM_SCRIPTS[name], Kept.INTERPRETER, warm)
        assert found == expected
        if name in SOME:
            assert await outcome(backend, WARM_SCRIPTS[name], Kept.INTERPRETER, fresh) == expected
        return expected[0]

    result = asyncio.run(run())
    assert not result.timed_out
    assert result.out_of_memory == (name == "memory of many" and backend.has_control_groups)


REFUSED = (
    {"cwd": "missing"},
    {"cwd": "solution.py"},
    {"argv": ("no-such-program",)},
    {"argv": ("/work/solution.py",)},
    {"argv": ("solution.py",), "env": {"PATH": ":/bin"}},
)


@pytest.mark.parametrize(
    "changes",
    [
        *REFUSED,
        {"cwd": "sub"},
        {"env": {"ADDED": "1"}},
        {"argv": (*PYTHON, SCRIPT, "x" * 40_000)},
        {"argv": (*PYTHON, "/tools/missing.py")},
        {"argv": (*PYTHON, "/tools/../tools/script.py")},
        {"argv": ("python3", "-S", SCRIPT)},
        {"argv": ("sh", "-c", "env | sort; pwd; cat; ls /proc/self/fd")},
    ],
    ids=repr,
)
def test_every_form_of_a_command_can_ask_to_be_warm(backend, changes) -> None:
    script = "import os, sys; print(sorted(os.environ.items()), os.getcwd(), sys.argv, sys.flags, sys.path)"

    async def run():
        expected = await outcome(backend, script, Kept.NOTHING, command(Start.FRESH, **changes))
        return expected, await outcome(backend, script, Kept.INTERPRETER, command(Start.WARM, **changes))

    expected, found = asyncio.run(run())
    assert found == expected


@pytest.mark.parametrize("changes", REFUSED, ids=repr)
def test_what_can_not_begin_is_refused_in_the_same_words_whatever_is_kept(backend, changes) -> None:
    async def run():
        return [await outcome(backend, "", kept, command(Start.FRESH, **changes)) for kept in Kept]

    first, *others = asyncio.run(run())
    assert first[0].exit_code in (126, 127)
    assert first[0].stderr.startswith(b"sandbox: can't ")
    assert others == [first] * 2


def test_a_program_without_a_named_interpreter_is_one_for_the_shell(backend) -> None:
    make = Command(argv=("sh", "-c", "echo 'echo $0 $1' >program; chmod +x program"))

    async def run():
        results = []
        for kept in (Kept.NOTHING, Kept.INTERPRETER):
            sandbox = await backend.create(spec("", kept))
            await sandbox.exec(make)
            for argv in (("./program", "a"), ("/work/program", "b")):
                result = await sandbox.exec(Command(argv=argv))
                results.append((result.exit_code, result.stdout, result.stderr))
            await sandbox.destroy()
        return results

    results = asyncio.run(run())
    assert results[:2] == [(0, b"./program a\n", b""), (0, b"/work/program b\n", b"")]
    assert results[2:] == results[:2]


@pytest.mark.parametrize(
    "script", ["a b", "x = 1 is 1", "\0", "# coding: nonsense", "# coding: latin-1\nprint('\xfc')"]
)
def test_a_script_that_the_compiler_has_something_to_say_about_says_it(backend, script: str) -> None:
    async def run():
        expected = await outcome(backend, script, Kept.NOTHING, command(Start.FRESH))
        assert await outcome(backend, script, Kept.INTERPRETER, command()) == expected

    asyncio.run(run())


def test_the_clock_cuts_a_warm_command_and_all_that_it_started(backend) -> None:
    script = """
import os, time
print("before", flush=True)
if os.fork() == 0:
    os.setsid()
    os.fork()
while True:
    with open("beat", "a") as file: file.write(".")
    time.sleep(0.01)
"""

    async def run():
        sandbox = await backend.create(spec(script, Kept.INTERPRETER))
        await sandbox.exec(Command(argv=("true",)))
        began = time.monotonic()
        result = await sandbox.exec(command(timeout_s=0.5))
        took = time.monotonic() - began
        sizes = [len(await sandbox.read_file("beat"))]
        await asyncio.sleep(0.1)
        sizes.append(len(await sandbox.read_file("beat")))
        others = await sandbox.exec(Command(argv=("sh", "-c", "echo /proc/[0-9]*")))
        await sandbox.destroy()
        return result, took, sizes, others

    result, took, sizes, others = asyncio.run(run())
    assert (result.exit_code, result.timed_out, result.stdout) == (137, True, b"before\n")
    assert 0.5 <= took < 1.5
    assert sizes[0] == sizes[1] > 10
    assert len(others.stdout.split()) == 2  # the first process and the shell


POISON = """
import builtins, gc, io, os, resource, signal, sys
import posix
builtins.print = lambda *a, **k: sys.__stdout__.write("poisoned")
builtins.len = lambda x: 7
sys.modules["json"] = None
sys.path[:] = ["/nowhere"]
sys.argv[:] = []
sys.stdout = io.StringIO()
os.environ["POISON"] = "1"
os.chdir("/tmp")
os.umask(0o777)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
gc.disable()
posix.fork = posix._exit = posix.waitpid = posix.kill = None
posix.environ[b"POISON"] = b"1"
frame = sys._getframe()
while frame:
    frame.f_globals.update(answer=None, serve=None, scripts={}, condition=None)
    frame = frame.f_back
for thing in gc.get_objects():
    if isinstance(thing, dict) and "/tools/script.py" in thing:
        thing["/tools/script.py"] = compile("print('poisoned')", "x", "exec")
for place in os.listdir("/proc/self/fd"):
    os.set_inheritable(int(place), True) if int(place) < 3 else None
if CHANGE_LIMITS:
    resource.prlimit(1, resource.RLIMIT_NOFILE, (20, 20))
    resource.prlimit(1, resource.RLIMIT_STACK, (1 << 20, 1 << 20))
    os.setpriority(os.PRIO_PROCESS, 1, 19)
    os.sched_setaffinity(1, {min(os.sched_getaffinity(1))})
"""


@pytest.mark.parametrize("limits", [False, True], ids=["memory", "limits of the first process"])
def test_what_a_command_spoils_is_whole_for_the_next(backend, limits: bool) -> None:
    script = "import os\nif os.path.exists('poison.py'): exec(open('poison.py').read())\nelse:\n " + "\n ".join(
        WARM_SCRIPTS["facts"].splitlines()
    )
    poison = f"CHANGE_LIMITS = {limits}\n{POISON}".encode()

    async def run():
        expected, _ = await outcome(backend, script, Kept.NOTHING, command(Start.FRESH))
        sandbox = await backend.create(spec(script, Kept.INTERPRETER))
        results = [await sandbox.exec(command())]
        for _ in range(2):
            await sandbox.write_file("poison.py", poison)
            spoilt = await sandbox.exec(command())
            assert (spoilt.exit_code, spoilt.stderr) == (0, b"")
            await sandbox.exec(Command(argv=("rm", "poison.py")))
            results.append(await sandbox.exec(command()))
        await sandbox.destroy()
        return expected, results

    expected, results = asyncio.run(run())
    assert [dataclasses.replace(result, duration_s=0.0) for result in results] == [expected] * 3


def test_the_first_process_is_out_of_reach(backend) -> None:
    script = """
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
def trial(name, work):
    try: print(name, "reached", work())
    except OSError as error: print(name, "refused")
trial("memory", lambda: open("/proc/1/mem", "r+b"))
trial("descriptors", lambda: os.listdir("/proc/1/fd"))
trial("environment", lambda: open("/proc/1/environ").read())
trial("root", lambda: os.listdir("/proc/1/root"))
trial("ptrace", lambda: libc.ptrace(16, 1, 0, 0) == 0 or os.stat("/missing"))
handle = os.pidfd_open(1)
trial("descriptor", lambda: libc.syscall(438, handle, 0, 0) >= 0 or os.stat("/missing"))
os.close(handle)
trial("score", lambda: open("/proc/1/oom_score_adj", "w").write("1000"))
for number in signal.valid_signals(): os.kill(1, number)
print(sorted(os.listdir("/proc/self/fd")), os.readlink("/proc/self/fd/0").split(":")[0])
"""

    async def run():
        sandbox = await backend.create(spec(script, Kept.INTERPRETER))
        results = [await sandbox.exec(command()) for _ in range(2)]
        await sandbox.destroy()
        return results

    first, second = asyncio.run(run())
    assert first.stdout == second.stdout
    assert (first.exit_code, first.stderr) == (0, b"")
    *trials, descriptors = first.stdout.decode().splitlines()
    assert len(trials) == 7
    assert not [line for line in trials if "reached" in line]
    assert descriptors.startswith("['0', '1', '2', '3'] /memfd")


def test_files_go_both_ways_while_an_interpreter_is_kept(backend) -> None:
    script = "print(open('solution.py').read()); open('/tmp/t', 'a').write('t'); open('made', 'w').write('m')"

    async def run():
        sandbox = await backend.create(spec(script, Kept.INTERPRETER))
        await sandbox.write_file("solution.py", b"first")
        seen = [await sandbox.exec(command())]
        keys = [await sandbox.state_key()]
        for content in (b"second", b"third", b"third"):
            await sandbox.write_file("solution.py", content)
            seen.append(await sandbox.exec(command()))
            keys.append(await sandbox.state_key())
        twin = await sandbox.fork()
        await twin.write_file("solution.py", b"of the twin")
        seen.append(await twin.exec(command()))
        seen.append(await sandbox.exec(command()))
        tmp = await sandbox.exec(Command(argv=("cat", "/tmp/t")))
        submitted = [await sandbox.submission(["*.py"]), await twin.submission(["*.py"])]
        seen.append(await sandbox.exec(command()))
        plain = await backend.create(spec(script, Kept.NOTHING))
        await plain.write_file("solution.py", b"third")
        await plain.exec(command())
        keys.append(await plain.state_key())
        for one in (plain, twin, sandbox):
            await one.destroy()
        return seen, keys, tmp, submitted

    seen, keys, tmp, submitted = asyncio.run(run())
    assert [one.stdout for one in seen] == [
        *(b"first\n", b"second\n", b"third\n", b"third\n"),
        *(b"of the twin\n", b"third\n", b"third\n"),
    ]
    assert keys[2] == keys[3] == keys[4]
    assert len(set(keys)) == 3
    assert tmp.stdout == b"ttttt"
    assert [dict(one.files) for one in submitted] == [{"solution.py": b"third"}, {"solution.py": b"of the twin"}]
    assert [[(refusal.path, refusal.reason) for refusal in one.refused] for one in submitted] == [
        [("made", "not an editable path")]
    ] * 2


def test_a_warm_command_starts_no_interpreter_and_is_cheap(backend) -> None:
    """Half of what a fresh one takes beside the same interpreter is far from what is measured (a sixth)."""
    script = "print(open('/proc/self/cmdline').read())"

    async def run(start: Start) -> tuple[bool, float]:
        sandbox = await backend.create(spec(script, Kept.INTERPRETER))
        result = await sandbox.exec(command(start))
        taken = []
        for _ in range(5):
            began = time.perf_counter()
            await sandbox.exec(command(start))
            taken.append(time.perf_counter() - began)
        await sandbox.destroy()
        return SCRIPT.encode() in result.stdout, min(taken)

    (own, fresh), (others, warm) = asyncio.run(run(Start.FRESH)), asyncio.run(run(Start.WARM))
    assert own
    assert not others
    assert warm < fresh / 2


@pytest.mark.filterwarnings("ignore")
def test_a_backend_that_keeps_nothing_gives_the_same_result(tmp_path: Path) -> None:
    async def run():
        backend = LocalBackend(tmp_path)
        try:
            script = "import sys; print(sys.argv[1:], sys.stdin.read()); sys.exit(3)"
            return [await outcome(backend, script, kept, command(start)) for kept in list(Kept)[:2] for start in Start]
        finally:
            await backend.close()

    first, *others = asyncio.run(run())
    assert first[0].exit_code == 3
    assert first[0].stdout == b"['a b', '--c'] input\n"
    assert others == [first] * 3
