"""The verbs that look at tasks, make and check them: `tasks list`, `tasks show`, `tasks make`, `tasks check`."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from sanderling.cli_exports import Settings, parsed_settings
from sanderling.cli_running import run_job
from sanderling.errors import ConfigError

if TYPE_CHECKING:
    from sanderling.synthesis.statement import StatementModel

tasks_app = App(name="tasks", help="Look at tasks, and make them from a code base.")


@tasks_app.command(name="list")
def list_tasks(
    *, env: str = "fix_python", split: str | None = None, environment_settings: Settings | None = None
) -> None:
    """Print the ids of the tasks, one a line.

    Parameters
    ----------
    env:
        Environment: an entry point, module:name or path.py:name.
    split:
        Only this split.
    environment_settings:
        Arguments of the environment, such as --environment_settings.path=FILE.
    """
    from sanderling.assemble import load_environment

    tasks = load_environment(env, settings=parsed_settings(environment_settings)).tasks
    for name in [split] if split else tasks.splits():
        for task_id in tasks.ids(name):
            print(task_id)


@tasks_app.command(name="show")
def show_task(task: str, *, env: str = "fix_python", environment_settings: Settings | None = None) -> None:
    """Print one task: what the agent reads, the files, and the limits. Hidden material is not a part of it.

    Parameters
    ----------
    task:
        Id of the task.
    env:
        Environment: an entry point, module:name or path.py:name.
    environment_settings:
        Arguments of the environment, such as --environment_settings.path=FILE.
    """
    from sanderling.assemble import load_environment

    environment = load_environment(env, settings=parsed_settings(environment_settings))
    found = environment.tasks.get(task)
    print(f"{found.id}\n{json.dumps(dict(found.metadata))}\n\n{environment.harness.prompt(found)}")
    for path, content in found.base.items():
        print(f"--- {path}\n{content.decode('utf-8', 'replace').rstrip()}")
    print(f"--- editable: {', '.join(found.editable) or 'nothing'}\n--- {found.limits}")


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """Who writes the statements of made tasks.

    Parameters
    ----------
    statement_url:
        OpenAI-compatible endpoint that writes the statements, such as http://localhost:8000/v1; default: a template does.
        Its key is read from SANDERLING_STATEMENT_KEY.
    statement_model:
        Name of the model there.
    """

    statement_url: str | None = None
    statement_model: str | None = None

    def writer(self) -> StatementModel | None:
        """Return the model that writes them; None: a template does. Its key is a secret, so it is no flag."""
        from sanderling.synthesis.statement import StatementModel

        if self.statement_url is None and self.statement_model is None:
            return None
        if self.statement_url is None or self.statement_model is None:
            raise ConfigError("--statement-url and --statement-model belong together; give both or none")
        key = os.environ.get("SANDERLING_STATEMENT_KEY", "")
        return StatementModel(url=self.statement_url, model=self.statement_model, key=key)


@tasks_app.command(name="make")
def make_tasks(  # noqa: PLR0913 - the flags are a contract
    path: Path,
    *,
    out: Path,
    n: int,
    seed: int = 0,
    workers: int | None = None,
    runs: int = 3,
    hide: float = 0.5,
    per_function: int = 4,
    statements: Statements = Statements(),
    backend: str = "bubblewrap",
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Make bug-fixing tasks from a Python code base with a pytest suite. The same command continues what was interrupted.

    Exit code 1 when fewer tasks than asked for came out.

    Parameters
    ----------
    path:
        A folder, the top of a git checkout, or an sdist (.tar.gz).
    out:
        Directory for the task folders, the journal and the census of the suite.
    n:
        Number of tasks.
    seed:
        Of the order of bugs, of the order of tests, and of hashes.
    workers:
        Bugs that are tried at once; default: the number of cores.
    runs:
        Runs of the suite before any bug is planted: tests that don't end alike in all of them are set aside.
    hide:
        Share of the failing test functions of a file that the agent doesn't get to see, rounded up.
    per_function:
        Tasks of one function, at most.
    backend:
        Sandbox backend: bubblewrap, local, an entry point or module:name.
    json_:
        Progress goes to standard error; the last line of standard output is one JSON object.
    """
    from sanderling import jobs
    from sanderling.synthesis.making import MakeSettings

    settings = MakeSettings(
        n=n,
        seed=seed,
        workers=workers or os.cpu_count() or 1,
        runs=runs,
        hide_share=hide,
        per_function=per_function,
        model=statements.writer(),
    )
    made = run_job(jobs.make_tasks_from(path, out, settings, backend, sys.stderr if json_ else sys.stdout))
    print(json.dumps(made.as_json()) if json_ else "\n".join(made.lines()))
    if made.result.progress.admitted < n:
        sys.exit(1)


@tasks_app.command(name="check")
def check_tasks(
    folder: Path,
    *,
    backend: str = "bubblewrap",
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Check task folders: the right solution is paid, base/ isn't, and every named test does what it is named for.

    Shows for each task which share of its hidden tests is decided outside the process that runs a submission. Exit code 1
    when a task has a problem.

    Parameters
    ----------
    folder:
        One task folder, or a directory of them.
    backend:
        Sandbox backend in which they are graded.
    json_:
        Print one JSON object.
    """
    from sanderling import jobs
    from sanderling.verify.suites.check import FolderCheck

    def show(check: FolderCheck) -> None:
        print(check.line(), file=sys.stderr if json_ else sys.stdout, flush=True)

    checks = run_job(jobs.check_tasks(folder, backend, show))
    good = sum(check.ok for check in checks)
    shares = [check.lifted for check in checks if check.ok]
    mean = sum(shares) / len(shares) if shares else None
    if json_:
        tasks = [check.as_json() for check in checks]
        print(
            json.dumps(
                {"ok": good == len(checks), "checked": len(checks), "good": good, "lifted": mean, "tasks": tasks}
            )
        )
    else:
        print(f"{good} of {len(checks)} tasks are good" + (f"; mean lifted share {mean:.0%}" if shares else ""))
    if good < len(checks):
        sys.exit(1)
