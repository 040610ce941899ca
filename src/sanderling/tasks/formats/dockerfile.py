"""What a simple Dockerfile builds, without building it: files in one working directory, variables, and commands.

A Dockerfile is *portable* when a sandbox that has Python and the tools of a Debian can stand in for its image: it starts from
such an image, copies files into its WORKDIR, sets variables, and runs nothing that needs the network, root or a place outside
of the WORKDIR. Everything else is refused, with the line and the reason.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

_IMAGES = re.compile(
    r"(?:docker\.io/)?(?:library/)?(python|debian|ubuntu|buildpack-deps)(?::[\w.-]+)?(?:@sha256:[0-9a-f]{64})?"
)
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::-([^}]*))?\}|(\w+))")
_WITHOUT_EFFECT = ("LABEL", "MAINTAINER", "EXPOSE", "STOPSIGNAL")
_RUNS = (
    "mkdir", "touch", "chmod", "cp", "mv", "ln", "rm", "echo", "printf", "true", "cd", "cat", "python", "python3", "git", "sed",
)  # fmt: skip
_NEEDS = {
    "apt-get": "installs system packages", "apt": "installs system packages", "apk": "installs system packages",
    "pip": "installs packages", "pip3": "installs packages", "uv": "installs packages", "conda": "installs packages",
    "npm": "installs packages", "curl": "needs the network", "wget": "needs the network", "useradd": "makes users",
    "adduser": "makes users", "groupadd": "makes users", "chown": "changes owners", "service": "starts a service",
}  # fmt: skip
_IDLE = {
    "bash", "sh", "/bin/bash", "/bin/sh", "python", "python3", "sleep", "infinity", "tail", "-f", "/dev/null", "-c", "-l",
}  # fmt: skip
PROVIDED = frozenset({"pytest"})  # packages that a sandbox can be given, in this machine's version
_INSTALL = re.compile(r"(?:python3? -m )?pip3? install (.+)")
_BUILTIN_MODULES = ("pip", "venv", "ensurepip", "http.server")
_GUARDED = ("PATH", "HOME", "USER", "TMPDIR", "PYTHONHOME", "PYTHONPATH")


class NotPortable(ValueError):
    """This task needs a real container; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a portable Dockerfile leaves behind."""

    image: str
    workdir: str  # absolute
    files: Mapping[str, bytes] = field(default_factory=dict)  # by path relative to `workdir`
    env: Mapping[str, str] = field(default_factory=dict)
    setup: tuple[tuple[str, ...], ...] = ()  # commands to run in `workdir`, in order
    packages: tuple[str, ...] = ()  # of `PROVIDED`, that it installs


@dataclass(slots=True)
class _Build:
    """The state between two instructions."""

    context: Mapping[str, bytes]
    image: str = ""
    workdir: str = ""
    files: dict[str, bytes] = field(default_factory=dict)  # by absolute path
    env: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    runs: list[tuple[str, str]] = field(default_factory=list)  # working directory and shell text
    packages: set[str] = field(default_factory=set)


def portable_recipe(text: str, context: Mapping[str, bytes], workdir: str | None = None) -> Recipe:
    """Return what a Dockerfile builds.

    Args:
        text: the Dockerfile.
        context: the files beside it, by relative POSIX path.
        workdir: replaces the WORKDIR of the file, as `[environment].workdir` does.

    Raises:
        NotPortable: it takes more than a sandbox has; names the line and the reason.
    """
    build = _Build(context=context)
    for number, instruction, rest in _instructions(text):
        try:
            _apply(build, instruction, rest)
        except NotPortable as error:
            raise NotPortable(f"Dockerfile line {number}, {instruction}: {error}") from None
    if not build.image:
        raise NotPortable("the Dockerfile has no FROM")
    top = workdir or build.workdir
    if not top or top == "/":
        raise NotPortable(
            "the Dockerfile sets no WORKDIR below /, so that the whole root of the image is the workspace"
        )
    return _finished(build, str(PurePosixPath(top)))


def _finished(build: _Build, workdir: str) -> Recipe:
    files = {}
    for path, content in build.files.items():
        if not PurePosixPath(path).is_relative_to(workdir):
            raise NotPortable(f"{path} is copied to a place outside of the WORKDIR {workdir}")
        files[str(PurePosixPath(path).relative_to(workdir))] = content
    setup = []
    for folder, command in build.runs:
        if not PurePosixPath(folder or workdir).is_relative_to(workdir):
            raise NotPortable(f"RUN {command!r} runs in {folder}, outside of the WORKDIR {workdir}")
        place = PurePosixPath(folder or workdir).relative_to(workdir)
        setup.append(("sh", "-ec", command if str(place) == "." else f"mkdir -p {place}; cd {place}; {command}"))
    return Recipe(
        image=build.image,
        workdir=workdir,
        files=files,
        env=dict(build.env),
        setup=tuple(setup),
        packages=tuple(sorted(build.packages)),
    )


def _instructions(text: str) -> list[tuple[int, str, str]]:
    """Return (line number, instruction in capitals, rest) with continued lines joined and comments left out."""
    found, pending, start = [], "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#") or (not line.strip() and pending):
            continue
        start = start if pending else number
        if line.rstrip().endswith("\\"):
            pending += line.rstrip()[:-1] + " "
            continue
        whole = (pending + line).strip()
        pending = ""
        if whole:
            word, _, rest = whole.partition(" ")
            found.append((start, word.upper(), rest.strip()))
    if pending.strip():
        word, _, rest = pending.strip().partition(" ")
        found.append((start, word.upper(), rest.strip()))
    return found


def _apply(build: _Build, instruction: str, rest: str) -> None:
    if instruction == "FROM":
        _from(build, rest)
    elif instruction == "WORKDIR":
        build.workdir = str(PurePosixPath(build.workdir or "/", _expanded(build, rest.strip("\"'"))))
    elif instruction in ("COPY", "ADD"):
        _copy(build, rest)
    elif instruction in ("ENV", "ARG"):
        _set(build, instruction, rest)
    elif instruction == "RUN":
        build.runs += _run(build, rest)
    elif instruction in ("CMD", "ENTRYPOINT"):
        _check_start(rest)
    elif instruction == "USER":
        raise NotPortable(f"the agent would be {rest!r}, a sandbox has one user of its own")
    elif instruction not in _WITHOUT_EFFECT:
        raise NotPortable("a sandbox has nothing like it")


def _from(build: _Build, rest: str) -> None:
    image = _expanded(build, rest.split(maxsplit=1)[0] if rest else "")
    if build.image:
        raise NotPortable("several stages")
    if len(rest.split()) > 1 and rest.split()[1].upper() != "AS":
        raise NotPortable(f"{rest!r} is more than an image")
    if not _IMAGES.fullmatch(image):
        raise NotPortable(f"image {image!r}; portable are python, debian and ubuntu")
    build.image = image


def _copy(build: _Build, rest: str) -> None:
    words = json.loads(rest) if rest.startswith("[") else shlex.split(rest)
    flags = [word for word in words if word.startswith("--")]
    if any(not flag.startswith(("--chmod=", "--link")) for flag in flags):
        raise NotPortable(f"{' '.join(flags)} is not supported")
    *sources, target = [_expanded(build, word) for word in words if not word.startswith("--")]
    place = PurePosixPath(build.workdir or "/", target)
    as_folder = target.endswith(("/", ".")) or len(sources) > 1
    for source in sources:
        if "://" in source:
            raise NotPortable(f"{source} comes from the network")
        for relative, content in _matching(build.context, source):
            inner = PurePosixPath(relative)
            whole = (
                place / inner if as_folder or str(inner) != inner.name or _is_folder(build.context, source) else place
            )
            build.files[str(whole)] = content


def _matching(context: Mapping[str, bytes], source: str) -> list[tuple[str, bytes]]:
    """Return the files that a COPY source means, each by the path that it gets below the target."""
    name = source.removeprefix("./").strip("/")
    if name in ("", "."):
        return list(context.items())
    if name in context:
        return [(PurePosixPath(name).name, context[name])]
    inner = [
        (path.removeprefix(f"{name}/"), content) for path, content in context.items() if path.startswith(f"{name}/")
    ]
    if not inner and any(char in name for char in "*?["):
        depth = len(PurePosixPath(name).parts)  # a wildcard crosses no slash
        same_depth = [path for path in context if len(PurePosixPath(path).parts) == depth]
        inner = [(PurePosixPath(path).name, context[path]) for path in same_depth if PurePosixPath(path).match(name)]
    if not inner:
        raise NotPortable(f"{source!r} isn't among the files beside the Dockerfile")
    return inner


def _is_folder(context: Mapping[str, bytes], source: str) -> bool:
    return source.removeprefix("./").strip("/") not in context


def _set(build: _Build, instruction: str, rest: str) -> None:
    words = shlex.split(rest)
    if instruction == "ENV" and "=" not in words[0]:
        words = [f"{words[0]}={' '.join(words[1:])}"]
    for word in words:
        name, _, value = word.partition("=")
        if instruction == "ARG":
            build.arguments[name] = _expanded(build, value)
        elif name in _GUARDED or name.startswith("LD_"):
            raise NotPortable(f"{name} is set by the sandbox itself")
        else:
            build.env[name] = _expanded(build, value)


def _run(build: _Build, rest: str) -> list[tuple[str, str]]:
    text = shlex.join(json.loads(rest)) if rest.startswith("[") else rest
    if text.startswith("--"):
        raise NotPortable(f"{text.split()[0]} is not supported")
    if (installed := _INSTALL.fullmatch(text.strip())) and (names := _names(installed[1])) and names <= PROVIDED:
        build.packages |= names
        return []
    for part in re.split(r"&&|\|\||;|\|", text):
        words = part.split()
        while words and "=" in words[0].split("/")[0]:
            words = words[1:]
        command = words[0] if words else "true"
        if command in _NEEDS or (command.startswith("python") and "-m" in words and set(words) & set(_BUILTIN_MODULES)):
            raise NotPortable(f"{part.strip()!r} {_NEEDS.get(command, 'installs packages')}")
        if command not in _RUNS:
            raise NotPortable(
                f"{command!r} isn't among the commands that a sandbox is known to have ({', '.join(_RUNS)})"
            )
        outside = [word for word in words[1:] if word.startswith("/") and not _is_inside(build.workdir, word)]
        if outside and command in ("mkdir", "touch", "chmod", "cp", "mv", "ln", "rm", "cd", "sed"):
            if command == "mkdir" and set(outside) <= {
                "/logs",
                "/logs/verifier",
                "/logs/agent",
                "/logs/artifacts",
                "/tests",
            }:
                return []  # places that a grading makes anyway
            raise NotPortable(f"{part.strip()!r} acts on {outside[0]}, outside of the WORKDIR")
    return [(build.workdir, text)]


def _names(words: str) -> set[str]:
    """Return the names of the packages that pip is asked for, without their versions."""
    given = [word for word in shlex.split(words) if not word.startswith("-")]
    return {
        re.split(r"[<>=!~\[ ]", word, maxsplit=1)[0].lower() for word in given
    }  # an operator is no name of a package


def _is_inside(workdir: str, path: str) -> bool:
    return bool(workdir) and PurePosixPath(path).is_relative_to(workdir)


def _check_start(rest: str) -> None:
    words = json.loads(rest) if rest.startswith("[") else shlex.split(rest)
    if not set(words) <= _IDLE:
        raise NotPortable(f"{rest!r} starts a program of its own")


def _expanded(build: _Build, text: str) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        found = build.env.get(name, build.arguments.get(name, match[2]))
        if found is None:
            raise NotPortable(f"${name} isn't set in the file")
        return found

    return _VARIABLE.sub(value, text)
