"""The learner and the records in simulated time: they take what their tokens and episodes take, and keep the accounts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sanderling.batch.micro import has_trained_tokens, is_live
from sanderling.learn.config import LearnerConfig
from sanderling.simulation.config import LearnerShape
from sanderling.simulation.virtual_time import running_loop
from sanderling.simulation.world import World
from sanderling.types import Float32Array, Group, Membership, StepReport, Task, TrainingRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """Implements `learn.protocol.Learned`."""

    metrics: Mapping[str, float]


class SimulatedLearner:
    """Implements `learn.protocol.Trainer`."""

    critic = None

    def __init__(self, world: World, shape: LearnerShape, config: LearnerConfig) -> None:
        self._world = world
        self._shape = shape
        self.config = config
        self.policy_version = 0

    def step(self, rows: Sequence[TrainingRow]) -> Learned:
        live = [row for row in rows if has_trained_tokens(row) and is_live(row)]
        tokens = sum(len(row.token_ids) for row in live) * self._world.tokens_per_id
        if live:
            seconds = self._shape.fixed_s + tokens / self._shape.tokens_per_s
            running_loop().owe(lambda: self._world.machine.learn(seconds))
            self.policy_version += 1
        return Learned(metrics={"updates": float(bool(live)), "tokens_trained": _trained_tokens(live)})

    def logprobs(self, rows: Sequence[TrainingRow]) -> list[Float32Array]:
        return [np.zeros(len(row.token_ids), dtype=np.float32) for row in rows]

    def weights(self) -> dict[str, Any]:
        return {"version": np.array([float(self.policy_version)])}


def _trained_tokens(rows: Sequence[TrainingRow]) -> float:
    return float(sum(int(row.loss_mask.sum()) for row in rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Where the sampled tokens of a step went, in stored ids."""

    all: int
    lost: int  # in attempts that were dropped or excluded: sampled for nothing
    episodes: int  # that ended in this step, every attempt


@dataclass(slots=True)
class KeptRecords:
    """Implements `learn.protocol.Records` in memory; storing takes its time."""

    shape: LearnerShape
    reports: list[StepReport] = field(default_factory=list)
    sampled: list[Sampled] = field(default_factory=list)

    def append_metrics(self, report: StepReport) -> None:
        self.reports.append(report)

    def append_event(self, kind: str, **fields: Any) -> None:
        """Keep none: nothing is found in simulated episodes."""

    def write_rollouts(
        self,
        step: int,
        groups: Sequence[Group],
        *,
        tasks: Mapping[str, Task] | None = None,
        advantages: Mapping[str, ArrayLike] | None = None,
    ) -> None:
        members = [member for group in groups for member in group.members]
        counted = [(m.trajectory.num_action_tokens, m.disposition.membership is Membership.MEMBER) for m in members]
        self.sampled.append(
            Sampled(
                all=sum(tokens for tokens, _ in counted),
                lost=sum(tokens for tokens, kept in counted if not kept),
                episodes=len(members),
            )
        )
        running_loop().spend(self.shape.store_s * len(members))
