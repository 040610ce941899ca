"""From Harbor folders to tasks: what a sandbox can stand in for, and a named reason for what it can't."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sanderling.errors import TaskError
from sanderling.tasks.formats.dockerfile import NotPortable, Recipe, portable_recipe
from sanderling.tasks.formats.harbor import (
    TEST_SCRIPT,
    HarborFolder,
    find_harbor_folders,
    read_harbor,
    relative_to,
)
from sanderling.tasks.formats.harbor_config import HarborConfig
from sanderling.types import Limits, Task

PACKAGES = "/tools/packages"  # where a sandbox is given what the image would have installed
LIMITS = Limits(command_s=60.0, command_cpu_s=60.0, disk_mb=256, memory_mb=1024, processes=128)
_TEMPLATE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
_NETWORK = re.compile(r"(?<![\w./-])(apt-get|apt|apk|pip3?|uv|uvx|npm|npx|curl|wget|conda|git\s+clone)\s+[-\w]")
_SERVICES = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml", "singularity-compose.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class HarborTask:
    """A portable folder: the task for the agent, and what its grading needs."""

    task: Task
    folder: HarborFolder
    packages: tuple[
        str, ...
    ] = ()  # that sandbox and tests need besides the standard library; see `dockerfile.PROVIDED`
    verifier_env: Mapping[str, str] = field(default_factory=dict)
    solution_env: Mapping[str, str] = field(default_factory=dict)


def portable_task(folder: HarborFolder, task_id: str) -> HarborTask:
    """Return the task of a folder for a sandbox without a container image.

    Raises:
        NotPortable: it needs a real container (or more than that); the message is the reason.
        TaskError: its own note of limits or paths is damaged.
    """
    config = folder.config
    _check_config(config)
    _check_files(folder)
    recipe = _recipe(folder)
    env = {**recipe.env, **_resolved(config.environment.env, "environment.env")}
    if recipe.packages:
        env["PYTHONPATH"] = PACKAGES
    task = Task(
        id=task_id,
        prompt=folder.instruction,
        base=recipe.files,
        setup=recipe.setup,
        editable=_editable(folder, recipe.workdir),
        env=env,
        workdir=recipe.workdir,
        limits=_limits(folder),
        metadata={**_labels(config), "format": "harbor", "folder": folder.name, "split": task_id.split("/")[1]},
    )
    return HarborTask(
        task=task,
        folder=folder,
        packages=recipe.packages,
        verifier_env=_resolved(config.verifier.env, "verifier.env"),
        solution_env=_resolved(config.solution.env, "solution.env"),
    )


class HarborTasks:
    """Implements `tasks.protocol.TaskSet` over the portable Harbor folders below a directory.

    Args:
        root: one folder, or a directory of them.
        split: split of the folders that don't name one; ours do.

    `refused` tells, by the folder's name, why a task isn't among them.

    Raises:
        TaskError: a folder is malformed, two have one id, or not one is portable.
    """

    def __init__(self, root: Path, split: str = "test") -> None:
        self.root = Path(root)
        self.refused: dict[str, str] = {}
        self._tasks: dict[str, HarborTask] = {}
        for place in find_harbor_folders(self.root):
            folder = read_harbor(place)
            task_id = str(folder.ours.get("id") or f"{self.root.resolve().name}/{split}/{folder.name}")
            if task_id in self._tasks:
                raise TaskError(f"{place}: a second task with the id {task_id!r}; ids must be unique")
            try:
                self._tasks[task_id] = portable_task(folder, task_id)
            except NotPortable as error:
                self.refused[folder.name] = str(error)
        if not self._tasks:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in list(self.refused.items())[:3])
            raise TaskError(f"no task below {self.root} runs in a sandbox without a container image: {reasons}")

    def splits(self) -> tuple[str, ...]:
        """Return the splits in the order of the folders."""
        return tuple(dict.fromkeys(task_id.split("/")[1] for task_id in self._tasks))

    def ids(self, split: str) -> Sequence[str]:
        """Return the ids of a split in the order of the folders' names; see `TaskSet.ids`."""
        if split not in self.splits():
            raise TaskError(f"{self.root} has no split {split!r}; it has {', '.join(self.splits())}")
        return tuple(task_id for task_id in self._tasks if task_id.split("/")[1] == split)

    def get(self, task_id: str) -> Task:
        """Return a task; see `TaskSet.get`."""
        return self.harbor(task_id).task

    def harbor(self, task_id: str) -> HarborTask:
        """Return a task with its tests and solution: for the verifier, never for the agent.

        Raises:
            TaskError: no such task.
        """
        if task_id not in self._tasks:
            close = difflib.get_close_matches(task_id, self._tasks, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise TaskError(f"no task {task_id!r} among {len(self._tasks)} below {self.root}{hint}")
        return self._tasks[task_id]


def _check_config(config: HarborConfig) -> None:
    """Refuse what task.toml asks for and a sandbox hasn't."""
    world, judge = config.environment, config.verifier
    phases = (("environment", world), ("agent", config.agent), ("verifier", judge))
    reasons = [
        (config.steps, "it has several steps"),
        (world.os != "linux", f"it needs {world.os}"),
        (world.gpus or world.tpu, "it needs an accelerator"),
        (world.mcp_servers, "it starts MCP servers"),
        (world.healthcheck, "it waits for a service (healthcheck)"),
        (world.skills_dir, "it brings skills for the agent"),
        (judge.environment, "its verifier has an environment of its own"),
        (judge.collect, "[[verifier.collect]] runs commands in the agent's container after the agent"),
        (config.agent.user not in (None, "agent", 1000), f"its agent is the user {config.agent.user!r}"),
        (judge.user not in (None, "agent", 1000), f"its tests run as the user {judge.user!r}"),
        *((p.network_mode == "public", f"{name}.network_mode is 'public'") for name, p in phases),
        *((p.network_mode == "allowlist", f"{name}.network_mode is 'allowlist'") for name, p in phases),
    ]
    for applies, reason in reasons:
        if applies:
            raise NotPortable(reason)


def _check_files(folder: HarborFolder) -> None:
    for name in _SERVICES:
        if name in folder.environment:
            raise NotPortable(f"environment/{name} starts services")
    if TEST_SCRIPT not in folder.tests:
        raise NotPortable("its tests are for Windows")
    for part, files in (("tests", folder.tests), ("solution", folder.solution)):
        for name, content in files.items():
            lines = content.decode("utf-8", "replace").splitlines() if name.endswith(".sh") else ()
            for line in lines:
                if (found := _NETWORK.search(line)) and not line.lstrip().startswith("#"):
                    raise NotPortable(f"{part}/{name} needs the network: {found[1]!r} in {line.strip()[:60]!r}")


def _recipe(folder: HarborFolder) -> Recipe:
    world = folder.config.environment
    context = {path: content for path, content in folder.environment.items() if path != "Dockerfile"}
    text = folder.environment.get("Dockerfile")
    if text is None:
        if world.docker_image is None:
            raise NotPortable("it has neither environment/Dockerfile nor environment.docker_image")
        text = f"FROM {world.docker_image}\n".encode()
    recipe = portable_recipe(text.decode("utf-8", "replace"), context, world.workdir)
    scripts = [
        path
        for path in recipe.files
        if any(
            name.startswith("environment/") and name.endswith(f"/{path.rpartition('/')[2]}")
            for name in folder.executable
        )
    ]
    marks = (("chmod", "+x", "--", *sorted(scripts)),) if scripts else ()
    return dataclasses.replace(recipe, setup=(*marks, *recipe.setup))


def _editable(folder: HarborFolder, workdir: str) -> tuple[str, ...]:
    """Return the paths that reach the tests: the artifacts where the verifier is apart, all of the WORKDIR where it isn't."""
    noted = folder.ours.get("editable")
    if noted is not None:
        if not isinstance(noted, list) or not all(isinstance(item, str) for item in noted):
            raise TaskError(f"{folder.name}: metadata.sanderling.editable is {noted!r}; expected a list of patterns")
        return tuple(noted)
    if folder.config.verifier.mode == "shared":
        return ("*",)
    patterns: list[str] = []
    for artifact in folder.config.artifact_list():
        if artifact.service not in (None, "main") or artifact.exclude:
            raise NotPortable(f"artifact {artifact.source!r} names a service or an exclusion")
        inner = relative_to(workdir, artifact.source)
        if inner is None:
            raise NotPortable(f"artifact {artifact.source!r} lies outside of the WORKDIR {workdir}")
        patterns += [inner, f"{inner}/*"] if inner else ["*"]
    if not patterns:
        raise NotPortable("its verifier is apart and no artifact lies in the WORKDIR: no work would reach the tests")
    return tuple(patterns)


def _limits(folder: HarborFolder) -> Limits:
    config = folder.config
    noted = folder.ours.get("limits")
    if isinstance(noted, Mapping):
        try:
            return Limits(**noted)
        except TypeError as error:
            raise TaskError(f"{folder.name}: metadata.sanderling.limits: {error}") from error
    given = {
        "episode_s": config.agent.timeout_sec,
        "grading_s": config.verifier.timeout_sec,
        "memory_mb": config.environment.memory_mb,
        "disk_mb": config.environment.storage_mb,
    }
    return dataclasses.replace(LIMITS, **{key: value for key, value in given.items() if value is not None})


def _labels(config: HarborConfig) -> dict[str, str]:
    return {key: str(value) for key, value in config.metadata.items() if isinstance(value, str | int | float)}


def _resolved(env: Mapping[str, str], where: str) -> dict[str, str]:
    """Return variables with `${VAR:-default}` replaced by the default: nothing of the host's environment enters a sandbox."""

    def default(match: re.Match[str]) -> str:
        if match[2] is None:
            raise NotPortable(f"{where} takes ${{{match[1]}}} from the host, which a sandbox is never given")
        return match[2]

    return {key: _TEMPLATE.sub(default, value) for key, value in env.items()}
