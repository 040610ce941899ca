"""Invariants 1, 2 and 8 of an episode, checked when it ends."""

from __future__ import annotations

from collections.abc import Sequence

from sanderling.errors import InvariantViolation
from sanderling.types import Graded, Trajectory


def check_contexts(trajectory: Trajectory, sent_lengths: Sequence[int]) -> None:
    """Check that per-token lists agree and that what the engine was sent is a prefix of what is stored.

    The context is append-only, so equal lengths at each call mean equal ids.

    Raises:
        InvariantViolation: names the trajectory, the turn and the lengths.
    """
    position = len(trajectory.prompt_ids)
    for number, turn in enumerate(trajectory.turns):
        if sent_lengths[number] != position:
            raise InvariantViolation(
                f"invariant 2, trajectory {trajectory.id}, turn {number}: the engine was sent {sent_lengths[number]} ids, "
                f"the record holds {position}"
            )
        action = turn.action
        lengths = {len(action.token_ids), len(action.rollout_logprobs), len(action.policy_versions)}
        if len(lengths) != 1 or not len(action.token_ids):
            raise InvariantViolation(
                f"invariant 1, trajectory {trajectory.id}, turn {number}: {len(action.token_ids)} ids, "
                f"{len(action.rollout_logprobs)} log-probabilities, {len(action.policy_versions)} versions"
            )
        position += len(action.token_ids) + len(turn.observation.token_ids)


def check_paid(trajectory: Trajectory, verdict: Graded) -> None:
    """Check that a paid verdict has the evidence that pays it (invariant 8).

    Raises:
        InvariantViolation: a reward above 0 without complete evidence.
    """
    if verdict.reward <= 0:
        return
    evidence = verdict.evidence
    if evidence is None:
        raise InvariantViolation(f"invariant 8, trajectory {trajectory.id}: reward {verdict.reward} without evidence")
    complete = (
        evidence.required > 0
        and evidence.executed == evidence.required
        and evidence.canary_failed
        and evidence.processes_gone
        and (verdict.reward < 1 or evidence.passed == evidence.required)
    )
    if not complete:
        raise InvariantViolation(
            f"invariant 8, trajectory {trajectory.id}: reward {verdict.reward} on incomplete evidence {evidence}"
        )
