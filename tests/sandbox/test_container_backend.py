"""The container backend against an engine of real processes whose command line is recorded and can be made to fail."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from sanderling.errors import PluginError, SandboxBroken, SandboxLost, SandboxUnavailable
from sanderling.sandbox.bubblewrap import BubblewrapBackend
from sanderling.sandbox.container import ContainerBackend
from sanderling.sandbox.container_channel import BOOT, modules
from sanderling.sandbox.container_engine import find_engine, remove_leftovers
from sanderling.sandbox.container_seccomp import container_profile
from sanderling.sandbox.doctor import probe_bubblewrap
from sanderling.sandbox.journal import leftovers, sweep
from sanderling.sandbox.launcher.seccomp import DENIED
from sanderling.sandbox.protocol import Command, Kept, Sandbox, SandboxSpec
from sanderling.testing.fake_container_engine import IMAGE, FakeEngine
from sanderling.testing.sandbox_check import SMALL
from sanderling.testing.sandbox_conformance import CHECKS, Kind, Outcome, Report, run_conformance

KINDS = ("docker", "podman")
PROMISES = [check.id for check in CHECKS if check.kind is Kind.CONTRACT]
QUICK = (
    "exit_codes",
    "stdin_bytes",
    "output_cap",
    "background_child",
    "session_server",
    "cancelled_exec",
    "write_refuses_links",
    "file_names",
    "survives_forbid",
    "fork_independent",
    "submission_refuses_hard_link",
    "submission_kills",
    "close_leaves_nothing",
)
SPEC = SandboxSpec(
    files={"a.py": b"a = 1\n", "pkg/b.py": b"b = 1\n"}, readonly={"t/show.py": b"print('tool')"}, limits=SMALL
)


@pytest.fixture(scope="module", autouse=True)
def _namespaces() -> None:
    missing = probe_bubblewrap().missing
    if missing:
        pytest.skip(f"the fake engine's containers are made of namespaces: {'; '.join(missing)}")


@pytest.fixture
def docker(tmp_path: Path) -> FakeEngine:
    return FakeEngine.install(tmp_path)


def backend_on(engine: FakeEngine) -> ContainerBackend:
    return ContainerBackend(str(engine.program), image=IMAGE, state_dir=engine.state / "journals")


def on(engine: FakeEngine, work: Callable[[ContainerBackend], Awaitable[object]]) -> object:
    async def run() -> object:
        backend = backend_on(engine)
        try:
            return await work(backend)
        finally:
            await backend.close()

    return asyncio.run(run())


def conformance(engine: FakeEngine, ids: list[str]) -> Report:
    return run_conformance(lambda: backend_on(engine), ids=ids, contained=False, check_limit_s=300.0)


def judge(report: Report, ids: list[str]) -> None:
    report.raise_for_failures()
    assert {result.id for result in report.of(Outcome.OPEN)} <= {"interpreter", "links_lead"}
    assert report.counts()[Outcome.PASSED] >= len(ids) - 2


@pytest.mark.slow
def test_promises_are_kept(docker: FakeEngine) -> None:
    judge(conformance(docker, list(QUICK)), list(QUICK))
    assert docker.containers() == {}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_promise_is_kept(kind: str, tmp_path: Path) -> None:
    engine = FakeEngine.install(tmp_path, kind)
    judge(conformance(engine, PROMISES), PROMISES)
    assert engine.containers() == {}


def test_the_words_of_a_container(docker: FakeEngine) -> None:
    async def work(backend: ContainerBackend) -> bytes:
        sandbox = await backend.create(SPEC)
        return (await sandbox.exec(Command(argv=("python3", "-I", "-S", "/tools/t/show.py")))).stdout

    assert on(docker, work) == b"tool\n"
    (inspected,), (run,) = docker.calls("image"), docker.calls("run")
    assert inspected == ["image", "inspect", "--format", "{{json .Config.Env}}", IMAGE]
    name, owner = run[3], run[5].removeprefix("sanderling.owner=")
    place = docker.state / "journals" / owner
    base, mib = 2 * 4096, 1 << 20
    tools = run[run.index("--volume") + 1].removesuffix(":/tools:ro,z")
    assert Path(tools).parent == place
    limits = ["--pids-limit", "34", "--memory", str((256 + 16 + 64) * mib + base), "--memory-swap"]
    assert run[:-6] == [
        "run", "--interactive", "--name", name, "--label", f"sanderling.owner={owner}", "--pull", "never",
        "--network", "none", "--ipc", "private", "--hostname", "sandbox", "--log-driver", "none", "--stop-signal", "KILL",
        "--user", "61000:61000", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
        "--security-opt", f"seccomp={place}/seccomp.json", "--read-only", *limits, limits[3], "--cpus", "1",
        "--ulimit", "core=0:0", "--ulimit", "nofile=1024:1024", "--ulimit", run[run.index("--shm-size") - 1],
        "--shm-size", str(2 * mib),
        "--tmpfs", f"/work:rw,exec,nosuid,nodev,size={8 * mib + base},nr_inodes=50003,mode=755,uid=61000,gid=61000",
        "--tmpfs", f"/tmp:rw,exec,nosuid,nodev,size={4 * mib},nr_inodes=10000,mode=755,uid=61000,gid=61000",
        "--tmpfs", f"/home/agent:rw,exec,nosuid,nodev,size={2 * mib},nr_inodes=10000,mode=755,uid=61000,gid=61000",
        "--volume", f"{tools}:/tools:ro,z", "--workdir", "/work", "--entrypoint", "python3", IMAGE,
    ]  # fmt: skip
    assert run[-6:] == ["-I", "-S", "-X", "utf8", "-c", BOOT]
    assert docker.calls("rm") == [["rm", "--force", "--volumes", name]]
    assert not place.exists()


def test_no_word_of_a_command_stands_on_a_command_line(docker: FakeEngine) -> None:
    async def work(backend: ContainerBackend) -> None:
        sandbox = await backend.create(SPEC)
        await sandbox.exec(Command(argv=("echo", "secret-word"), env={"A": "secret-value"}, stdin=b"secret-input"))

    on(docker, work)
    assert "secret" not in json.dumps(docker.calls())


def test_podman_has_words_of_its_own(tmp_path: Path) -> None:
    podman = FakeEngine.install(tmp_path, "podman")
    on(podman, lambda backend: backend.create(SPEC))
    (run,) = podman.calls("run")
    assert {"--read-only-tmpfs=false", "--http-proxy=false", "--systemd=false"} <= set(run)
    assert "--tmpfs" not in run
    places = [run[place + 1] for place, word in enumerate(run) if word == "--mount"]
    assert [place.split(",")[1] for place in places] == [
        "destination=/work",
        "destination=/tmp",
        "destination=/home/agent",
    ]
    assert all("U=true,notmpcopyup" in place for place in places)


def test_equal_files_have_the_key_that_bubblewrap_gives_them(docker: FakeEngine, tmp_path: Path) -> None:
    script = (
        "chmod +x a.py; ln -s a.py link; mkfifo fifo; mkdir -p e/f; ln a.py pkg/hard; printf x >\"$(printf 'b\\377d')\""
    )

    async def key(backend: ContainerBackend | BubblewrapBackend) -> str:
        sandbox = await backend.create(SandboxSpec(files=SPEC.files))
        assert (await sandbox.exec(Command(argv=("sh", "-ec", script)))).exit_code == 0
        found = await sandbox.state_key()
        if isinstance(backend, ContainerBackend):
            assert await (await sandbox.fork()).state_key() == found
        return found

    async def work() -> tuple[str, str]:
        other = BubblewrapBackend(tmp_path / "state")
        try:
            return on_key, await key(other)
        finally:
            await other.close()

    on_key = on(docker, key)
    assert len(set(asyncio.run(work()))) == 1


def test_a_spec_names_its_image_and_nothing_is_pulled(docker: FakeEngine) -> None:
    spec = dataclasses.replace(SPEC, image="registry.invalid/none:1")
    with pytest.raises(SandboxUnavailable, match=r"`docker pull registry\.invalid/none:1`"):
        on(docker, lambda backend: backend.create(spec))
    assert docker.calls("run") == []
    assert docker.calls("pull") == []


def test_backends_without_images_refuse_one(tmp_path: Path) -> None:
    from sanderling.assemble import load_backend

    backend = BubblewrapBackend(tmp_path)
    with pytest.raises(SandboxUnavailable, match=r"python:3'.*bubblewrap has none"):
        asyncio.run(backend.create(SandboxSpec(files={}, image=IMAGE)))
    with pytest.raises(PluginError, match=r"sandbox\.image"):
        load_backend("bubblewrap", IMAGE)


@pytest.mark.parametrize(
    ("faults", "error", "words"),
    [
        ({"daemon": "down"}, SandboxUnavailable, "daemon doesn't answer .*start it"),
        ({"image": "missing"}, SandboxUnavailable, "has no image"),
        ({"python": "missing"}, SandboxUnavailable, "no Python 3.11 or newer"),
        ({"python": "old"}, SandboxUnavailable, "3.11 or newer is needed"),
        ({"user": "root"}, SandboxUnavailable, "as root"),
        ({"hang": "run"}, SandboxLost, "wasn't ready within 1 s"),
    ],
)
def test_what_a_creation_says_of_faults(docker: FakeEngine, faults: dict, error: type, words: str) -> None:
    docker.set_faults(**faults)
    spec = dataclasses.replace(
        SPEC, limits=dataclasses.replace(SMALL, sandbox_create_s=1.0 if "hang" in faults else 30.0)
    )
    with pytest.raises(error, match=words):
        on(docker, lambda backend: backend.create(spec))
    docker.set_faults()
    assert docker.containers() == {}


def test_a_daemon_that_goes_down_is_our_failure(docker: FakeEngine) -> None:
    async def work(backend: ContainerBackend) -> None:
        sandbox = await backend.create(SPEC)
        docker.set_faults(daemon="down")
        with pytest.raises(SandboxLost, match="daemon doesn't answer"):
            await backend.create(SPEC)
        docker.kill(sandbox.id)
        with pytest.raises(SandboxLost, match="daemon doesn't answer"):
            await sandbox.exec(Command(argv=("true",)))
        docker.set_faults()

    on(docker, work)
    assert docker.containers() == {}


@pytest.mark.parametrize(
    ("out_of_memory", "error", "words"),
    [(False, SandboxLost, "killed from outside"), (True, SandboxBroken, "used up the memory")],
)
def test_who_is_to_blame_for_a_dead_container(docker: FakeEngine, out_of_memory: bool, error: type, words: str) -> None:
    async def work(backend: ContainerBackend) -> None:
        sandbox = await backend.create(SPEC)
        running = asyncio.create_task(sandbox.exec(Command(argv=("sh", "-c", "echo 1 >f; sleep 9"))))
        await asyncio.sleep(0.3)
        docker.kill(sandbox.id, out_of_memory=out_of_memory)
        for call in (running, sandbox.read_file("a.py"), sandbox.fork(), sandbox.submission(("*",))):
            with pytest.raises(error, match=words):  # the first word stands
                await call
        await sandbox.destroy()

    on(docker, work)
    assert docker.containers() == {}


def test_a_removed_container_is_our_failure(docker: FakeEngine) -> None:
    async def work(backend: ContainerBackend) -> None:
        sandbox = await backend.create(SPEC)
        find_engine(str(docker.program)).remove([sandbox.id])
        with pytest.raises(SandboxLost, match="removed from outside"):
            await sandbox.list_files()

    on(docker, work)


def test_a_command_can_not_end_or_reach_the_first_process(docker: FakeEngine) -> None:
    attack = """
