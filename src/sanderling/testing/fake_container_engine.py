"""The part of a container engine's command line that Sanderling uses, over real processes in namespaces of bubblewrap.

It is a program: `FakeEngine.install` writes an executable "docker" or "podman" that runs `main` here. Every call is written
down word for word, words that it doesn't know are refused as the real program refuses them, and faults can be switched on. What
it can't show: limits on memory, processes and processors, images (all of them are this machine's own system), seccomp profiles.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

IMAGE = "fake/python:3"
_DOWN = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
_SWITCHES = {"--interactive", "--read-only", "--read-only-tmpfs=false", "--http-proxy=false", "--systemd=false"}
_VALUED = {
    "--name", "--label", "--pull", "--network", "--ipc", "--hostname", "--log-driver", "--stop-signal", "--user", "--cap-drop",
    "--security-opt", "--pids-limit", "--memory", "--memory-swap", "--cpus", "--ulimit", "--shm-size", "--tmpfs", "--mount",
    "--volume", "--workdir", "--entrypoint",
}  # fmt: skip
_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_PROGRAM = """#!{python} -IS
import sys
sys.path[:0] = [{source!r}]
from sanderling.testing.fake_container_engine import main
main({state!r}, {kind!r})
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeEngine:
    """An engine installed in a directory: its program, and what tests do to it and ask of it."""

    program: Path
    state: Path

    @classmethod
    def install(cls, directory: Path, kind: str = "docker") -> FakeEngine:
        """Write the program "docker" or "podman" into `directory`, with a state of its own beside it."""
        state = directory / f"{kind}-state"
        (state / "containers").mkdir(parents=True)
        program = directory / kind
        source = str(Path(__file__).parent.parent.parent)
        program.write_text(_PROGRAM.format(python=sys.executable, source=source, state=str(state), kind=kind))
        program.chmod(0o755)
        engine = cls(program=program, state=state)
        engine.set_faults()
        return engine

    def set_faults(self, **faults: str) -> None:
        """Switch faults on, and all others off.

        daemon="down": nothing answers. image="missing": no image is known. python="missing" or "old": the image's. hang=VERB,
        such as "run": that verb never ends. slow=VERB: it takes two seconds. user="root": `--user` is ignored.
        """
        fresh = self.state / "faults.new"
        fresh.write_text(json.dumps(faults))
        fresh.rename(self.state / "faults.json")

    def calls(self, verb: str | None = None) -> list[list[str]]:
        """Return the words of every call so far, without the program; with a verb only of those that begin with it."""
        path = self.state / "calls.jsonl"
        calls = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [words for words in calls if verb is None or words[0] == verb]

    def containers(self) -> dict[str, dict[str, Any]]:
        """Return what the engine knows of its containers, by name."""
        return {path.stem: json.loads(path.read_text()) for path in (self.state / "containers").glob("*.json")}

    def kill(self, name: str, *, out_of_memory: bool = False) -> None:
        """Kill a container's first process: from outside, or as the kernel does when its memory runs out."""
        if out_of_memory:
            (self.state / "containers" / f"{name}.oom").touch()
        os.kill(self.containers()[name]["pid"], signal.SIGKILL)


def main(state: str, kind: str) -> NoReturn:
    """Be the program: do what the words of the command line ask for, and end as the engine would."""
    words = sys.argv[1:]
    place = Path(state)
    with (place / "calls.jsonl").open("a") as file:
        file.write(json.dumps(words) + "\n")
    faults = json.loads((place / "faults.json").read_text())
    if faults.get("hang") == words[0]:
        while True:
            time.sleep(60)
    if faults.get("slow") == words[0]:
        time.sleep(2)
    if faults.get("daemon") == "down":
        _end(_DOWN, 1)
    verbs = {"run": _run, "rm": _remove, "ps": _list, "inspect": _inspect, "image": _inspect_image}
    if words[0] not in verbs:
        _end(f"{kind}: '{words[0]}' is not a {kind} command.", 1)
    sys.exit(verbs[words[0]](place, words[1:], faults))


def _end(words: str, code: int) -> NoReturn:
    sys.stderr.write(f"{words}\n")
    sys.exit(code)


def _inspect_image(place: Path, words: list[str], faults: dict[str, str]) -> int:
    if words[:3] != ["inspect", "--format", "{{json .Config.Env}}"] or len(words) != 4:
        _end(f"unknown words after image: {words}", 125)
    if words[3] != IMAGE or faults.get("image") == "missing":
        _end(f"Error response from daemon: No such image: {words[3]}", 1)
    sys.stdout.write(json.dumps([f"PATH={_search_path()}", "IMAGE_SAYS=hello"]) + "\n")
    return 0


def _search_path() -> str:
    return f"{os.path.realpath(sys.base_prefix)}/bin:/usr/local/bin:/usr/bin:/bin"


def _record(place: Path, name: str, fields: dict[str, Any]) -> None:
    path = place / "containers" / f"{name}.json"
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(fields))
    fresh.rename(path)


def _known(place: Path, name: str) -> dict[str, Any]:
    try:
        return json.loads((place / "containers" / f"{name}.json").read_text())
    except OSError:
        _end(f"Error response from daemon: No such container: {name}", 1)


def _inspect(place: Path, words: list[str], faults: dict[str, str]) -> int:
    if words[:-1] != ["--type", "container", "--format", "{{json .State}}"]:
        _end(f"unknown words after inspect: {words}", 125)
    found = _known(place, words[-1])
    oom = (place / "containers" / f"{words[-1]}.oom").exists()
    answer = {"Running": found["running"], "ExitCode": found["exit_code"], "OOMKilled": oom, "Pid": found["pid"]}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


