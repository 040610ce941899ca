"""What the loop asks of the learner and of the place where records go. `Learner` and `RunFolder` are these in a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from numpy.typing import ArrayLike

from sanderling.credit.protocol import LearnsValues
from sanderling.learn.config import LearnerConfig
from sanderling.types import Float32Array, Group, StepReport, Task, TrainingRow


class Learned(Protocol):
    """What one step did."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """At least `updates`, the optimiser updates that were made."""
        ...


class ValueModel(Protocol):
    """Says what a state is worth, and learns it from the estimator's targets. `valued` and `step` run in a thread."""

    def warming_up(self, step: int) -> bool:
        """Return whether the policy has to wait in this step (counted from 1)."""
        ...

    def valued(self, groups: Sequence[Group]) -> list[Group]:
        """Return the groups with values at all graded members."""
        ...

    def step(self, groups: Sequence[Group], estimator: LearnsValues) -> Mapping[str, float]:
        """Bring the values nearer to what the estimator's targets say; return what happened, by declared name."""
        ...


class Trainer(Protocol):
    """Turns rows into new weights. `step` and `logprobs` run in a thread."""

    config: LearnerConfig
    policy_version: int

    @property
    def critic(self) -> ValueModel | None:
        """None: credit is given without values."""
        ...

    def step(self, rows: Sequence[TrainingRow]) -> Learned:
        """Make the updates of one step.

        Raises:
            LearnerError: an update can't be made.
        """
        ...

    def logprobs(self, rows: Sequence[TrainingRow]) -> Sequence[Float32Array]:
        """Return the log-probabilities of each row's trained tokens under the current weights, (L,), 0 off the mask."""
        ...

    def weights(self) -> Mapping[str, Any]:
        """Return the current weights by name, for the engine."""
        ...


class Records(Protocol):
    """Keeps what a step leaves behind."""

    def append_metrics(self, report: StepReport) -> None: ...

    def append_event(self, kind: str, **fields: Any) -> None: ...

    def write_rollouts(
        self,
        step: int,
        groups: Sequence[Group],
        *,
        tasks: Mapping[str, Task] | None = None,
        advantages: Mapping[str, ArrayLike] | None = None,
    ) -> object: ...
