"""One setting, simulated: what its steps take, how stale and how wasted its tokens are, and what they cost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from pydantic import ValidationError

from sanderling.batch.config import BatchConfig
from sanderling.credit.grpo import Grpo
from sanderling.engine.protocol import Engine
from sanderling.errors import ConfigError
from sanderling.learn.config import LearnerConfig
from sanderling.learn.loop import Hooks, Parts, train
from sanderling.rollout.config import RolloutConfig
from sanderling.rollout.lockstep import LockstepEngine
from sanderling.rollout.scheduler import Scheduler
from sanderling.screening.config import ScreeningConfig
from sanderling.screening.watch import Watch
from sanderling.simulation.config import PlanConfig
from sanderling.simulation.engine import SimulatedEngine
from sanderling.simulation.environment import ScriptedStream, simulated_stage
from sanderling.simulation.learner import KeptRecords, SimulatedLearner
from sanderling.simulation.processors import Machine
from sanderling.simulation.scripts import Workload
from sanderling.simulation.virtual_time import running_loop, simulate
from sanderling.simulation.world import World
from sanderling.types import StepReport

EPISODE_TIMES = ("episodes_sandbox_s", "episodes_sample_s", "episodes_tools_s", "episodes_grade_s")
"""Seconds that the episodes of a step spent, all together, as a run reports them."""

_STORED_IDS = 2e5  # of the episodes of a step, or `_IDS_EACH` for each of them; more cost memory and tell nothing new
_IDS_EACH = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Means over the measured steps, unless the name says otherwise; seconds are of simulated time.

    `learner_idle_share`: of a step, until its episodes are there. `engine_idle_share`: of the time, with no sequence to
    decode. `engine_fill`: sequences decoded at once, of the slots. `discarded_share`: of sampled tokens, in attempts that
    failed through no fault of the policy; the staleness bound discards none. `dead_share`: of graded episodes, in groups
    without a difference. `episodes_*_s` are sums over the episodes of a step, as a run's metrics.jsonl has them.
    """

    max_staleness: int
    schedule: str
    step_s: float
    rollout_s: float
    train_s: float
    push_s: float
    learner_idle_share: float
    engine_idle_share: float
    engine_fill: float
    environments_most: int
    environments_mean: float
    staleness_mean: float
    staleness_max: float
    discarded_share: float
    dead_share: float
    retried: float
    episodes_per_s: float
    sampled_tokens: float
    trained_tokens: float
    tokens_per_s: float
    cost: float
    cost_per_million_trained_tokens: float
    episodes_sandbox_s: float
    episodes_sample_s: float
    episodes_tools_s: float
    episodes_grade_s: float
    step_seconds: tuple[float, ...]  # of each measured step
    simulated_s: float  # in all, the warm-up included
    wall_s: float  # what the simulation itself took

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    """What had added up at some moment."""

    at_s: float
    engine_busy_s: float
    sequence_s: float
    sandbox_s: float


def predict(
    config: PlanConfig, workload: Workload, max_staleness: int, *, batch: BatchConfig | None = None, ends: bool = False
) -> Prediction:
    """Simulate `warmup` + `steps` steps under a staleness bound.

    Args:
        config: the machines and the schedule; its workload section has been made into `workload`.
        workload: what each episode does.
        max_staleness: takes the place of the one in `config.rollout`.
        batch: as of the run; None: the default.
        ends: as in a run of so many steps: no episode is started that these steps don't train.

    Raises:
        ConfigError: the schedule can't have this bound.
        MeasurementError: not one episode of a step could be graded.
    """
    began = time.perf_counter()
    try:
        rollout = RolloutConfig.model_validate(config.rollout.model_dump() | {"max_staleness": max_staleness})
    except ValidationError as error:
        raise ConfigError(f"staleness {max_staleness}: {error.errors()[0]['msg']}") from None
    config = config.model_copy(update={"rollout": rollout})
    simulation = Simulation(config, workload, KeptRecords(config.learner))
    simulate(simulation.run(batch or BatchConfig(), ends=ends))
    return replace(simulation.prediction(), wall_s=round(time.perf_counter() - began, 2))


