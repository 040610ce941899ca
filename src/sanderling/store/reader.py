"""From a run folder back to nouns. Needs numpy and pyarrow only, takes no lock and changes nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sanderling.errors import RunFolderError
from sanderling.store import schema
from sanderling.store.failures import failed
from sanderling.store.jsonl import number_of, read_lines
from sanderling.types import (
    Action,
    Disposition,
    Evidence,
    Finding,
    Graded,
    Gradient,
    Group,
    Member,
    Membership,
    Observation,
    StepReport,
    StopReason,
    Timing,
    Trajectory,
    Turn,
    Ungraded,
    Usage,
    Verdict,
)

STEP_FOLDER = re.compile(r"step=(\d+)")
EVALUATION_FOLDER = re.compile(r"eval=(.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollouts:
    """What one rollout folder holds."""

    source: str  # name of the folder, such as "step=000012" or "eval=before"
    step: int | None  # optimiser step as it was given to the store
    groups: tuple[Group, ...]
    advantages: Mapping[str, tuple[float | None, ...]]  # by trajectory id, one per turn; None: not trained
    task_prompts: Mapping[str, str] = field(default_factory=dict)  # by task id
    task_metadata: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by task id

    @property
    def split(self) -> Literal["train", "eval"]:
        return "eval" if self.source.startswith("eval=") else "train"

    def members(self) -> Iterator[Member]:
        """Yield every member of every group, excluded ones too."""
        for group in self.groups:
            yield from group.members


class RunReader:
    """A run folder, for reading; a run that is going on may be read at any time."""

    def __init__(self, path: Path) -> None:
        """Open a folder.

        Raises:
            RunFolderError: there is no run in it.
        """
        if not (path / "config.toml").is_file():
            raise RunFolderError(f"{path} is no run folder: it has no config.toml; give the folder of a run")
        self.path = path

    def config_text(self) -> str:
        return _read_text(self.path / "config.toml")

    def environment(self) -> dict[str, Any]:
        """Return what environment.json says about the machine and the versions; {} where a crash left none."""
        file = self.path / "environment.json"
        if not file.exists():
            return {}
        try:
            return json.loads(_read_text(file))
        except ValueError as error:
            raise RunFolderError(f"{file} is damaged: {error}; restore it or remove it") from error

    def reports(self) -> list[StepReport]:
        """Return the step reports in the order in which they were written; a torn last line is left out."""
        return [report_of(record, self.path / "metrics.jsonl") for record in read_lines(self.path / "metrics.jsonl")]

    def events(self) -> list[dict[str, Any]]:
        """Return the events: at (UTC, ISO 8601), kind, and the fields of that kind."""
        return read_lines(self.path / "events.jsonl")

    def steps(self) -> list[int]:
        """Return the steps whose rollouts are stored, ascending; there may be gaps."""
        return sorted(int(match[1]) for match in map(STEP_FOLDER.fullmatch, self._folders()) if match)

    def evaluations(self) -> list[str]:
        """Return the labels of the stored evaluations, oldest first."""
        found = [match[1] for match in map(EVALUATION_FOLDER.fullmatch, self._folders()) if match]
        return sorted(found, key=lambda label: (_modified(self.path / "rollouts" / f"eval={label}"), label))

    def rollouts(self, step: int) -> Rollouts:
        """Return the rollouts of a step.

        Raises:
            RunFolderError: there are none, or a file is damaged.
        """
        return read_rollouts(self.path / "rollouts" / f"step={step:06d}")

    def evaluation(self, label: str) -> Rollouts:
        """Return the rollouts of an evaluation.

        Raises:
            RunFolderError: there are none, or a file is damaged.
        """
        return read_rollouts(self.path / "rollouts" / f"eval={label}")

    def sources(self) -> list[str]:
        """Return the names of the rollout folders: "step=000001", ..., then "eval=before", ..."""
        return [f"step={step:06d}" for step in self.steps()] + [f"eval={label}" for label in self.evaluations()]

    def heads(self, source: str) -> list[dict[str, Any]]:
        """Return the rows of a folder's trajectories.parquet without their token ids: cheap, one dict per trajectory.

        Raises:
            RunFolderError: there is no such folder, or its file is damaged.
        """
        table = _read_table(self.path / "rollouts" / source / "trajectories.parquet", without=("prompt_ids",))
        return [row | {"source": source} for row in table.to_pylist()]

    def step_of(self, source: str) -> int | None:
        """Return the optimiser step that a folder belongs to, as it was given to the store; None: none was given."""
        file = self.path / "rollouts" / source / "trajectories.parquet"
        try:
            value = (pq.read_schema(file).metadata or {}).get(schema.STEP_KEY)
        except pa.ArrowInvalid as error:
            raise RunFolderError(f"{file} is damaged: {error}; the rollouts of this folder can't be read") from error
        except OSError as error:
            raise failed("read", file, error) from error
        return None if value is None else int(value)

    def read(self, source: str) -> Rollouts:
        """Return the rollouts of a folder by its name, as in `sources`."""
        return read_rollouts(self.path / "rollouts" / source)

    def _folders(self) -> list[str]:
        folder = self.path / "rollouts"
        return sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []


def report_of(record: Mapping[str, Any], path: Path) -> StepReport:
    """Return the StepReport of one line of metrics.jsonl.

    Raises:
        RunFolderError: the line lacks a field.
    """
    try:
        return StepReport(
            step=int(record["step"]),
            policy_version=int(record["policy_version"]),
            metrics={name: number_of(value) for name, value in record["metrics"].items()},
            timing={name: number_of(value) for name, value in record["timing"].items()},
            counts={name: int(value) for name, value in record["counts"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunFolderError(f"a line of {path} is no step report ({error!r}): {record}") from error


def read_rollouts(folder: Path) -> Rollouts:
    """Read one rollout folder back to the nouns that were written.

    Raises:
        RunFolderError: it isn't there, a file is damaged, or its schema is newer than this reader.
    """
    tables = {name: _read_table(folder / f"{name}.parquet") for name in schema.FILES}
    heads, metadata = tables["trajectories"].to_pylist(), tables["trajectories"].schema.metadata
    turns, advantages = _turns(tables["turns"])
    verdicts = [_verdict(row) for row in tables["verdicts"].to_pylist()]
    findings = _findings(tables["findings"])
    prompts = _arrays(tables["trajectories"].column("prompt_ids"))
    members, stored, start = [], {}, 0
    for index, head in enumerate(heads):
        end = start + head["turns"]
        trajectory = _trajectory(head, prompts[index], tuple(turns[start:end]))
        members.append(_member(head, trajectory, verdicts[index], findings))
        stored[trajectory.id] = tuple(advantages[start:end])
        start = end
    step = metadata.get(schema.STEP_KEY)
    return Rollouts(
        source=folder.name,
        step=None if step is None else int(step),
        groups=_groups(metadata, members),
        advantages=stored,
        task_prompts={row["task_id"]: row["task_prompt"] for row in heads if row["task_prompt"] is not None},
        task_metadata={row["task_id"]: dict(row["task_metadata"]) for row in heads if row["task_metadata"] is not None},
    )


def _read_text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except OSError as error:
        raise failed("read", file, error) from error


def _modified(folder: Path) -> int:
    return (folder / "trajectories.parquet").stat().st_mtime_ns if (folder / "trajectories.parquet").exists() else 0


def _read_table(file: Path, without: Sequence[str] = ()) -> pa.Table:
    try:
        parquet = pq.ParquetFile(file)
        table = parquet.read([name for name in parquet.schema_arrow.names if name not in without])
    except pa.ArrowInvalid as error:
        raise RunFolderError(f"{file} is damaged: {error}; the rollouts of this folder can't be read") from error
    except OSError as error:
        raise failed("read", file, error) from error
    version = int((table.schema.metadata or {}).get(schema.VERSION_KEY, b"0"))
    if not 1 <= version <= schema.SCHEMA_VERSION:
        raise RunFolderError(
            f"{file} has schema version {version}, this Sanderling reads versions 1 to {schema.SCHEMA_VERSION}; "
            "read it with the version that wrote it"
        )
    return table


def _groups(metadata: Mapping[bytes, bytes], members: list[Member]) -> tuple[Group, ...]:
    groups, start = [], 0
    for group_id, task_id, count in json.loads(metadata[schema.GROUPS_KEY]):
        groups.append(Group(id=group_id, task_id=task_id, members=tuple(members[start : start + count])))
        start += count
    return tuple(groups)


def _trajectory(head: Mapping[str, Any], prompt_ids: NDArray[np.int32], turns: tuple[Turn, ...]) -> Trajectory:
    return Trajectory(
        id=head["trajectory_id"],
        task_id=head["task_id"],
        group_id=head["group_id"],
        attempt=head["attempt"],
        prompt_ids=prompt_ids,
        turns=turns,
        stop=StopReason(head["stop"]),
        detail=head["detail"],
        isolation=head["isolation"],
        parent_id=head["parent_id"],
        forked_at=head["forked_at"],
        usage=Usage(**{name: head[name] for name in Usage.__dataclass_fields__}),
        timing=Timing(**{name: head[name] for name in Timing.__dataclass_fields__}),
    )


def _member(
    head: Mapping[str, Any], trajectory: Trajectory, verdict: Verdict, findings: Mapping[str, list[Finding]]
) -> Member:
    fate = Disposition(
        membership=Membership(head["membership"]),
        reward=head["disposition_reward"],
        gradient=Gradient(head["gradient"]),
        reason=head["disposition_reason"],
    )
    own = tuple(findings.get(trajectory.id, ()))
    return Member(trajectory=trajectory, verdict=verdict, disposition=fate, findings=own)


def _turns(table: pa.Table) -> tuple[list[Turn], list[float | None]]:
    """Return the turns and their advantages in the order of the file."""
    long = ("action_token_ids", "rollout_logprobs", "policy_versions", "observation_token_ids")
    ids, logprobs, versions, seen = (_arrays(table.column(name)) for name in long)
    rows = table.drop_columns([*long, *schema.DENORMALISED]).to_pylist()
    turns = []
    for index, row in enumerate(rows):
        action = Action(
            token_ids=ids[index],
            rollout_logprobs=logprobs[index],
            policy_versions=versions[index],
            text=row["action_text"],
            finish_reason=row["finish_reason"],
        )
        observation = Observation(
            token_ids=seen[index],
            text=row["observation_text"],
            source=row["observation_source"],
            exit_code=row["exit_code"],
            duration_s=row["duration_s"],
            omitted_bytes=row["omitted_bytes"],
        )
        turns.append(
            Turn(
                action=action,
                observation=observation,
                reward=row["reward"],
                state_key=row["state_key"],
                score=row.get("score"),  # files written before scores were kept have no such column
            )
        )
    return turns, [row["advantage"] for row in rows]


def _verdict(row: Mapping[str, Any]) -> Verdict:
    if row["verdict"] == "ungraded":
        return Ungraded(cause=row["cause"], phase=row["phase"])
    evidence = None
    if row["required"] is not None:
        evidence = Evidence(
            required=row["required"],
            executed=row["executed"],
            passed=row["passed"],
            canary_failed=row["canary_failed"],
            processes_gone=row["processes_gone"],
            channel=row["channel"],
            isolation=row["grading_isolation"],
            notes=tuple(row["notes"]),
        )
    return Graded(reward=row["reward"], evidence=evidence, components=dict(row["components"]))


def _findings(table: pa.Table) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for row in table.to_pylist():
        finding = Finding(
            trajectory_id=row["about"],
            screen=row["screen"],
            severity=row["severity"],
            turn=row["turn"],
            quote=row["quote"],
            explanation=row["explanation"],
        )
        found.setdefault(row["trajectory_id"], []).append(finding)
    return found


def _arrays(column: pa.ChunkedArray) -> list[NDArray[Any]]:
    """Return one numpy array per row, without a Python object per number."""
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], type=column.type)
    offsets = whole.offsets.to_numpy()
    values = whole.values.to_numpy()
    return [values[a:b].copy() for a, b in pairwise(offsets.tolist())]