import contextlib, os, signal
for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGINT, signal.SIGTERM):
    os.kill(1, number)
for name in ("mem", "fd/0", "fd/1", "fd/200", "fd/201", "environ", "root"):
    try:
        os.close(os.open("/proc/1/" + name, os.O_RDONLY))
        print("opened", name)
    except OSError:
        pass
print(sorted(os.listdir("/proc/self/fd")), flush=True)
with contextlib.suppress(ProcessLookupError):
    os.kill(-1, signal.SIGKILL)
print("alone")
"""

    async def work(backend: ContainerBackend) -> tuple[bytes, bytes]:
        sandbox = await backend.create(SPEC)
        first = await sandbox.exec(Command(argv=("python3", "-I", "-S", "-c", attack)))
        return first.stdout, (await sandbox.exec(Command(argv=("cat", "a.py")))).stdout

    assert on(docker, work) == (b"['0', '1', '2', '3']\nalone\n", b"a = 1\n")


def test_the_first_process_refuses_to_run_outside_of_a_container() -> None:
    done = subprocess.run([sys.executable, "-I", "-S", "-c", BOOT], input=modules(), capture_output=True, check=False)
    assert done.returncode != 0
    assert b"not process 1" in done.stderr


_OWNER = """
import asyncio, sys
from pathlib import Path
from sanderling.sandbox.container import ContainerBackend
from sanderling.sandbox.protocol import Command, SandboxSpec

