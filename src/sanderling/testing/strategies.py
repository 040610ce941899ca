"""Hypothesis strategies for the nouns: anything that a stage may be handed, within the rules that the nouns state."""

from __future__ import annotations

from typing import get_args

import numpy as np
from hypothesis import strategies as st

from sanderling.types import (
    Action,
    Disposition,
    Evidence,
    Finding,
    FinishReason,
    Graded,
    Gradient,
    Group,
    Member,
    Membership,
    Observation,
    ObservationSource,
    StopReason,
    Timing,
    Trajectory,
    Turn,
    Ungraded,
    Usage,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
seconds = st.floats(0.0, 1e6)
sizes = st.integers(0, 2**40)
phases = st.sampled_from(["sandbox", "sampling", "tools", "grading", "scheduling"])


def ids(max_size: int = 12) -> st.SearchStrategy[np.ndarray]:
    """Return arrays of token ids, (T,) int32."""
    return st.lists(st.integers(0, 2**31 - 1), max_size=max_size).map(lambda x: np.array(x, dtype=np.int32))


@st.composite
def actions(draw: st.DrawFn) -> Action:
    token_ids = draw(ids())
    count = len(token_ids)
    logprobs = draw(st.lists(st.floats(-100.0, 0.0, width=32), min_size=count, max_size=count))
    versions = draw(st.lists(st.integers(0, 2**31 - 1), min_size=count, max_size=count))
    return Action(
        token_ids=token_ids,
        rollout_logprobs=np.array(logprobs, dtype=np.float32),
        policy_versions=np.array(versions, dtype=np.int32),
        text=draw(texts),
        finish_reason=draw(st.sampled_from(get_args(FinishReason))),
    )


def observations() -> st.SearchStrategy[Observation]:
    return st.builds(
        Observation,
        token_ids=ids(),
        text=texts,
        source=st.sampled_from(get_args(ObservationSource)),
        exit_code=st.none() | st.integers(0, 255),
        duration_s=seconds,
        omitted_bytes=sizes,
    )


def turns() -> st.SearchStrategy[Turn]:
    return st.builds(
        Turn,
        action=actions(),
        observation=observations(),
        reward=st.floats(allow_nan=False),
        state_key=st.none() | texts,
        score=st.none() | st.floats(allow_nan=False),
    )


@st.composite
def trajectories(draw: st.DrawFn, id: str = "g0/0.0", group_id: str = "g0", task_id: str = "t0") -> Trajectory:
    parent = draw(st.none() | texts)
    return Trajectory(
        id=id,
        task_id=task_id,
        group_id=group_id,
        attempt=draw(st.integers(0, 9)),
        prompt_ids=draw(ids()),
        turns=tuple(draw(st.lists(turns(), max_size=4))),
        stop=draw(st.sampled_from(StopReason)),
        detail=draw(texts),
        isolation=draw(texts),
        parent_id=parent,
        forked_at=None if parent is None else draw(st.integers(0, 30)),
        usage=draw(st.builds(Usage, sampled_tokens=sizes, observation_tokens=sizes, commands=sizes, bad_calls=sizes)),
        timing=draw(
            st.builds(Timing, sandbox_s=seconds, sample_s=seconds, tools_s=seconds, grade_s=seconds, total_s=seconds)
        ),
    )


def evidences() -> st.SearchStrategy[Evidence]:
    return st.builds(
        Evidence,
        required=sizes,
        executed=sizes,
        passed=sizes,
        canary_failed=st.booleans(),
        processes_gone=st.booleans(),
        channel=texts,
        isolation=texts,
        notes=st.lists(texts, max_size=3).map(tuple),
    )


def verdicts() -> st.SearchStrategy[Graded | Ungraded]:
    components = st.dictionaries(texts, st.floats(), max_size=3)
    graded = st.builds(Graded, reward=st.floats(0.0, 1.0), evidence=st.none() | evidences(), components=components)
    return graded | st.builds(Ungraded, cause=texts, phase=phases)


@st.composite
def dispositions(draw: st.DrawFn) -> Disposition:
    membership = draw(st.sampled_from(Membership))
    if membership is Membership.EXCLUDED:
        reward, gradient = draw(st.none() | st.floats(0.0, 1.0)), Gradient.NONE
    else:
        reward, gradient = draw(st.floats(0.0, 1.0)), draw(st.sampled_from(Gradient))
    return Disposition(membership=membership, reward=reward, gradient=gradient, reason=draw(texts))


@st.composite
def members(draw: st.DrawFn, id: str = "g0/0.0", group_id: str = "g0", task_id: str = "t0") -> Member:
    findings = st.builds(
        Finding,
        trajectory_id=st.just(id),
        screen=texts,
        severity=st.sampled_from(["info", "suspected", "proven"]),
        turn=st.none() | st.integers(0, 30),
        quote=texts,
        explanation=texts,
    )
    return Member(
        trajectory=draw(trajectories(id, group_id, task_id)),
        verdict=draw(verdicts()),
        disposition=draw(dispositions()),
        findings=tuple(draw(st.lists(findings, max_size=2))),
    )


@st.composite
def groups(draw: st.DrawFn, max_groups: int = 3, max_members: int = 4) -> tuple[Group, ...]:
    """Return groups with unique ids; a group may be empty."""
    made = []
    for number in range(draw(st.integers(0, max_groups))):
        group_id, task_id = f"g{number}", draw(texts)
        count = draw(st.integers(0, max_members))
        own = tuple(draw(members(f"{group_id}/{index}.0", group_id, task_id)) for index in range(count))
        made.append(Group(id=group_id, task_id=task_id, members=own))
    return tuple(made)
