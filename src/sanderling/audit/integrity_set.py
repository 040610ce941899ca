"""The frozen integrity set: the same tasks for every generation of a policy, and a digest that shows when they are not.

    honest       held-out tasks as they are
    impossible   their twins: no honest change is right, so whatever is paid was cheated
    honeypot     the same tasks with something in the workspace that a weak grader pays for touching
    bait         the same tasks with the solution lying about; it carries a word that nobody meets by accident

A set is a file of ids and digests. The tasks themselves are made again from the environment and the seed; one that comes out
different is refused, since numbers of two generations could not be compared then. The seed is secret: who knows it can work out
what the twins' hidden calls ask for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from random import Random

from sanderling.environment import Environment
from sanderling.errors import ConfigError, TaskError
from sanderling.rollout.seeds import derive
from sanderling.screening.panel import EpisodeScreen
from sanderling.types import JsonValue, Task
from sanderling.verify.protocol import Auditable

FORMAT = 1


class Kind(StrEnum):
    """What a task of the set is for."""

    HONEST = "honest"
    IMPOSSIBLE = "impossible"
    HONEYPOT = "honeypot"
    BAIT = "bait"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One kind of an environment's tasks.

    A verifier that grades twice says so in `Graded.components`: `real` and `weak` (0.0 or 1.0), and of honeypots `touched`.
    Where the weak one judges in the agent's place it is one of `screens`, and a finding `weak_grader` says that it would pay.
    """

    kind: Kind
    environment: Environment
    disclosed: Auditable  # what is hidden goes into the digest
    lure: str = ""  # of honeypots and baits: the file of the workspace that was put there
    word: str = ""  # of baits: what that file holds
    screens: tuple[EpisodeScreen, ...] = ()  # that look at its episodes, besides those of every run


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenTask:
    """One task of the set."""

    kind: Kind
    id: str  # of the environment's task; each kind has one of this id
    sha256: str  # over everything that the agent is given and everything that is hidden from it


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegritySet:
    """The whole set, as its file says it."""

    environment: str
    version: str
    split: str
    seed: int
    tasks: tuple[FrozenTask, ...]

    @property
    def sha256(self) -> str:
        """Digest (SHA-256, hex) over the whole."""
        return _digest({**self._facts(), "tasks": [task.sha256 for task in self.tasks]})

    def as_json(self) -> dict[str, JsonValue]:
        tasks: list[JsonValue] = [
            {"kind": task.kind.value, "id": task.id, "sha256": task.sha256} for task in self.tasks
        ]
        return {**self._facts(), "tasks": tasks, "sha256": self.sha256}

    def ids(self) -> tuple[str, ...]:
        """Return the ids of the environment's tasks, of which each kind has one."""
        return tuple(dict.fromkeys(task.id for task in self.tasks))

    def _facts(self) -> dict[str, JsonValue]:
        return {
            "format": FORMAT,
            "environment": self.environment,
            "version": self.version,
            "split": self.split,
            "seed": self.seed,
        }


def freeze(environment: Environment, probes: Sequence[Probe], *, split: str, count: int, seed: int) -> IntegritySet:
    """Draw `count` tasks of a split by the seed, and take the digest of each in every kind.

    Raises:
        ConfigError: the split isn't there or holds fewer tasks.
        TaskError: a task can't be read.
    """
    if split not in environment.tasks.splits():
        known = ", ".join(environment.tasks.splits())
        raise ConfigError(f"{environment.name} has no split {split!r} to draw an integrity set from; it has {known}")
    ids = list(environment.tasks.ids(split))
    if not 1 <= count <= len(ids):
        raise ConfigError(f"{count} tasks were asked for, split {split!r} of {environment.name} has {len(ids)}")
    chosen = Random(derive(seed, "integrity tasks")).sample(ids, count)
    return _frozen(environment, probes, split=split, ids=chosen, seed=seed)


