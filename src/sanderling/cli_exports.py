"""The verbs that write and read other systems' formats: `export`, `tasks export`, `tasks import`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from sanderling.config import parse_value

if TYPE_CHECKING:
    from sanderling.jobs.exports import Exported

Settings = Annotated[dict[str, str], Parameter(name="--environment_settings")]


def add_export_commands(app: App, tasks_app: App) -> None:
    """Add the verbs of this module."""
    app.command(export_trajectories, name="export")
    tasks_app.command(export_tasks, name="export")
    tasks_app.command(import_tasks, name="import")


def parsed_settings(given: dict[str, str] | None) -> dict[str, Any]:
    """Return settings of an environment with values as in TOML, as --environment_settings of `train` has them."""
    return {key: parse_value(value) for key, value in (given or {}).items()}


def export_tasks(  # noqa: PLR0913 - the flags are a contract
    directory: Path | None = None,
    *,
    format_: Annotated[Literal["harbor", "swebench"], Parameter(name="--format")],
    env: str | None = None,
    split: str | None = None,
    n: int | None = None,
    seed: int = 0,
    out: Path | None = None,
    environment_settings: Settings | None = None,
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Write tasks for other systems: Harbor folders, or SWE-bench rows with the repositories that they name.

    Parameters
    ----------
    directory:
        Task folders, as `sanderling tasks make` writes them; or none, with --env.
    format_:
        harbor or swebench.
    env:
        Environment whose tasks are exported, such as fix_python.
    split:
        Only this split.
    n:
        Only the first so many tasks.
    seed:
        Of the hidden inputs, which exporting fixes.
    out:
        Folder to write to; default: the directory's (or the environment's) name with -harbor or -swebench.
    environment_settings:
        Arguments of the environment, such as --environment_settings.path=FILE.
    json_:
        Print one JSON object.
    """
    from sanderling.jobs.exports import Choice, TaskFormat
    from sanderling.jobs.exports import export_tasks as export

    choice = Choice(
        directory=directory,
        environment=env,
        settings=parsed_settings(environment_settings),
        split=split,
        n=n,
        seed=seed,
    )
    name = directory.resolve().name if directory else str(env).rpartition(":")[2]
    beside = directory.resolve().parent if directory else Path()
    _report_export(export(choice, TaskFormat(format_), out or beside / f"{name}-{format_}"), "tasks", json_)


def import_tasks(
    file: Path,
    *,
    repos: Path,
    out: Path,
    split: str = "test",
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Turn SWE-bench rows (JSON Lines) into task folders, from local clones of their repositories; their tests are run.

    Parameters
    ----------
    file:
        The rows.
    repos:
        Folder with the clones, each as owner__name, owner/name or name.
    out:
        Folder to write to.
    split:
        Split of the tasks.
    json_:
        Print one JSON object.
    """
    from sanderling.jobs.exports import import_swebench

    _report_export(asyncio.run(import_swebench(file, repos, out, split)), "tasks", json_)


def export_trajectories(
    run: Path,
    *,
    format_: Annotated[Literal["atif"], Parameter(name="--format")] = "atif",
    source: list[str] | None = None,
    out: Path | None = None,
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Write the trajectories of a run for other systems, with token ids and log-probabilities: one file each.

    Parameters
    ----------
    run:
        The run folder.
    format_:
        atif: ATIF 1.8.
    source:
        Only these rollouts, such as step=000012 or eval=after; may be given several times.
    out:
        Folder to write to; default: <run>/export/atif.
    json_:
        Print one JSON object.
    """
    from sanderling.jobs.exports import export_run

    _report_export(export_run(run, out or run / "export" / format_, source), "trajectories", json_)


def _report_export(done: Exported, noun: str, as_json: bool) -> None:
    """Say what was written and what was not; exit code 1 where nothing was."""
    if as_json:
        print(json.dumps(done.as_json()))
    else:
        print(f"{done.count} {noun} written to {done.out}")
        for name, reason in done.refused.items():
            print(f"refused {name}: {reason}", file=sys.stderr)
    if done.count == 0:
        sys.exit(1)
