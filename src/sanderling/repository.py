"""Environments from task folders of repositories."""

from __future__ import annotations

from pathlib import Path

from sanderling.environment import Environment
from sanderling.harness.protocol import Harness
from sanderling.tasks.folders import TaskFolders
from sanderling.verify.suites.programs import agent_tools
from sanderling.verify.suites.verifier import SuiteVerifier


def repository_environment(folder: Path | str, harness: Harness) -> Environment:
    """Return the environment of all task folders in a directory, judged by their hidden suites.

    The agent runs tests with `python3 /tools/run_tests.py`, pytest without plugins (see `agent_tools`).

    Args:
        folder: directory of task folders; its name is the environment's.
        harness: how the policy acts on a repository.

    Raises:
        TaskError: no task there, or a malformed one. ConfigError: pytest isn't installed.

    Example, in a file that a configuration names as "my_tasks.py:environment"::

        def environment():
            return repository_environment("tasks/toolz", harness=MyHarness())
    """
    tasks = TaskFolders(Path(folder))
    return Environment(
        name=Path(folder).resolve().name,
        version="1",
        tasks=tasks,
        harness=harness,
        verifier=SuiteVerifier(tasks),
        tools=dict(agent_tools()),
        task_kind="family",
    )
