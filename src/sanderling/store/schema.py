"""Columns of the Parquet files of a run folder: one place for names, types and what they mean.

Four files stand in each rollout folder. `trajectories` and `verdicts` have one row per trajectory (failed attempts and
excluded ones too), `turns` one row per turn, `findings` one row per finding. They join on `trajectory_id`. The doc of a
column is in its field metadata under `doc`, so that a reader needs pyarrow only::

    pyarrow.parquet.read_schema("turns.parquet").field("state_key").metadata[b"doc"]
"""

from __future__ import annotations

import pyarrow as pa

SCHEMA_VERSION = 1
VERSION_KEY = b"sanderling.schema_version"
GROUPS_KEY = b"sanderling.groups"  # JSON list of [group id, task id, number of members], in order
STEP_KEY = b"sanderling.step"  # optimiser steps done when the file was written, or the step that it belongs to

IDS = pa.list_(pa.int32())
LOGPROBS = pa.list_(pa.float32())
LABELS = pa.map_(pa.string(), pa.string())
NUMBERS = pa.map_(pa.string(), pa.float64())


def _field(name: str, kind: pa.DataType, doc: str, *, nullable: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=nullable, metadata={"doc": doc})


def _schema(*fields: pa.Field) -> pa.Schema:
    return pa.schema(list(fields), metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()})


_KEYS = (
    _field("trajectory_id", pa.string(), "unique in the run: <group id>/<sample index>.<attempt>"),
    _field("group_id", pa.string(), "siblings of one task that are compared with each other share it"),
    _field("task_id", pa.string(), "task that was worked on; its split is a part of the id"),
    _field("attempt", pa.int64(), "0, then 1, 2, ... for retries after an infrastructure failure"),
)
_FATE = (
    _field("stop", pa.string(), "how the episode ended (StopReason)"),
    _field("isolation", pa.string(), "what contained the agent's commands, as the sandbox backend names it"),
    _field("membership", pa.string(), "member: enters the group's baseline; excluded: enters no statistic"),
    _field("gradient", pa.string(), "full: every action token is trained; none: no token is"),
    _field("disposition_reason", pa.string(), "stop reason or rule that decided about membership and gradient"),
)
DENORMALISED = tuple(field.name for field in (*_KEYS, *_FATE))  # columns that `turns` repeats from `trajectories`

TRAJECTORIES = _schema(
    *_KEYS,
    *_FATE,
    _field("disposition_reward", pa.float64(), "reward that enters the baseline; null: unknown", nullable=True),
    _field("turns", pa.int64(), "number of turns"),
    _field("prompt_ids", IDS, "token ids that stand before the first action"),
    _field("detail", pa.string(), "one line about the stop, such as the error of a lost sandbox"),
    _field("parent_id", pa.string(), "trajectory that this one was forked from; null: none", nullable=True),
    _field("forked_at", pa.int64(), "number of turns shared with the parent; null: no parent", nullable=True),
    _field("sampled_tokens", pa.int64(), "tokens that the engine sampled"),
    _field("observation_tokens", pa.int64(), "tokens of all observations"),
    _field("commands", pa.int64(), "commands run in the sandbox"),
    _field("bad_calls", pa.int64(), "malformed calls"),
    _field("sandbox_s", pa.float64(), "seconds to get the sandbox, waiting included"),
    _field("sample_s", pa.float64(), "seconds in the engine, waiting included"),
    _field("tools_s", pa.float64(), "seconds in tools"),
    _field("grade_s", pa.float64(), "seconds of grading, waiting included"),
    _field("total_s", pa.float64(), "seconds from start to verdict"),
    _field("task_prompt", pa.string(), "the task's text; null: not given to the store", nullable=True),
    _field("task_metadata", LABELS, "family, topic and other labels of the task; for reports only", nullable=True),
)

TURNS = _schema(
    *_KEYS,
    _field("turn", pa.int64(), "index of the turn, from 0"),
    *_FATE,
    _field("action_token_ids", IDS, "ids exactly as sampled, stop token included"),
    _field("rollout_logprobs", LOGPROBS, "log-probability of each action token under the distribution sampled from"),
    _field("policy_versions", IDS, "version of the weights that sampled each action token"),
    _field("action_text", pa.string(), "text of the action, without its stop token; for reading only"),
    _field("finish_reason", pa.string(), "stop, or length: cut by a token limit"),
    _field("observation_token_ids", IDS, "ids of what the world answered; never trained on"),
    _field("observation_text", pa.string(), "text of the observation"),
    _field("observation_source", pa.string(), "tool, tests, user, web, sub-agent or system"),
    _field("exit_code", pa.int64(), "of the process behind the observation; null: no process ran", nullable=True),
    _field("duration_s", pa.float64(), "seconds that the tool took"),
    _field("omitted_bytes", pa.int64(), "bytes dropped from the middle of the output"),
    _field("reward", pa.float64(), "paid for this turn; 0.0 unless the environment pays per turn"),
    _field("state_key", pa.string(), "digest of the world in which the action was taken; null: none", nullable=True),
    _field(
        "score", pa.float64(), "how good the environment finds the state that the turn left; null: none", nullable=True
    ),
    _field("advantage", pa.float64(), "mean advantage of the action's tokens; null: not trained", nullable=True),
)

VERDICTS = _schema(
    _field("trajectory_id", pa.string(), "trajectory that was judged"),
    _field("verdict", pa.string(), "graded, or ungraded: a failure of ours, which holds no number"),
    _field("reward", pa.float64(), "what the work earned; null: ungraded", nullable=True),
    _field("components", NUMBERS, "parts of the reward by name; null: ungraded", nullable=True),
    _field("required", pa.int64(), "checks that had to pass; null: no evidence, nothing was graded", nullable=True),
    _field("executed", pa.int64(), "checks executed exactly once and reported over the trusted channel", nullable=True),
    _field("passed", pa.int64(), "checks that passed", nullable=True),
    _field("canary_failed", pa.bool_(), "a check that must fail did fail", nullable=True),
    _field("processes_gone", pa.bool_(), "no process of the agent was alive when grading began", nullable=True),
    _field("channel", pa.string(), "how the grader learned the outcome", nullable=True),
    _field("grading_isolation", pa.string(), "isolation of the grading sandbox", nullable=True),
    _field("notes", pa.list_(pa.string()), "mechanisms seen: refused paths, first failing check, ...", nullable=True),
    _field("cause", pa.string(), "why it is ungraded; null: graded", nullable=True),
    _field("phase", pa.string(), "phase in which our failure happened; null: graded", nullable=True),
)

FINDINGS = _schema(
    _field("trajectory_id", pa.string(), "trajectory under whose member the finding is kept"),
    _field("about", pa.string(), "trajectory that the finding itself names"),
    _field("screen", pa.string(), "screen that noticed it"),
    _field("severity", pa.string(), "info, suspected or proven"),
    _field("turn", pa.int64(), "index of the turn; null: the whole trajectory", nullable=True),
    _field("quote", pa.string(), "the words that it is about"),
    _field("explanation", pa.string(), "what it means"),
)

FILES = {"turns": TURNS, "trajectories": TRAJECTORIES, "verdicts": VERDICTS, "findings": FINDINGS}