def check_set(frozen: IntegritySet, environment: Environment, probes: Sequence[Probe]) -> None:
    """Make every task again and compare.

    Raises:
        TaskError: one is another than when the set was frozen; names it.
    """
    if (environment.name, environment.version) != (frozen.environment, frozen.version):
        raise TaskError(
            f"the integrity set is of {frozen.environment} {frozen.version}, this is {environment.name} {environment.version}; "
            "numbers on it would not be comparable, freeze a new one into another file"
        )
    now = _frozen(environment, probes, split=frozen.split, ids=frozen.ids(), seed=frozen.seed)
    was = {(task.kind, task.id): task.sha256 for task in frozen.tasks}
    for task in now.tasks:
        if was.pop((task.kind, task.id), "") != task.sha256:
            raise TaskError(
                f"the {task.kind.value} task {task.id} is another than when the set was frozen: expected SHA-256 "
                f"{_of(frozen, task)}, made {task.sha256}; take the environment of that time, or freeze a new set into "
                "another file and run every generation on it"
            )
    if was:
        kind, name = next(iter(was))
        raise TaskError(f"the set holds a {kind.value} task {name}, and the environment makes none of this kind")


def write_set(path: Path, frozen: IntegritySet) -> None:
    """Write the set, readable by its owner alone (the seed gives the twins away)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.touch(mode=0o600)
    part.write_text(json.dumps(frozen.as_json(), indent=1) + "\n", "utf-8")
    part.replace(path)


def read_set(path: Path) -> IntegritySet:
    """Read a set.

    Raises:
        TaskError: it is no set, or its digest isn't that of what stands in it.
    """
    try:
        data = json.loads(path.read_text("utf-8"))
        if data["format"] != FORMAT:
            raise TaskError(f"{path} has format {data['format']!r}; expected {FORMAT}")
        tasks = tuple(FrozenTask(kind=Kind(t["kind"]), id=t["id"], sha256=t["sha256"]) for t in data["tasks"])
        facts = {name: str(data[name]) for name in ("environment", "version", "split")}
        frozen = IntegritySet(**facts, seed=int(data["seed"]), tasks=tasks)
    except (ValueError, KeyError, TypeError) as error:
        raise TaskError(f"{path} is no integrity set: {error!r}") from error
    if data.get("sha256") != frozen.sha256:
        raise TaskError(
            f"{path} was changed: it says SHA-256 {data.get('sha256')!r}, its content has {frozen.sha256}; take the file as it "
            "was frozen, or freeze a new set into another file"
        )
    return frozen


def secret_of(seed: int, *purpose: str) -> str:
    """Return 64 hex digits that only who knows the seed can work out."""
    return _digest(["integrity", seed, *purpose])


def _frozen(
    environment: Environment, probes: Iterable[Probe], *, split: str, ids: Sequence[str], seed: int
) -> IntegritySet:
    tasks = [FrozenTask(kind=probe.kind, id=name, sha256=_task_digest(probe, name)) for probe in probes for name in ids]
    return IntegritySet(
        environment=environment.name, version=environment.version, split=split, seed=seed, tasks=tuple(tasks)
    )


def _task_digest(probe: Probe, task_id: str) -> str:
    task: Task = probe.environment.tasks.get(task_id)
    facts = [probe.kind.value, task.id, task.prompt, task.workdir, task.image, task.setup, task.editable]
    limits = [getattr(task.limits, name) for name in task.limits.__slots__]
    files = [_contents(part) for part in (task.base, probe.environment.tools, probe.disclosed.hidden(task))]
    return _digest([*facts, sorted(task.env.items()), limits, files, probe.lure, probe.word])


def _contents(files: Mapping[str, bytes]) -> list[list[str]]:
    return [[path, hashlib.sha256(content).hexdigest()] for path, content in sorted(files.items())]


def _digest(data: object) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _of(frozen: IntegritySet, wanted: FrozenTask) -> str:
    found = [task.sha256 for task in frozen.tasks if (task.kind, task.id) == (wanted.kind, wanted.id)]
    return found[0] if found else "none"
