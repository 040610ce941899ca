"""From nouns to columns: what `write_rollouts` puts into the four Parquet files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from sanderling.store import schema
from sanderling.types import Action, Evidence, Graded, Group, Member, Observation, Task, Turn, Ungraded

Columns = dict[str, Any]


def tables(
    groups: Sequence[Group],
    *,
    step: int | None = None,
    tasks: Mapping[str, Task] | None = None,
    advantages: Mapping[str, ArrayLike] | None = None,
) -> dict[str, pa.Table]:
    """Return one table per file name of `schema.FILES`.

    Args:
        groups: every group with every member, excluded ones too.
        step: optimiser step that the groups belong to; kept in the file metadata.
        tasks: by task id; adds the task's text and labels to the trajectories.
        advantages: by trajectory id, (turns,) or (action tokens,); stored is the mean of each turn. Trajectories that are
            missing here get null.

    Raises:
        ValueError: the advantages of a trajectory are neither one per turn nor one per action token.
    """
    members = [member for group in groups for member in group.members]
    heads = _trajectory_table(members, tasks or {})
    built = {
        "trajectories": heads,
        "turns": _turn_table(members, heads, advantages or {}),
        "verdicts": _build(schema.VERDICTS, [_verdict_row(member) for member in members]),
        "findings": _build(schema.FINDINGS, [row for member in members for row in _finding_rows(member)]),
    }
    listing = json.dumps([[group.id, group.task_id, len(group.members)] for group in groups])
    extra = {schema.GROUPS_KEY: listing.encode()} | ({} if step is None else {schema.STEP_KEY: str(step).encode()})
    return {name: table.replace_schema_metadata(table.schema.metadata | extra) for name, table in built.items()}


def clean_text(text: str) -> str:
    """Return `text` as it can be stored: half surrogates, which UTF-8 can't hold, become `\\udcXX` escapes.

    They come from file names that aren't UTF-8, so an agent can make them; storing must not fail for that.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text


def _trajectory_table(members: Sequence[Member], tasks: Mapping[str, Task]) -> pa.Table:
    return _build(schema.TRAJECTORIES, [_trajectory_row(member, tasks) for member in members])


def _trajectory_row(member: Member, tasks: Mapping[str, Task]) -> Columns:
    item, fate = member.trajectory, member.disposition
    task = tasks.get(item.task_id)
    return {
        "trajectory_id": item.id,
        "group_id": item.group_id,
        "task_id": item.task_id,
        "attempt": item.attempt,
        "stop": item.stop.value,
        "isolation": item.isolation,
        "membership": fate.membership.value,
        "gradient": fate.gradient.value,
        "disposition_reason": fate.reason,
        "disposition_reward": fate.reward,
        "turns": len(item.turns),
        "prompt_ids": item.prompt_ids,
        "detail": item.detail,
        "parent_id": item.parent_id,
        "forked_at": item.forked_at,
        "sampled_tokens": item.usage.sampled_tokens,
        "observation_tokens": item.usage.observation_tokens,
        "commands": item.usage.commands,
        "bad_calls": item.usage.bad_calls,
        "sandbox_s": item.timing.sandbox_s,
        "sample_s": item.timing.sample_s,
        "tools_s": item.timing.tools_s,
        "grade_s": item.timing.grade_s,
        "total_s": item.timing.total_s,
        "task_prompt": task.prompt if task else None,
        "task_metadata": list(task.metadata.items()) if task else None,
    }


def _turn_table(members: Sequence[Member], heads: pa.Table, advantages: Mapping[str, ArrayLike]) -> pa.Table:
    turns = [turn for member in members for turn in member.trajectory.turns]
    actions, seen = [turn.action for turn in turns], [turn.observation for turn in turns]
    owner = np.repeat(np.arange(len(members)), [len(member.trajectory.turns) for member in members])
    number = [index for member in members for index in range(len(member.trajectory.turns))]
    repeated = heads.select(list(schema.DENORMALISED)).take(pa.array(owner, type=pa.int64()))
    columns: Columns = {name: repeated.column(name) for name in schema.DENORMALISED}
    columns |= {"turn": number, "advantage": _turn_advantages(members, advantages)}
    columns |= _action_columns(actions) | _observation_columns(seen) | _own_columns(turns)
    return _table(schema.TURNS, columns)


