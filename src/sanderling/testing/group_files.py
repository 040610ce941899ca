"""Groups from small JSON files, for tests of credit, batch and loss: the numbers stand in the file, texts are left out.

    {"id": "g", "task_id": "t", "members": [
      {"id": "g/0.0", "prompt_ids": [1], "stop": "submitted", "reward": 1.0, "turns": [
        {"action": {"token_ids": [4], "rollout_logprobs": [-0.7], "policy_versions": [0]},
         "observation": {"token_ids": [2]}, "state_key": "S", "reward": 0.0, "score": 0.5}]}]}

A member may also have "membership", "gradient", "parent_id", "forked_at", "branching", and "values":
{"at_turns": [0.5], "at_tokens": [0.5], "at_end": 0.2}, of which the last two may be left out. Other keys are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sanderling.types import (
    Action,
    Branching,
    Disposition,
    Graded,
    Gradient,
    Group,
    Member,
    Membership,
    Observation,
    StopReason,
    Trajectory,
    Turn,
    Ungraded,
    Values,
)

FIXTURES = Path(__file__).parent / "fixtures"
"""Hand-worked groups. `four_trajectories.json` is the one of docs/formulas.md; the others differ where an equation needs it."""


def fixture(name: str) -> Group:
    """Return one of the groups that ship with Sanderling, such as "four_trajectories".

    Raises:
        FileNotFoundError: there is none of that name.
    """
    return read_group(FIXTURES / f"{name}.json")


def read_group(file: Path) -> Group:
    """Read a group from a JSON file."""
    return parse_group(json.loads(file.read_text("utf-8")))


def parse_group(content: Mapping[str, Any]) -> Group:
    """Build a group from parsed JSON. A member without a reward is excluded and ungraded."""
    members = tuple(_member(m, content["id"], content["task_id"]) for m in content["members"])
    return Group(id=content["id"], task_id=content["task_id"], members=members)


def _member(content: Mapping[str, Any], group_id: str, task_id: str) -> Member:
    reward = content.get("reward")
    membership = Membership(content.get("membership", "excluded" if reward is None else "member"))
    untrained = membership is not Membership.MEMBER
    trajectory = Trajectory(
        id=content["id"],
        task_id=task_id,
        group_id=group_id,
        attempt=0,
        prompt_ids=np.array(content["prompt_ids"], dtype=np.int32),
        turns=tuple(_turn(t) for t in content["turns"]),
        stop=StopReason(content["stop"]),
        parent_id=content.get("parent_id"),
        forked_at=content.get("forked_at"),
        branching=Branching(content.get("branching", "row")),
    )
    return Member(
        trajectory=trajectory,
        verdict=Graded(reward=reward) if reward is not None else Ungraded(cause=content["stop"], phase="sandbox"),
        disposition=Disposition(
            membership=membership,
            reward=reward,
            gradient=Gradient.NONE if untrained else Gradient(content.get("gradient", "full")),
            reason=content["stop"],
        ),
        values=_values(content["values"]) if "values" in content else None,
    )


def _values(content: Mapping[str, Any]) -> Values:
    tokens = content.get("at_tokens")
    return Values(
        at_turns=np.array(content["at_turns"], dtype=np.float64),
        at_tokens=None if tokens is None else np.array(tokens, dtype=np.float64),
        at_end=content.get("at_end"),
    )


def _turn(content: Mapping[str, Any]) -> Turn:
    action, observation = content["action"], content.get("observation", {})
    return Turn(
        action=Action(
            token_ids=np.array(action["token_ids"], dtype=np.int32),
            rollout_logprobs=np.array(action["rollout_logprobs"], dtype=np.float32),
            policy_versions=np.array(action["policy_versions"], dtype=np.int32),
            text="",
            finish_reason="stop",
        ),
        observation=Observation(token_ids=np.array(observation.get("token_ids", []), dtype=np.int32), text=""),
        reward=content.get("reward", 0.0),
        state_key=content.get("state_key"),
        score=content.get("score"),
    )