def _list(place: Path, words: list[str], faults: dict[str, str]) -> int:
    if words[:-1] != ["--all", "--quiet", "--no-trunc", "--filter"] or not words[-1].startswith("label="):
        _end(f"unknown words after ps: {words}", 125)
    for path in sorted((place / "containers").glob("*.json")):
        if words[-1].removeprefix("label=") in json.loads(path.read_text())["labels"]:
            sys.stdout.write(f"{path.stem}\n")
    return 0


def _remove(place: Path, words: list[str], faults: dict[str, str]) -> int:
    if words[:-1] != ["--force", "--volumes"]:
        _end(f"unknown words after rm: {words}", 125)
    found = _known(place, words[-1])
    if found["running"]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(found["pid"], signal.SIGKILL)
        while _is_alive(found["pid"]):
            time.sleep(0.002)
    with _locked(place):
        for path in (place / "containers").glob(f"{words[-1]}.*"):
            path.unlink()
    return 0


@contextlib.contextmanager
def _locked(place: Path) -> Generator[None]:
    """Let a container's end and its removal come one after the other."""
    with (place / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _run(place: Path, words: list[str], faults: dict[str, str]) -> int:
    options, image, command = _parsed(words)
    name = options["--name"][0]
    if (place / "containers" / f"{name}.json").exists():
        _end(f'Error response from daemon: Conflict. The container name "/{name}" is already in use.', 125)
    if image != IMAGE or faults.get("image") == "missing":
        _end(f"Error response from daemon: No such image: {image}", 125)
    program = options["--entrypoint"][0]
    if faults.get("python") == "missing":
        _end(f'exec: "{program}": executable file not found in $PATH: unknown.', 127)
    if faults.get("python") == "old":
        command = [word.replace("sys.version_info < (3, 11)", "True") for word in command]
    fields: dict[str, Any] = {"pid": 0, "running": True, "exit_code": 0, "labels": options["--label"], "words": words}
    _record(place, name, fields)
    reader, writer = os.pipe()
    vector = _bubblewrap(options, as_root=faults.get("user") == "root")
    started = subprocess.Popen([*vector, "--info-fd", str(writer), "--", program, *command], pass_fds=(writer,))
    os.close(writer)
    with open(reader) as file:  # noqa: PTH123  a descriptor
        told = file.read()
    fields["pid"] = json.loads(told)["child-pid"] if told.strip() else started.pid
    _record(place, name, fields)
    code = started.wait()
    with _locked(place):
        if (place / "containers" / f"{name}.json").exists():
            _record(place, name, {**fields, "running": False, "exit_code": code if code >= 0 else 128 - code})
    return code if code >= 0 else 128 - code


def _parsed(words: list[str]) -> tuple[dict[str, list[str]], str, list[str]]:
    """Split into options, image and command; an option that isn't known ends it as the real program does."""
    options: dict[str, list[str]] = {}
    place = 0
    while place < len(words) and words[place].startswith("--"):
        word = words[place]
        if word in _SWITCHES:
            options.setdefault(word, [])
            place += 1
        elif word in _VALUED:
            options.setdefault(word, []).append(words[place + 1])
            place += 2
        else:
            _end(f"unknown flag: {word}\nSee 'docker run --help'.", 125)
    return options, words[place], words[place + 1 :]


def _bubblewrap(options: dict[str, list[str]], *, as_root: bool) -> list[str]:
    user, group = ("0", "0") if as_root else options["--user"][0].split(":")
    vector = ["bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    vector += ["--unshare-net"] if options.get("--network") == ["none"] else []
    vector += ["--uid", user, "--gid", group, "--hostname", options["--hostname"][0], "--as-pid-1", "--clearenv"]
    vector += [
        "--setenv",
        "PATH",
        _search_path(),
        "--cap-drop",
        options["--cap-drop"][0],
        *_system(),
        "--proc",
        "/proc",
    ]
    vector += ["--dev", "/dev", "--perms", "1777", "--size", options["--shm-size"][0], "--tmpfs", "/dev/shm"]
    vector += ["--dir", "/tools"]
    for text in options.get("--tmpfs", ()):
        target, _, settings = text.partition(":")
        size = next(word.partition("=")[2] for word in settings.split(",") if word.startswith("size="))
        vector += ["--perms", "0755", "--size", size, "--tmpfs", target]
    for text in options.get("--mount", ()):
        settings = dict(word.partition("=")[::2] for word in text.split(","))
        vector += ["--perms", "0755", "--size", settings["tmpfs-size"], "--tmpfs", settings["destination"]]
    for text in options.get("--volume", ()):
        source, target, _ = text.split(":")
        vector += ["--ro-bind", source, target]
    vector += ["--remount-ro", "/dev", *(["--remount-ro", "/"] if "--read-only" in options else [])]
    return [*vector, "--chdir", options["--workdir"][0]]


def _system() -> list[str]:
    """Return the words that show this machine's system and the interpreter that runs us."""
    words = ["--ro-bind", "/usr", "/usr"]
    for name in _SYSTEM:
        path = Path("/", name)
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), str(path)]
        elif path.exists() and stat.S_ISDIR(path.stat().st_mode):
            words += ["--ro-bind", str(path), str(path)]
    prefix = os.path.realpath(sys.base_prefix)
    if not prefix.startswith("/usr"):
        words += ["--ro-bind", prefix, prefix]
    return words
