"""Small repository tasks with hidden suites, made by real runs: for tests of graders and of audits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sanderling.environment import Environment
from sanderling.errors import TaskError
from sanderling.harness.bash_block import BashBlockHarness
from sanderling.repository import repository_environment
from sanderling.sandbox.protocol import SandboxBackend
from sanderling.synthesis.git_folder import git_folder
from sanderling.tasks.folder import Source, TaskFolder, TaskHeader, write_task_folder
from sanderling.tasks.patches import make_patch
from sanderling.testing.repository_sources import CODE_BASES, SmallCodeBase
from sanderling.types import Limits
from sanderling.verify.suites.record import expect, record
from sanderling.verify.suites.recording import Recording, Suite

LIMITS = Limits(command_s=6.0, command_cpu_s=5.0, memory_mb=256, processes=24, disk_mb=16, grading_s=30.0)


async def make_repository_tasks(folder: Path, backend: SandboxBackend, bugs: Sequence[str] = ()) -> Environment:
    """Write a task folder for each bug and return the environment of all of them.

    Args:
        folder: an empty directory for them.
        backend: where the hidden suites are recorded.
        bugs: names such as "total-last"; (): all twelve.

    Raises:
        TaskError: no such bug, or one that no hidden test shows.
    """
    known = {name for base in CODE_BASES for name in base.bugs}
    if unknown := sorted(set(bugs) - known):
        raise TaskError(f"no bug {unknown[0]!r}; known: {', '.join(sorted(known))}")
    for base in CODE_BASES:
        chosen = [name for name in base.bugs if not bugs or name in bugs]
        if chosen:
            recording = await record(_suite(base), _right(base), backend, repeats=2)
            for name in chosen:
                task = await _task(base, name, recording, backend)
                write_task_folder(folder / f"{base.name}-{name}", task)
    return repository_environment(folder, BashBlockHarness())


async def _task(base: SmallCodeBase, bug: str, recording: Recording, backend: SandboxBackend) -> TaskFolder:
    right, wrong = base.bugs[bug]
    if base.source.count(right) != 1:
        raise TaskError(f"the bug {bug!r} has no single place in {base.file}")
    files = {**_right(base), base.file: base.source.replace(right, wrong).encode()}
    expected, _ = await expect(_suite(base), recording, files, backend)
    command = ("env", f"PYTHONPATH={base.root}", "python3", "-m", "pytest", "-q")
    header = TaskHeader(
        id=f"{base.name}/train/{bug}",
        source=Source(name=base.name),
        editable=(f"{base.file.rpartition('/')[0]}/*",),
        modules=(base.root,),
        visible_tests=command,
        limits=LIMITS,
        metadata={"file": base.file, "family": bug},
    )
    return TaskFolder(
        header=header,
        instruction="A test fails. Find the bug in the package and fix it; leave the tests as they are.",
        base={**files, **git_folder(files)},  # as tasks that are made from a code base have it
        tests=_suite(base).tests,
        expected=expected,
        gold_patch=make_patch(files, _right(base)),
    )


def _right(base: SmallCodeBase) -> dict[str, bytes]:
    package = base.file.rpartition("/")[0]
    return {
        f"{package}/__init__.py": b"",
        base.file: base.source.encode(),
        "tests/helper.py": base.helper.encode(),
        "tests/test_visible.py": base.visible.encode(),
    }


def _suite(base: SmallCodeBase) -> Suite:
    return Suite(tests={f"tests/test_hidden_{base.name}.py": base.hidden.encode()}, modules=(base.root,), limits=LIMITS)
