"""How good is the policy? Episodes on tasks that are never trained on, with an interval for every rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from sanderling.engine.protocol import SamplingParams
from sanderling.environment import Environment
from sanderling.errors import ConfigError
from sanderling.learn.measure import require_graded, solve_counts, with_dropped
from sanderling.rollout.config import LimitOverrides, RolloutConfig
from sanderling.rollout.episode import Stage
from sanderling.rollout.scheduler import run_evaluation
from sanderling.rollout.seeds import derive
from sanderling.rollout.task_stream import with_limits
from sanderling.store.estimators import pass_at_k, wilson
from sanderling.types import Group, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The outcome of one evaluation.

    `n` counts graded episodes and is at least 1; `ungraded` those lost through our fault after all retries, `retried` the
    attempts that a retry made good (stored with their group).
    """

    label: str
    solved: int
    n: int
    ungraded: int
    retried: int
    groups: tuple[Group, ...]

    @property
    def solve_rate(self) -> float:
        return self.solved / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """95 % Wilson interval of the solve rate. Several samples of a task are not independent: then it is too narrow."""
        return wilson(self.solved, self.n)

    def pass_at(self, k: int) -> float | None:
        """Return pass@k (arXiv 2107.03374, eq. 1), the mean over tasks with at least k graded samples; None without any."""
        counts = [solve_counts([group]) for group in self.groups]
        values = [pass_at_k(n, solved, k) for solved, n in counts if n >= k]
        return sum(values) / len(values) if values else None

    def as_json(self) -> dict[str, float | int]:
        low, high = self.interval
        return {"solve_rate": self.solve_rate, "n": self.n, "low": low, "high": high, "ungraded": self.ungraded}


def choose_tasks(environment: Environment, split: str, count: int, seed: int, overrides: LimitOverrides) -> list[Task]:
    """Draw `count` tasks of a split without repetition, the same ones for the same seed.

    Raises:
        ConfigError: the split holds fewer tasks.
    """
    ids = list(environment.tasks.ids(split))
    if len(ids) < count:
        raise ConfigError(
            f"{count} tasks were asked for, split {split!r} of {environment.name!r} has {len(ids)}; ask for at most that many"
        )
    chosen = sorted(Random(derive(seed, "evaluation tasks")).sample(range(len(ids)), count))
    return [with_limits(environment.tasks.get(ids[index]), overrides) for index in chosen]


async def evaluate(label: str, tasks: Sequence[Task], stage: Stage, config: RolloutConfig, *, draw: Draw) -> Evaluation:
    """Run the tasks and count. Nothing is trained; the engine's weights stay as they are.

    Raises:
        MeasurementError: not one episode could be graded.
    """
    sampling = SamplingParams(temperature=draw.temperature, top_p=draw.top_p)
    groups, dropped = await run_evaluation(
        tasks,
        draw.samples,
        replace(stage, sampling=sampling),
        config.for_evaluation(),
        seed=draw.seed,
        concurrency=draw.concurrency,
    )
    require_graded(groups, f"evaluation {label!r}")
    solved, n = solve_counts(groups)
    everyone = sum(len(group.roots()) for group in groups)
    retried = sum(member.trajectory.parent_id is None for member in dropped)
    stored = tuple(with_dropped(groups, dropped))
    return Evaluation(label=label, solved=solved, n=n, ungraded=everyone - n, retried=retried, groups=stored)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """How the actions of an evaluation are drawn."""

    samples: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0
    concurrency: int = 128