class Simulation:
    """One simulated run and its accounts."""

    def __init__(self, config: PlanConfig, workload: Workload, records: KeptRecords) -> None:
        self.config = config
        rollout = config.rollout
        episodes = rollout.groups_per_step * rollout.group_size
        engine = config.engine
        self.world = World(
            workload=workload,
            machine=Machine(
                cores=config.machine.cores,
                placement=config.machine.placement,
                slots=engine.slots * engine.replicas,
                tokens_per_s=lambda n: 1.0 / max(1e-9, engine.step_s + engine.token_s * n / engine.replicas),
            ),
            tokens_per_id=max(1.0, workload.episode_tokens() * episodes / max(_STORED_IDS, _IDS_EACH * episodes)),
            # In lockstep each turn waits for all others, so none can be put together with the next one.
            rounds=None if rollout.lockstep else config.rounds,
        )
        self.records = records
        self.marks: list[_Mark] = []  # at the start and after each step

    async def run(self, batch: BatchConfig, *, ends: bool) -> None:
        config, rollout = self.config, self.config.rollout
        engine: Engine = SimulatedEngine(self.world, config.engine)
        if rollout.lockstep:
            engine = LockstepEngine(engine)
        stage = simulated_stage(self.world, engine, config.workload.episode_s)
        last = config.warmup + config.steps
        stream = ScriptedStream(stage.environment, seed=config.seed)
        parts = Parts(
            scheduler=Scheduler(stream, stage, rollout, end=last * rollout.groups_per_step if ends else None),
            estimator=Grpo(),
            learner=SimulatedLearner(self.world, config.learner, LearnerConfig(batch=batch)),
            engine=engine,
            folder=self.records,
            seed=config.seed,
            shuffle_rewards=False,
            watch=Watch(ScreeningConfig()),
            tolerance=0.0,
            worst=1.0,
        )
        self._mark()
        await train(parts, Hooks(commit=self._commit, after_step=self._after_step), first=1, last=last)

    def prediction(self) -> Prediction:
        """Return what the measured steps show."""
        config, skip = self.config, self.config.warmup
        reports, sampled = self.records.reports[skip:], self.records.sampled[skip:]
        first, last = self.marks[skip], self.marks[-1]
        passed, steps, ids = max(last.at_s - first.at_s, 1e-9), len(reports), self.world.tokens_per_id
        times = {name: _mean(reports, name) for name in ("step_s", "rollout_s", "train_s", "push_s")}
        per_step = passed / steps  # unlike step_s, with what follows a step
        trained = sum(report.metrics["tokens_trained"] for report in reports) * ids / steps
        everything = sum(each.all for each in sampled)
        cost = per_step / 3600 * config.price.per_hour
        slots = config.engine.slots * config.engine.replicas
        return Prediction(
            max_staleness=config.rollout.max_staleness,
            schedule="lockstep" if config.rollout.lockstep else "continuous",
            step_s=times["step_s"],
            step_seconds=tuple(round(report.timing["step_s"], 3) for report in reports),
            rollout_s=times["rollout_s"],
            train_s=times["train_s"],
            push_s=times["push_s"],
            learner_idle_share=times["rollout_s"] / times["step_s"],
            engine_idle_share=1 - (last.engine_busy_s - first.engine_busy_s) / passed,
            engine_fill=(last.sequence_s - first.sequence_s) / passed / slots,
            environments_most=self.world.most_sandboxes,
            environments_mean=(last.sandbox_s - first.sandbox_s) / passed,
            staleness_mean=_mean_metric(reports, "staleness_mean"),
            staleness_max=max((report.metrics.get("staleness_max", 0.0) for report in reports), default=0.0),
            discarded_share=sum(each.lost for each in sampled) / max(1, everything),
            dead_share=_dead_share(reports),
            retried=sum(report.counts["retried"] for report in reports) / steps,
            episodes_per_s=sum(each.episodes for each in sampled) / passed,
            sampled_tokens=everything * ids / steps,
            trained_tokens=trained,
            tokens_per_s=everything * ids / passed,
            cost=cost,
            cost_per_million_trained_tokens=cost / trained * 1e6 if trained else 0.0,
            **{name: _mean(reports, name) for name in EPISODE_TIMES},
            simulated_s=last.at_s,
            wall_s=0.0,
        )

    def _commit(self, report: StepReport) -> None:
        running_loop().spend(self.config.learner.commit_s)

    async def _after_step(self, report: StepReport) -> None:
        self._mark()

    def _mark(self) -> None:
        engine = self.world.machine.engine
        engine.settle()
        self.world.count_sandboxes(0)
        self.marks.append(
            _Mark(
                at_s=running_loop().time(),
                engine_busy_s=engine.busy_s,
                sequence_s=engine.job_s,
                sandbox_s=self.world.sandbox_s,
            )
        )


def _mean(reports: Sequence[StepReport], name: str) -> float:
    return float(np.mean([report.timing[name] for report in reports]))


def _mean_metric(reports: Sequence[StepReport], name: str) -> float:
    """Return the mean over the steps that have it: one without a trained token has no staleness."""
    found = [report.metrics[name] for report in reports if name in report.metrics]
    return float(np.mean(found)) if found else 0.0


def _dead_share(reports: Sequence[StepReport]) -> float:
    dead = sum(report.counts.get("dropped_zero_advantage", 0) for report in reports)
    return dead / max(1, dead + sum(report.counts["trained"] for report in reports))
