"""Walks as the nouns of the data path, so that estimators meet what they meet in a run: groups of graded trajectories.

An action is one token; an observation is one token that says what the policy sees next. Nothing else of the process is
in a record: a state that the policy can't see leaves no trace, which is what makes the null environment a test for cheats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from sanderling.creditbench.mdp import FiniteMdp, FloatArray, IntArray
from sanderling.creditbench.sampling import Walks
from sanderling.types import (
    Action,
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
)


class CutRule(StrEnum):
    """What becomes of an episode that ran into the limit on turns."""

    TRAIN = "train"  # a failure like any other
    MASK = "mask"  # in the baseline, without gradient
    DROP = "drop"  # in no statistic and without gradient


class TurnPay(StrEnum):
    """What records hold about single turns."""

    NONE = "none"
    PAID = "paid"  # `Turn.reward`
    SCORED = "scored"  # `Turn.score` of the state that the turn left behind


_TRAINED = {
    reward: Disposition(membership=Membership.MEMBER, reward=reward, gradient=Gradient.FULL, reason="submitted")
    for reward in (0.0, 1.0)
}
_CUT = {
    CutRule.TRAIN: Disposition(membership=Membership.MEMBER, reward=0.0, gradient=Gradient.FULL, reason="max_turns"),
    CutRule.MASK: Disposition(membership=Membership.MEMBER, reward=0.0, gradient=Gradient.NONE, reason="max_turns"),
    CutRule.DROP: Disposition(membership=Membership.EXCLUDED, reward=None, gradient=Gradient.NONE, reason="max_turns"),
}
_LOST = Disposition(membership=Membership.EXCLUDED, reward=None, gradient=Gradient.NONE, reason="sandbox_lost")
_VERDICTS = {reward: Graded(reward=reward) for reward in (0.0, 1.0)}
_NO_VERDICT = Ungraded(cause="lost on request of the bench", phase="sandbox")


@dataclass(slots=True, kw_only=True)
class Recorder:
    """Writes groups of one process. Equal turns are one object: they are frozen, and there are millions of them."""

    mdp: FiniteMdp
    policies: FloatArray  # (K, F, A) that sample
    pay: TurnPay = TurnPay.NONE
    cut: CutRule = CutRule.TRAIN
    _turns: dict[tuple[int, ...], Turn] = field(default_factory=dict)

    def groups(self, walks: Walks, size: int, lost: np.ndarray | None = None) -> list[Group]:
        """Return N / size groups of neighbouring episodes. `lost` (N,) marks those that infrastructure lost."""
        mdp = self.mdp
        before, after = np.arange(walks.states.shape[1]), np.arange(1, walks.states.shape[1] + 1)
        following = np.concatenate([walks.states[:, 1:], walks.ends[:, None]], axis=1)
        columns = (
            walks.policies[:, None] + np.zeros_like(walks.actions),
            mdp.views[walks.states, before],
            walks.actions,
            mdp.views[following, after],
            mdp.keys[walks.states, before],
        )
        pay = self._pay(walks, following).tolist()
        steps = np.stack(columns, axis=-1).tolist()
        lengths, starts = walks.lengths.tolist(), walks.states[:, 0].tolist()
        members: list[Member] = []
        for i, path in enumerate(steps):
            nonce = f"#{i}" if mdp.unique_keys else ""
            turns = tuple(self._turn(path[t], pay[i][t], f"{nonce}.{t}" if nonce else "") for t in range(lengths[i]))
            gone = lost is not None and bool(lost[i])
            members.append(self._member(walks, i, (starts[i], size), turns, gone))
        return [
            Group(
                id=members[first].trajectory.group_id,
                task_id=members[first].trajectory.task_id,
                members=tuple(members[first : first + size]),
            )
            for first in range(0, len(members), size)
        ]

    def _member(self, walks: Walks, i: int, place: tuple[int, int], turns: Sequence[Turn], lost: bool) -> Member:
        start, size = place
        cut, reward = bool(walks.cut[i]), float(walks.rewards[i])
        stop = StopReason.SANDBOX_LOST if lost else StopReason.MAX_TURNS if cut else StopReason.SUBMITTED
        disposition = _LOST if lost else _CUT[self.cut] if cut else _TRAINED[reward]
        group = f"g{i // size}"
        record = Trajectory(
            id=f"{group}/{i % size}.0",
            task_id=f"{self.mdp.name}/{start}",
            group_id=group,
            attempt=0,
            prompt_ids=np.array([self.mdp.num_actions + start], dtype=np.int32),
            turns=tuple(turns),
            stop=stop,
        )
        return Member(trajectory=record, verdict=_NO_VERDICT if lost else _VERDICTS[reward], disposition=disposition)

    def _pay(self, walks: Walks, following: IntArray) -> FloatArray:
        """Return what is said of each turn, (N, T): its reward, the score behind it, or NaN for nothing."""
        match self.pay:
            case TurnPay.PAID if self.mdp.turn_rewards is not None:
                return self.mdp.turn_rewards[walks.states, walks.actions]
            case TurnPay.SCORED if self.mdp.scores is not None:
                return self.mdp.scores[following]
            case TurnPay.NONE:
                return np.full(walks.states.shape, np.nan)
            case _:
                raise ValueError(f"{self.mdp.name} says nothing of single turns; expected pay NONE, got {self.pay}")

    def _turn(self, step: list[int], pay: float, nonce: str) -> Turn:
        said = -1 if math.isnan(pay) else round(pay * 1e6)
        known = self._turns.get(name := (*step, said))
        if known is None:
            known = self._turns[name] = self._new_turn(step, pay)
        return replace(known, state_key=f"{known.state_key}{nonce}") if nonce else known

    def _new_turn(self, step: list[int], pay: float) -> Turn:
        policy, view, action, seen, key = step
        logprob = np.log(self.policies[policy, view, action])
        return Turn(
            action=Action(
                token_ids=np.array([action], dtype=np.int32),
                rollout_logprobs=np.array([logprob], dtype=np.float32),
                policy_versions=np.array([policy], dtype=np.int32),
                text=f"act {action}",
                finish_reason="stop",
            ),
            observation=Observation(
                token_ids=np.array([self.mdp.num_actions + seen], dtype=np.int32), text=f"see {seen}"
            ),
            reward=pay if self.pay is TurnPay.PAID else 0.0,
            score=pay if self.pay is TurnPay.SCORED and not math.isnan(pay) else None,
            state_key=f"{key}",
        )
