"""What becomes of a trajectory, decided from its end before any statistic is computed.

    stop                                  membership   reward            gradient
    submitted                             member       verdict           full
    gave up, format error, broken world   member       0                 full
    timeout                               member       0 or the grade    full
    turn limit, token limits              member *     0 or the grade    full or none (a setting)
    infrastructure, ungraded              excluded     unknown           none

* or excluded, with `truncated_membership = "drop"`. Penalties for limits and length are taken off the reward.

The three columns are separate because they answer separate questions: a lost sandbox says nothing about the policy, while
an episode that ran out of turns does, even where its own tokens are not trained.
"""

from __future__ import annotations

from sanderling.rollout.config import RolloutConfig
from sanderling.types import Disposition, Graded, Gradient, Membership, StopReason, Trajectory, Verdict

_CUT = (StopReason.MAX_TURNS, StopReason.MAX_TOKENS, StopReason.MAX_ACTION_TOKENS)


def needs_grading(stop: StopReason, config: RolloutConfig) -> bool:
    """Return whether the state that the episode left behind is to be judged."""
    return stop is StopReason.SUBMITTED or (stop.truncated and config.truncated_reward == "grade")


def overlong_penalty(tokens: int, limit: int, buffer: int) -> float:
    """Return 0 up to limit - buffer action tokens, then a line down to -1 at the limit (arXiv 2503.14476, eq. 13)."""
    return -min(1.0, max(0.0, (tokens - (limit - buffer)) / buffer))


def dispose(
    trajectory: Trajectory, verdict: Verdict, config: RolloutConfig, *, action_tokens: int | None = None
) -> Disposition:
    """Decide membership, reward and gradient of one trajectory.

    `action_tokens` are those of its whole episode; None: it is the only row.
    """
    stop = trajectory.stop
    match verdict:
        case Graded(reward=reward) if not stop.infrastructure:
            if stop.truncated:
                reward -= config.truncated_penalty
            if config.overlong_tokens is not None:
                tokens = trajectory.num_action_tokens if action_tokens is None else action_tokens
                reward += overlong_penalty(tokens, config.overlong_tokens, config.overlong_buffer)
            if stop in _CUT and config.truncated_membership == "drop":
                return Disposition(
                    membership=Membership.EXCLUDED,
                    reward=reward,
                    gradient=Gradient.NONE,
                    reason=f"dropped_{stop.value}",
                )
            masked = stop in _CUT and config.truncated_gradient == "mask"
            return Disposition(
                membership=Membership.MEMBER,
                reward=reward,
                gradient=Gradient.NONE if masked else Gradient.FULL,
                reason=stop.value,
            )
        case _:
            return Disposition(
                membership=Membership.EXCLUDED,
                reward=None,
                gradient=Gradient.NONE,
                reason=stop.value if stop.infrastructure else "ungraded",
            )
