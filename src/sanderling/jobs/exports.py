"""Tasks and trajectories for other systems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from sanderling.assemble import check_backend, load_backend, load_environment
from sanderling.errors import ConfigError, TaskError, VerifierError
from sanderling.store.atif import export_atif
from sanderling.store.reader import RunReader
from sanderling.tasks.folder import write_task_folder
from sanderling.tasks.folders import TaskFolders
from sanderling.tasks.formats.git_trees import write_commit
from sanderling.tasks.formats.harbor import HarborFolder, is_harbor_folder, write_harbor
from sanderling.tasks.formats.swebench import (
    find_repository,
    instance_row,
    read_instances,
    task_folder_of,
    write_lines,
)
from sanderling.verify.imported_suite import with_recording
from sanderling.verify.portable import Portable, folder_name, harbor_folder
from sanderling.verify.portable_suite import suite_tests

INSTANCES, REPOSITORIES = "instances.jsonl", "repos"


class TaskFormat(StrEnum):
    """What tasks can be written as."""

    HARBOR = "harbor"
    SWEBENCH = "swebench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written."""

    out: Path
    count: int
    refused: Mapping[str, str] = field(default_factory=dict)  # by task id: why it was not

    def as_json(self) -> dict[str, Any]:
        return {"out": str(self.out), "count": self.count, "refused": dict(self.refused)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which tasks: those of a directory of task folders, or of an environment."""

    directory: Path | None = None
    environment: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    split: str | None = None
    n: int | None = None  # the first so many
    seed: int = 0  # of the hidden inputs that are fixed by exporting

    def __post_init__(self) -> None:
        if (self.directory is None) == (self.environment is None):
            raise ConfigError("give either a directory of task folders or --env, to say which tasks are exported")


def export_tasks(choice: Choice, form: TaskFormat, out: Path) -> Exported:
    """Write tasks in the format of another system.

    Raises:
        ConfigError: the tasks can't be had in this format at all. TaskError: a task is malformed, or `out` is in the way.
    """
    if form is TaskFormat.SWEBENCH:
        return _export_swebench(choice, out)
    count, refused = 0, {}
    for task_id, folder in _harbor_folders(choice):
        if isinstance(folder, str):
            refused[task_id] = folder
            continue
        write_harbor(out / folder.name, folder)
        count += 1
    return Exported(out=out, count=count, refused=refused)


def export_run(run: Path, out: Path, sources: list[str] | None) -> Exported:
    """Write the trajectories of a run as ATIF documents.

    Raises:
        RunFolderError: there is no run, no such rollouts, or `out` can't be written.
    """
    return Exported(out=out, count=export_atif(RunReader(run), out, sources))


async def import_swebench(file: Path, repositories: Path, out: Path, split: str) -> Exported:
    """Turn SWE-bench-family rows into native task folders below `out`, with their tests recorded on the right solution.

    Raises:
        TaskError: the file holds something else. SandboxUnavailable: the tests can't be run here. A row that can't be used is
            in `refused`.
    """
    rows = read_instances(file)
    backend = load_backend("bubblewrap")
    count, refused = 0, {}
    try:
        check_backend(backend)
        for row in rows:
            try:
                folder = task_folder_of(row, find_repository(repositories, row.repo), split)
                write_task_folder(out / folder_name(row.instance_id), await with_recording(folder, backend))
                count += 1
            except (TaskError, VerifierError) as error:
                refused[row.instance_id] = str(error)
    finally:
        await backend.close()
    return Exported(out=out, count=count, refused=refused)


def _harbor_folders(choice: Choice) -> Iterator[tuple[str, HarborFolder | str]]:
    """Yield each task's id with its folder, or with the reason why there is none."""
    if choice.directory is not None:
        tasks = _folders(choice.directory)
        for task_id in _ids(tasks, choice):
            folder = tasks.folder(task_id)
            yield task_id, harbor_folder(folder.task(), suite_tests(folder))
        return
    assert choice.environment is not None
    environment = load_environment(choice.environment, settings=choice.settings)
    if not isinstance(environment.verifier, Portable):
        raise ConfigError(
            f"the verifier of {choice.environment!r}, a {type(environment.verifier).__name__}, can't pack its tests; it "
            "needs a method portable(task, seed), see docs/formats.md"
        )
    for task_id in _ids(environment.tasks, choice):
        task = environment.tasks.get(task_id)
        try:
            yield task_id, harbor_folder(task, environment.verifier.portable(task, choice.seed))
        except VerifierError as error:
            yield task_id, str(error)


def _export_swebench(choice: Choice, out: Path) -> Exported:
    if choice.directory is None:
        raise ConfigError(
            f"the tasks of {choice.environment!r} have no repository and no pytest ids, which every SWE-bench row needs; "
            "give a directory of task folders, or take --format harbor"
        )
    tasks = _folders(choice.directory)
    rows = []
    if (out / INSTANCES).exists():
        raise TaskError(f"{out / INSTANCES} exists; remove it first, or give another place")
    for task_id in _ids(tasks, choice):
        folder = tasks.folder(task_id)
        name = folder.header.source.name
        repo = name if "/" in name else f"sanderling/{name}"
        place = out / REPOSITORIES / repo.replace("/", "__")
        commit = write_commit(place, folder.base, folder_name(task_id))
        rows.append(instance_row(folder, repo, commit))
    return Exported(out=out, count=write_lines(out / INSTANCES, rows))


def _folders(directory: Path) -> TaskFolders:
    if is_harbor_folder(directory) or any(is_harbor_folder(place) for place in directory.glob("*") if place.is_dir()):
        raise ConfigError(f"{directory} holds Harbor folders already; task folders of Sanderling's own are exported")
    return TaskFolders(directory)


def _ids(tasks: Any, choice: Choice) -> list[str]:
    splits = tasks.splits() if choice.split is None else [choice.split]
    return [task_id for split in splits for task_id in tasks.ids(split)][: choice.n]
