"""Small builders of valid records, and equality of records that hold arrays. For tests of anything that reads nouns.

Builders take what matters to the test and fill in the rest deterministically. `same` compares nouns field by field,
because `==` on a dataclass with arrays is an error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from sanderling.types import (
    Action,
    Disposition,
    Evidence,
    Graded,
    Gradient,
    Group,
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


def turn(
    action: str = "view",
    observation: str = "ok",
    *,
    reward: float = 0.0,
    state_key: str | None = None,
    policy_version: int = 0,
    logprob: float = -0.5,
) -> Turn:
    """Return a turn whose token ids are the UTF-8 bytes of its texts (0 to 255); the action ends with the id 256."""
    ids = np.array([*action.encode("utf-8"), 256], dtype=np.int32)
    return Turn(
        action=Action(
            token_ids=ids,
            rollout_logprobs=np.full(len(ids), logprob, dtype=np.float32),
            policy_versions=np.full(len(ids), policy_version, dtype=np.int32),
            text=action,
            finish_reason="stop",
        ),
        observation=Observation(token_ids=byte_ids(observation), text=observation, duration_s=0.01),
        reward=reward,
        state_key=state_key,
    )


def byte_ids(text: str) -> np.ndarray:
    """Return the UTF-8 bytes of `text` as ids, (T,) int32."""
    return np.frombuffer(text.encode("utf-8"), dtype=np.uint8).astype(np.int32)


def trajectory(
    turns: Sequence[Turn] = (),
    *,
    id: str = "g0/0.0",
    task_id: str = "toy/train/one",
    stop: StopReason = StopReason.SUBMITTED,
    prompt: str = "Fix it.",
) -> Trajectory:
    """Return a trajectory; group id and attempt are read from an id of the form "<group id>/<sample>.<attempt>"."""
    group_id, _, rest = id.rpartition("/")
    return Trajectory(
        id=id,
        task_id=task_id,
        group_id=group_id,
        attempt=int(rest.rpartition(".")[2]),
        prompt_ids=byte_ids(prompt),
        turns=tuple(turns),
        stop=stop,
        isolation="namespaces",
        usage=Usage(
            sampled_tokens=sum(len(one.action.token_ids) for one in turns),
            observation_tokens=sum(len(one.observation.token_ids) for one in turns),
            commands=len(turns),
        ),
        timing=Timing(sandbox_s=0.01, sample_s=0.5, tools_s=0.1, grade_s=0.05, total_s=0.7),
    )


def evidence(*, passed: int = 20, required: int = 20, notes: tuple[str, ...] = ()) -> Evidence:
    """Return evidence that pays when `passed` equals `required`."""
    return Evidence(
        required=required,
        executed=required,
        passed=passed,
        canary_failed=True,
        processes_gone=True,
        channel="observation",
        isolation="namespaces",
        notes=notes,
    )


def member(record: Trajectory, reward: float | None = 1.0, *, gradient: Gradient = Gradient.FULL) -> Member:
    """Return a graded member with `reward`, or an excluded, ungraded one for None."""
    if reward is None:
        verdict: Verdict = Ungraded(cause=record.detail or "the sandbox was lost", phase="sandbox")
        fate = Disposition(
            membership=Membership.EXCLUDED, reward=None, gradient=Gradient.NONE, reason=record.stop.value
        )
    else:
        proof = evidence(passed=20 if reward == 1.0 else 7) if record.stop is StopReason.SUBMITTED else None
        verdict = Graded(reward=reward, evidence=proof, components={"hidden_tests": reward})
        fate = Disposition(membership=Membership.MEMBER, reward=reward, gradient=gradient, reason=record.stop.value)
    return Member(trajectory=record, verdict=verdict, disposition=fate)


def group(rewards: Sequence[float | None], *, id: str = "g0", task_id: str = "toy/train/one", turns: int = 2) -> Group:
    """Return a group with one member per reward, each of `turns` turns; None makes an excluded, ungraded member."""
    members = []
    for index, reward in enumerate(rewards):
        stop = StopReason.SANDBOX_LOST if reward is None else StopReason.SUBMITTED
        steps = [turn(f"edit {index}.{number}", f"state {number}") for number in range(turns)]
        members.append(member(trajectory(steps, id=f"{id}/{index}.0", task_id=task_id, stop=stop), reward))
    return Group(id=id, task_id=task_id, members=tuple(members))


def difference(left: Any, right: Any, where: str = "record") -> str | None:
    """Return where two records differ first, or None. Arrays must agree in type, shape and bits (NaN equals NaN)."""
    if type(left) is not type(right):
        return f"{where}: {type(left).__name__} against {type(right).__name__}"
    if isinstance(left, np.ndarray):
        equal = left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
        return None if equal else f"{where}: {left!r} against {right!r}"
    if is_dataclass(left):
        pairs = [(f"{where}.{f.name}", getattr(left, f.name), getattr(right, f.name)) for f in fields(left)]
    elif isinstance(left, list | tuple) and len(left) == len(right):
        pairs = [(f"{where}[{i}]", a, b) for i, (a, b) in enumerate(zip(left, right, strict=True))]
    elif isinstance(left, Mapping) and list(left) == list(right):
        pairs = [(f"{where}[{key!r}]", left[key], right[key]) for key in left]
    else:
        both_nan = isinstance(left, float) and math.isnan(left) and math.isnan(right)
        return None if both_nan or left == right else f"{where}: {left!r} against {right!r}"
    return next((found for name, a, b in pairs if (found := difference(a, b, name))), None)


def same(left: Any, right: Any) -> bool:
    """Return whether two records are equal, arrays bit by bit."""
    return difference(left, right) is None
