"""Invariants 1, 2 and 8 of an episode, checked when it ends."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np

from sanderling.errors import ConfigError, InvariantViolation
from sanderling.harness.protocol import Codec
from sanderling.harness.tokenizer import Tokenizer
from sanderling.types import Action, Graded, Int32Array, Trajectory


def context_digest(token_ids: Int32Array) -> bytes:
    """Return a digest of a context as it goes to the engine."""
    return hashlib.blake2b(token_ids.tobytes(), digest_size=16).digest()


def check_contexts(trajectory: Trajectory, sent: Sequence[bytes]) -> None:
    """Check that per-token lists agree and that every context that was sent is the stored one.

    Args:
        trajectory: the finished record.
        sent: `context_digest` of each context, in the order of the calls.

    Raises:
        InvariantViolation: names the trajectory and the turn.
    """
    stored = hashlib.blake2b(trajectory.prompt_ids.tobytes(), digest_size=16)
    for number, turn in enumerate(trajectory.turns):
        if sent[number] != stored.digest():
            raise InvariantViolation(
                f"invariant 2, trajectory {trajectory.id}, turn {number}: the ids that the engine was sent are not the ids "
                "that are stored before this turn"
            )
        action = turn.action
        lengths = {len(action.token_ids), len(action.rollout_logprobs), len(action.policy_versions)}
        if len(lengths) != 1 or not len(action.token_ids):
            raise InvariantViolation(
                f"invariant 1, trajectory {trajectory.id}, turn {number}: {len(action.token_ids)} ids, "
                f"{len(action.rollout_logprobs)} log-probabilities, {len(action.policy_versions)} versions"
            )
        stored.update(action.token_ids.tobytes())
        stored.update(turn.observation.token_ids.tobytes())


def check_one_row(codec: Codec, tokenizer: Tokenizer, prompt: str) -> None:
    """Check that a conversation stays one growing context, as losses over whole sequences need it. Samples nothing.

    Two invented actions are answered, one of them with thinking that a chat template may leave out later.

    Raises:
        ConfigError: the codec rewrites what stands before, so that an episode would lie in several rows.
    """
    transcript = codec.open(prompt)
    for text in ("<think>\nFirst I look.\n</think>\n\nlook", "done", "done"):
        ids = np.array([*tokenizer.encode(text), *codec.stop_token_ids[:1]], dtype=np.int32)
        nothing = np.zeros(len(ids), dtype=np.float32)
        action = Action(
            token_ids=ids,
            rollout_logprobs=nothing,
            policy_versions=nothing.astype(np.int32),
            text=text,
            finish_reason="stop",
        )
        if transcript.extend(action, ("ok",)).new_prompt_ids is not None:
            raise ConfigError(
                f"the chat template rewrites earlier turns (after {text!r}), so an episode would lie in several rows and a "
                "loss over whole sequences would take each for a sequence of its own; use a loss of tokens, or another harness"
            )


def check_paid(trajectory: Trajectory, verdict: Graded) -> None:
    """Check that a paid verdict has the evidence that pays it (invariant 8).

    Raises:
        InvariantViolation: a reward above 0 without complete evidence, or a reward that is no number.
    """
    if not math.isfinite(verdict.reward):
        raise InvariantViolation(f"trajectory {trajectory.id}: the verifier gave the reward {verdict.reward}")
    if verdict.reward <= 0:
        return
    evidence = verdict.evidence
    if evidence is None:
        raise InvariantViolation(f"invariant 8, trajectory {trajectory.id}: reward {verdict.reward} without evidence")
    complete = (
        evidence.required > 0
        and evidence.executed == evidence.required
        and evidence.channel != ""
        and evidence.canary_failed
        and evidence.processes_gone
        and (verdict.reward < 1 or evidence.passed == evidence.required)
    )
    if not complete:
        raise InvariantViolation(
            f"invariant 8, trajectory {trajectory.id}: reward {verdict.reward} on incomplete evidence {evidence}"
        )
