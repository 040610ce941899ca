"""Tests that go with a task to other systems: what a verifier can pack into a folder, and the Harbor folder around it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from sanderling.tasks.formats.harbor import SOLVE_SCRIPT, TEST_SCRIPT, HarborFolder
from sanderling.tasks.formats.harbor_config import (
    SCHEMA_VERSION,
    Agent,
    Environment,
    HarborConfig,
    Package,
    Verifier,
)
from sanderling.types import Limits, Task

WORKDIR = "/app"
IMAGE = "python:3.11-slim-bookworm"
_LEAST_MB = 512  # of memory and disk, which a container shares with what runs it
_NAME = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class PortableTests:
    """What judges a task outside of Sanderling."""

    tests: Mapping[str, bytes]  # by path below /tests; test.sh writes /logs/verifier/reward.txt
    solution: Mapping[str, bytes]  # right content of the files that change, by path in the workspace
    packages: tuple[str, ...] = ()  # that the image needs besides Python, as pip names them
    channel: str = ""  # how the tests learn the outcome; see docs/formats.md


@runtime_checkable
class Portable(Protocol):
    """A verifier whose tests can be packed into a folder."""

    def portable(self, task: Task, seed: int) -> PortableTests:
        """Return tests that judge as `grade` does, with the hidden inputs of `seed`.

        Raises:
            VerifierError: they can't be made for this task.
        """
        ...


def folder_name(task_id: str) -> str:
    """Return the name of a task's folder: its id with `__` for `/` and `-` for what a name can't hold."""
    return _NAME.sub("-", task_id.replace("/", "__")).strip("-.")


def harbor_folder(task: Task, packed: PortableTests) -> HarborFolder:
    """Return a task as a Harbor folder: no network, and a verifier apart that gets the editable paths only."""
    name = folder_name(task.id)
    config = HarborConfig(
        schema_version=SCHEMA_VERSION,
        artifacts=sorted({_artifact(task.workdir or WORKDIR, pattern) for pattern in task.editable}),
        task=Package(name=f"sanderling/{_short(name)}"),
        metadata={**task.metadata, "sanderling": _notes(task, packed)},
        agent=Agent(timeout_sec=task.limits.episode_s, network_mode="no-network"),
        verifier=Verifier(timeout_sec=task.limits.grading_s, environment_mode="separate", network_mode="no-network"),
        environment=Environment(
            memory_mb=max(_LEAST_MB, task.limits.memory_mb),
            storage_mb=max(_LEAST_MB, task.limits.disk_mb),
            network_mode="no-network",
            workdir=task.workdir or WORKDIR,
        ),
    )
    solution = {f"files/{path}": content for path, content in packed.solution.items()}
    solve = f"#!/bin/sh\nset -e\ncp -R /solution/files/. {shlex.quote(task.workdir or WORKDIR)}/\n"
    return HarborFolder(
        name=name,
        config=config,
        instruction=task.prompt.rstrip("\n") + "\n",
        environment={"Dockerfile": _dockerfile(task, packed), **{f"files/{p}": c for p, c in task.base.items()}},
        tests=packed.tests,
        solution={SOLVE_SCRIPT: solve.encode(), **solution},
        executable=frozenset({f"tests/{TEST_SCRIPT}", f"solution/{SOLVE_SCRIPT}"}),
    )


def _notes(task: Task, packed: PortableTests) -> dict[str, object]:
    standard = dataclasses.asdict(Limits())
    limits = {key: value for key, value in dataclasses.asdict(task.limits).items() if value != standard[key]}
    return {"id": task.id, "editable": list(task.editable), "limits": limits, "channel": packed.channel}


def _artifact(workdir: str, pattern: str) -> str:
    """Return the path that holds everything a pattern can match: a file, or the directory above the first wildcard."""
    parts = pattern.split("/")
    plain = [part for number, part in enumerate(parts) if not any(set("*?[") & set(p) for p in parts[: number + 1])]
    return "/".join([workdir, *plain])


def _short(name: str) -> str:
    return name if len(name) <= 80 else f"{name[:71]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _dockerfile(task: Task, packed: PortableTests) -> bytes:
    lines = [f"FROM {IMAGE}"]
    lines += [f"RUN pip install --no-cache-dir {shlex.join(packed.packages)}"] if packed.packages else []
    lines += [f"WORKDIR {task.workdir or WORKDIR}", f"COPY files/ {task.workdir or WORKDIR}/"]
    lines += [f"ENV {key}={shlex.quote(value)}" for key, value in task.env.items()]
    lines += [f"RUN {json.dumps(list(argv))}" for argv in task.setup]
    return ("\n".join(lines) + "\n").encode()


def script(name: str) -> bytes:
    """Return the source of a program of this folder that runs outside of Sanderling."""
    return Path(__file__).with_name(name).read_bytes()
