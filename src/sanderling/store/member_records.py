"""Members as JSON, to the bit and back: what the log of episodes holds of an attempt that ended."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sanderling.types import (
    Action,
    Branching,
    Disposition,
    Evidence,
    Finding,
    Graded,
    Gradient,
    Member,
    Membership,
    Observation,
    StopReason,
    Timing,
    Trajectory,
    Turn,
    Ungraded,
    Usage,
    Verdict,
)


def member_to_json(member: Member) -> dict[str, Any]:
    """Return a member as JSON knows it; arrays are base64 of their little-endian bytes. It has no values: those come later."""
    return {
        "trajectory": _trajectory_to_json(member.trajectory),
        "verdict": {type(member.verdict).__name__.lower(): asdict(member.verdict)},
        "disposition": asdict(member.disposition),
        "findings": [asdict(finding) for finding in member.findings],
    }


def member_from_json(record: Mapping[str, Any]) -> Member:
    """Return the member that `member_to_json` was given.

    Raises:
        KeyError, TypeError, ValueError: the record is no member.
    """
    fate = record["disposition"]
    return Member(
        trajectory=_trajectory_from_json(record["trajectory"]),
        verdict=_verdict_from_json(record["verdict"]),
        disposition=Disposition(
            membership=Membership(fate["membership"]),
            reward=fate["reward"],
            gradient=Gradient(fate["gradient"]),
            reason=fate["reason"],
        ),
        findings=tuple(Finding(**finding) for finding in record["findings"]),
    )


_PLAIN = ("id", "task_id", "group_id", "attempt", "detail", "isolation", "parent_id", "forked_at")


def _trajectory_to_json(trajectory: Trajectory) -> dict[str, Any]:
    return {name: getattr(trajectory, name) for name in _PLAIN} | {
        "stop": trajectory.stop.value,
        "branching": trajectory.branching.value,
        "prompt_ids": _packed(trajectory.prompt_ids, "<i4"),
        "turns": [_turn_to_json(turn) for turn in trajectory.turns],
        "usage": asdict(trajectory.usage),
        "timing": asdict(trajectory.timing),
    }


def _trajectory_from_json(record: Mapping[str, Any]) -> Trajectory:
    return Trajectory(
        **{name: record[name] for name in _PLAIN},
        stop=StopReason(record["stop"]),
        branching=Branching(record["branching"]),
        prompt_ids=_unpacked(record["prompt_ids"], "<i4"),
        turns=tuple(_turn_from_json(turn) for turn in record["turns"]),
        usage=Usage(**record["usage"]),
        timing=Timing(**record["timing"]),
    )


def _turn_to_json(turn: Turn) -> dict[str, Any]:
    action, seen = turn.action, turn.observation
    return {
        "action": {
            "token_ids": _packed(action.token_ids, "<i4"),
            "rollout_logprobs": _packed(action.rollout_logprobs, "<f4"),
            "policy_versions": _packed(action.policy_versions, "<i4"),
            "text": action.text,
            "finish_reason": action.finish_reason,
        },
        "observation": {name: getattr(seen, name) for name in Observation.__dataclass_fields__}
        | {"token_ids": _packed(seen.token_ids, "<i4")},
        "reward": turn.reward,
        "state_key": turn.state_key,
        "score": turn.score,
    }


def _turn_from_json(record: Mapping[str, Any]) -> Turn:
    action: dict[str, Any] = dict(record["action"])
    for name, dtype in (("token_ids", "<i4"), ("rollout_logprobs", "<f4"), ("policy_versions", "<i4")):
        action[name] = _unpacked(action[name], dtype)
    seen: dict[str, Any] = dict(record["observation"])
    seen |= {"token_ids": _unpacked(seen["token_ids"], "<i4"), "bad_calls": tuple(seen["bad_calls"])}
    return Turn(
        action=Action(**action),
        observation=Observation(**seen),
        reward=record["reward"],
        state_key=record["state_key"],
        score=record["score"],
    )


def _verdict_from_json(record: Mapping[str, Any]) -> Verdict:
    if "ungraded" in record:
        return Ungraded(**record["ungraded"])
    graded: dict[str, Any] = dict(record["graded"])
    if graded["evidence"] is not None:
        evidence: dict[str, Any] = dict(graded["evidence"])
        evidence["notes"] = tuple(evidence["notes"])
        graded["evidence"] = Evidence(**evidence)
    return Graded(**graded)


def _packed(array: NDArray[Any], dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(array, dtype=dtype).tobytes()).decode("ascii")


def _unpacked(text: str, dtype: str) -> NDArray[Any]:
    values = np.frombuffer(base64.b64decode(text, validate=True), dtype=dtype)
    return values.astype(values.dtype.newbyteorder("="))  # a copy that may be written