async def main():
    backend = ContainerBackend(sys.argv[1], image=sys.argv[2], state_dir=Path(sys.argv[3]))
    await backend.create(SandboxSpec(files={"a": b"1"}))
    print("ready", flush=True)
    await asyncio.sleep(300)

asyncio.run(main())
"""


def test_nothing_survives_a_killed_owner(docker: FakeEngine) -> None:
    state = docker.state / "journals"
    words = [sys.executable, "-c", _OWNER, str(docker.program), IMAGE, str(state)]
    owner = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"ready\n"
    (directory,) = state.glob("backend-*")
    ((name, container),) = docker.containers().items()
    assert {(entry["kind"], entry["name"]) for entry in leftovers(directory / "journal.jsonl")} == {
        ("engine", str(docker.program)),
        ("container", name),
    }
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    end = time.monotonic() + 10
    while docker.containers()[name]["running"] and time.monotonic() < end:
        time.sleep(0.02)
    assert not docker.containers()[name]["running"]  # its first process saw the end of the conversation
    assert not Path(f"/proc/{container['pid']}").exists()
    docker.set_faults(daemon="down")
    assert sweep(state) == []
    assert directory.exists()  # to be tried again
    docker.set_faults()
    assert sweep(state) == [directory.name]
    assert docker.containers() == {}


def test_what_can_not_be_removed_is_left_to_the_next_backend(docker: FakeEngine) -> None:
    async def leave() -> None:
        backend = backend_on(docker)
        await backend.create(SPEC)
        docker.set_faults(daemon="down")
        await backend.close()
        await backend.close()

    asyncio.run(leave())
    assert len(docker.containers()) == 1
    docker.set_faults()
    on(docker, lambda backend: backend.create(SPEC))
    assert docker.containers() == {}
    assert list((docker.state / "journals").glob("backend-*")) == []


def test_a_cancelled_creation_leaves_no_container(docker: FakeEngine) -> None:
    docker.set_faults(slow="run")

    async def work(backend: ContainerBackend) -> None:
        creation = asyncio.create_task(backend.create(SPEC))
        while not docker.calls("run"):
            await asyncio.sleep(0.02)
        creation.cancel()
        await asyncio.gather(creation, return_exceptions=True)

    on(docker, work)
    docker.set_faults()
    time.sleep(0.1)
    assert docker.containers() == {}


def test_a_cancelled_command_is_dead_and_the_sandbox_goes_on(docker: FakeEngine) -> None:
    async def work(backend: ContainerBackend) -> tuple[bytes, int]:
        sandbox = await backend.create(SPEC)
        script = "while true; do echo x >>beat; sleep 0.01; done"
        running = asyncio.create_task(sandbox.exec(Command(argv=("sh", "-c", script))))
        await asyncio.sleep(0.3)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        sizes = {len(await sandbox.read_file("beat")) for _ in range(2) if not await asyncio.sleep(0.1)}
        return (await sandbox.exec(Command(argv=("echo", "on")))).stdout, len(sizes)

    assert on(docker, work) == (b"on\n", 1)


def test_a_live_server_is_copied_around_and_forks_alone(docker: FakeEngine) -> None:
    async def work(backend: ContainerBackend) -> tuple[bytes, bytes]:
        sandbox: Sandbox = await backend.create(dataclasses.replace(SPEC, kept=Kept.PROCESSES))
        await sandbox.exec(Command(argv=("sh", "-c", "nohup sleep 60 >/dev/null 2>&1 & echo $! >pid")))
        twin = await sandbox.fork()
        script = 'kill -0 "$(cat pid)" 2>/dev/null && echo alive || echo gone'
        return tuple([(await one.exec(Command(argv=("sh", "-c", script)))).stdout for one in (sandbox, twin)])  # type: ignore

    assert on(docker, work) == (b"alive\n", b"gone\n")


def test_the_probe_says_what_is_guaranteed_and_what_is_missing(docker: FakeEngine) -> None:
    backend = backend_on(docker)
    found = backend.probe()
    assert (found.name, found.mode, found.isolation, found.usable, found.missing) == (
        "docker",
        "container",
        "container",
        True,
        (),
    )
    # whatever can't be seen in there isn't claimed: the fake sets no limits
    risks = {risk.partition(":")[0] for risk in found.open_risks}
    unlimited = {"memory_total", "memory_shared", "fork_bomb"}
    assert risks == unlimited | {"shared_kernel", "interpreter", "engine_access", "links_lead"}
    docker.set_faults(daemon="down")
    found = backend.probe()
    assert not found.usable
    assert "start it" in found.missing[0]
    with pytest.raises(SandboxUnavailable, match="no program 'podman-of-nobody'"):
        find_engine("podman-of-nobody")
    with pytest.raises(SandboxUnavailable, match="no container engine"):
        find_engine("lxc")


def test_a_closed_backend_says_so(docker: FakeEngine) -> None:
    backend = backend_on(docker)
    asyncio.run(backend.close())
    with pytest.raises(SandboxUnavailable, match="closed"):
        asyncio.run(backend.create(SPEC))


def test_the_profile_refuses_what_the_filter_refuses() -> None:
    profile = json.loads(container_profile())
    refused = {name: rule["errnoRet"] for rule in profile["syscalls"] for name in rule["names"] if not rule["args"]}
    assert refused.keys() >= DENIED.keys()
    assert refused["clone3"] == 38
    assert refused["mount"] == 1
    flags = [rule["args"][0]["value"] for rule in profile["syscalls"] if rule["names"] == ["clone"]]
    assert 0x10000000 in flags and sum(flags) == 0x7E020080
    families = {rule["args"][0].get("valueTwo", ">16") for rule in profile["syscalls"] if rule["names"] == ["socket"]}
    assert families == {*range(17), ">16"} - {1, 2, 10, 16}


def test_an_engine_that_is_gone_leaves_its_leftovers() -> None:
    assert not remove_leftovers("/nowhere/docker", "backend-1")