def _action_columns(actions: Sequence[Action]) -> Columns:
    return {
        "action_token_ids": [action.token_ids for action in actions],
        "rollout_logprobs": [action.rollout_logprobs for action in actions],
        "policy_versions": [action.policy_versions for action in actions],
        "action_text": [action.text for action in actions],
        "finish_reason": [action.finish_reason for action in actions],
    }


def _observation_columns(observations: Sequence[Observation]) -> Columns:
    return {
        "observation_token_ids": [seen.token_ids for seen in observations],
        "observation_text": [seen.text for seen in observations],
        "observation_source": [seen.source for seen in observations],
        "exit_code": [seen.exit_code for seen in observations],
        "duration_s": [seen.duration_s for seen in observations],
        "omitted_bytes": [seen.omitted_bytes for seen in observations],
    }


def _own_columns(turns: Sequence[Turn]) -> Columns:
    return {
        "reward": [turn.reward for turn in turns],
        "state_key": [turn.state_key for turn in turns],
        "score": [turn.score for turn in turns],
    }


def _turn_advantages(members: Sequence[Member], advantages: Mapping[str, ArrayLike]) -> list[float | None]:
    values: list[float | None] = []
    for member in members:
        count, given = len(member.trajectory.turns), advantages.get(member.trajectory.id)
        if given is None:
            values += [None] * count
            continue
        row, tokens = np.asarray(given, dtype=np.float64), member.trajectory.num_action_tokens
        if row.shape == (tokens,) and tokens != count:
            lengths = [len(turn.action.token_ids) for turn in member.trajectory.turns]
            values += [float(part.mean()) if len(part) else 0.0 for part in np.split(row, np.cumsum(lengths)[:-1])]
            continue
        if row.shape != (count,):
            raise ValueError(
                f"advantages of trajectory {member.trajectory.id} have shape {row.shape}, expected ({count},): one per turn, "
                f"or ({tokens},): one per action token"
            )
        values += row.tolist()
    return values


def _verdict_row(member: Member) -> Columns:
    match member.verdict:
        case Graded(reward=reward, evidence=evidence, components=components):
            row: Columns = {"verdict": "graded", "reward": reward, "components": list(components.items())}
            if evidence is not None:
                row |= _evidence_columns(evidence)
        case Ungraded(cause=cause, phase=phase):
            row = {"verdict": "ungraded", "cause": cause, "phase": phase}
    return {"trajectory_id": member.trajectory.id} | row


def _evidence_columns(evidence: Evidence) -> Columns:
    return {
        "required": evidence.required,
        "executed": evidence.executed,
        "passed": evidence.passed,
        "canary_failed": evidence.canary_failed,
        "processes_gone": evidence.processes_gone,
        "channel": evidence.channel,
        "grading_isolation": evidence.isolation,
        "notes": list(evidence.notes),
    }


def _finding_rows(member: Member) -> Iterable[Columns]:
    for finding in member.findings:
        yield {
            "trajectory_id": member.trajectory.id,
            "about": finding.trajectory_id,
            "screen": finding.screen,
            "severity": finding.severity,
            "turn": finding.turn,
            "quote": finding.quote,
            "explanation": finding.explanation,
        }


def _build(kind: pa.Schema, rows: Sequence[Columns]) -> pa.Table:
    return _table(kind, {field.name: [row.get(field.name) for row in rows] for field in kind})


def _table(kind: pa.Schema, columns: Columns) -> pa.Table:
    return pa.table([_column(field, columns[field.name]) for field in kind], schema=kind)


def _column(field: pa.Field, values: Any) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, pa.ChunkedArray):
        return values
    if field.type in (schema.IDS, schema.LOGPROBS):
        return _lists(field.type, values)
    try:
        return pa.array(values, type=field.type)
    except UnicodeEncodeError:
        return pa.array(_map_texts(values, clean_text), type=field.type)


def _lists(kind: pa.DataType, arrays: Sequence[NDArray[Any]]) -> pa.Array:
    """Build a list column from arrays without turning each number into a Python object."""
    offsets = np.zeros(len(arrays) + 1, dtype=np.int32)
    np.cumsum([len(array) for array in arrays], out=offsets[1:])
    flat = np.concatenate(arrays) if arrays else np.zeros(0)
    values = pa.array(flat.astype(kind.value_type.to_pandas_dtype(), copy=False), type=kind.value_type)
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def _map_texts(value: Any, function: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return function(value)
    if isinstance(value, list | tuple):
        return type(value)(_map_texts(part, function) for part in value)
    return value
