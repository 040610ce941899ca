"""The main job: evaluate, train, evaluate again, and leave a run folder with everything in it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from sanderling.assemble import Policy, limits_within, load_environment, load_policy_folder, open_stage
from sanderling.compute import make_learner, set_threads
from sanderling.config import Config
from sanderling.engine.agreement import OnMismatch
from sanderling.environment import Environment
from sanderling.errors import CheckpointError, RunStopped, SanderlingError
from sanderling.jobs.announcement import announcement, coarsest_dtype
from sanderling.jobs.certificates import certificate_facts, check_isolation, require_certificate
from sanderling.jobs.evaluation import draw_of
from sanderling.jobs.quarantine import Quarantines
from sanderling.jobs.resuming import close_log, open_ledger, prune_log, totals_of
from sanderling.jobs.settings import check_credit, check_settings, config_hash, open_run
from sanderling.jobs.spending import Accounts
from sanderling.jobs.state_credit import StateWatch, check_fork_settings
from sanderling.learn.evaluation import Evaluation, choose_tasks, evaluate
from sanderling.report.terminal import Progress, ProgressStyle
from sanderling.rollout.checks import check_one_row
from sanderling.rollout.episode import Stage
from sanderling.rollout.forking import check_forkable
from sanderling.rollout.ledger import Ledger
from sanderling.rollout.scheduler import Scheduler
from sanderling.rollout.task_stream import TaskStream
from sanderling.sandbox.journal import default_state_dir
from sanderling.screening.watch import Watch
from sanderling.store.run_folder import RunFolder
from sanderling.types import Limits, StepReport, Task

if TYPE_CHECKING:
    from sanderling.learn.loop import Parts

TOLERANCE = {"float32": 1e-4, "bfloat16": 5e-2}
"""Largest |sampler - trainer| log-probability in nats on average, where either of them computes in that dtype."""

WORST = {"float32": 1.0, "bfloat16": 10.0}
"""How much larger than that it may be on one token: bfloat16 is far off on unlikely tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """What a finished run says of itself."""

    run: Path
    wall_s: float
    steps: int
    eval_before: Mapping[str, float | int]
    eval_after: Mapping[str, float | int]
    counts: Mapping[str, int]

    def as_json(self) -> dict[str, Any]:
        return {
            "run": str(self.run),
            "wall_s": round(self.wall_s, 1),
            "steps": self.steps,
            "eval_before": dict(self.eval_before),
            "eval_after": dict(self.eval_after),
            "counts": dict(self.counts),
        }


@dataclass(slots=True)
class _Training:
    """The state of one `train` call, shared by its phases."""

    config: Config
    folder: RunFolder
    progress: Progress
    environment: Environment
    policy: Policy
    stage: Stage
    tasks: list[Task]
    watch: Watch
    started: float = field(default_factory=time.monotonic)
    saved_step: int = -1
    ledger: Ledger = field(default_factory=Ledger)
    accounts: Accounts | None = None  # of what was spent, where there is a budget

    @property
    def quarantines(self) -> Quarantines:
        return Quarantines(self.config, self.environment, self.stage.backend, self.folder, self.progress)

    def spent(self, step: int) -> bool:
        """Return whether the turn budget was spent with this step."""
        if self.config.turn_budget is None:
            return False
        self.accounts = self.accounts or Accounts(run=self.folder.reader())
        return self.accounts.up_to(step).turns >= self.config.turn_budget


async def train(config: Config, run: Path | None, *, resume: bool, stream: TextIO, style: ProgressStyle) -> TrainResult:
    """Evaluate, train, evaluate again, and leave a run folder with everything in it.

    Cancellation (Ctrl-C) saves a checkpoint of the last finished step first.
    """
    check_settings(config, run, resume=resume)
    environment = load_environment(config.environment, config.verifier, config.harness, config.environment_settings)
    policy = load_policy_folder(config.policy)
    limits, measured = (
        limits_within(policy.window, config.limits, environment, split)
        for split in (config.split, config.evaluation.split)
    )
    tasks = choose_tasks(
        environment, config.evaluation.split, config.evaluation.tasks, config.evaluation.seed, measured
    )
    watch = Watch(config.screening)
    stream_of_tasks = TaskStream(
        environment,
        config.split,
        seed=config.seed,
        limits=limits,
        order=config.rollout.task_order,
        set_aside=watch.quarantined.keys(),
    )
    estimator = check_credit(config, environment)
    check_fork_settings(config, estimator)
    standing = await asyncio.to_thread(require_certificate, config, environment)
    if config.loss.needs_sequences:
        check_one_row(
            environment.harness.codec(policy.tokenizer), policy.tokenizer, environment.harness.prompt(tasks[0])
        )
    async with open_stage(config, environment, policy, config.rollout) as stage:
        check_isolation(standing, stage.capabilities.isolation)
        if config.rollout.forks.continuations:
            await check_forkable(stage, stream_of_tasks.task(0))
        with (
            open_run(config, run, resume=resume, certificate=certificate_facts(standing)) as folder,
            Progress(stream, total_steps=config.steps, title=config.name, style=style) as progress,
        ):
            job = _Training(config, folder, progress, environment, policy, stage, tasks, watch)
            try:
                return await _train(job, stream_of_tasks, estimator)
            except BaseException as error:
                with suppress(SanderlingError):
                    folder.append_event(_ending(error), error=f"{type(error).__name__}: {error}"[:2000])
                raise
            finally:
                close_log(job.ledger)


async def _train(job: _Training, stream: TaskStream, estimator: Any) -> TrainResult:
    set_threads(job.config)
    with closing(make_learner(job.config, job.policy.folder)) as learner:
        return await _train_with(learner, job, stream, estimator)


async def _train_with(learner: Any, job: _Training, stream: TaskStream, estimator: Any) -> TrainResult:
    from sanderling.learn.loop import Parts

    config = job.config
    done = await _restore(job, learner, stream)
    job.ledger = open_ledger(job.folder, config.rollout, done, learner.policy_version, job.stage.engine.fingerprint())
    per_step = config.rollout.groups_per_step
    end = config.steps * per_step
    scheduler = Scheduler(stream, job.stage, config.rollout, position=done * per_step, end=end, ledger=job.ledger)
    _announce(job, estimator, stream.limits)
    await _check_agreement(job, learner)
    before = _recorded(job.folder, "before", step=0) or await _evaluate(job, "before", step=done)
    if done and _evaluation_is_due(config, done) and not _recorded(job.folder, _label(done), step=done):
        await _evaluate(job, _label(done), step=done)
    parts = Parts(
        scheduler=scheduler,
        estimator=estimator,
        learner=learner,
        engine=job.stage.engine,
        folder=job.folder,
        seed=config.seed,
        shuffle_rewards=config.control == "shuffled_rewards",
        tolerance=_tolerance(config),
        worst=WORST[coarsest_dtype(config)],
        watch=job.watch,
    )
    finished = await _run_steps(job, parts, done)
    after = await _evaluate(job, "after", step=finished)
    await _audit_quarantined(job)
    return await asyncio.to_thread(_finish, job, finished, before, after)


async def _run_steps(job: _Training, parts: Parts, done: int) -> int:
    """Run the steps after `done`, up to the last one or to the end of the budget; return the last one that was finished.

    Whatever ends it, the checkpoint of the last finished step is on disk.
    """
    from sanderling.learn.loop import Hooks, train

    config, stream, finished = job.config, parts.scheduler.stream, done
    states = StateWatch(config.credit.estimator, parts.estimator)

    def commit(report: StepReport) -> None:
        nonlocal finished
        finished = report.step
        if report.step % config.checkpoint.every == 0 or report.step == config.steps:
            _save(job, parts.learner, stream, report.step)

    async def after_step(report: StepReport) -> None:
        job.progress.step(report)
        if line := states.note(report, job.folder):
            job.progress.note(line)
        job.quarantines.tell(job.watch, report.step)
        job.watch.check()
        if await asyncio.to_thread(job.spent, report.step):
            raise _BudgetSpent
        if _evaluation_is_due(config, report.step):
            await _evaluate(job, _label(report.step), step=report.step)
            job.progress.phase("training")

    job.progress.phase("training")
    try:
        if not job.spent(done):
            await train(parts, Hooks(commit=commit, after_step=after_step), first=done + 1, last=config.steps)
    except _BudgetSpent:
        job.progress.note(f"the budget of {config.turn_budget} turns is spent after step {finished}")
        if finished > job.saved_step:
            _save(job, parts.learner, stream, finished)
    except (KeyboardInterrupt, asyncio.CancelledError, RunStopped) as error:
        if finished > job.saved_step:
            _save(job, parts.learner, stream, finished)
        if isinstance(error, RunStopped):
            await _audit_quarantined(job, further=job.watch.proven())
            try:
                await asyncio.to_thread(_report, job)
            except Exception as broken:  # the stop is what has to be told
                job.progress.note(f"no report could be written: {type(broken).__name__}: {broken}")
        raise
    return finished


async def _audit_quarantined(job: _Training, *, further: Sequence[str] = ()) -> None:
    """Audit the quarantined tasks. What breaks it off is told, and changes no run's end."""
    try:
        await job.quarantines.audit(job.watch, further=further)
    except Exception as error:
        job.progress.note(f"the audit of quarantined tasks broke off: {type(error).__name__}: {error}")


class _BudgetSpent(Exception):
    """Ends the loop after a step. It never leaves this module."""


def _ending(error: BaseException) -> str:
    """Return the kind of the event with which a run ends that isn't finished."""
    if isinstance(error, KeyboardInterrupt | asyncio.CancelledError):
        return "interrupted"
    return "stopped_itself" if isinstance(error, RunStopped) else "failed"


def _evaluation_is_due(config: Config, step: int) -> bool:
    every = config.evaluation.every
    return every > 0 and step % every == 0 and step < config.steps


def _label(step: int) -> str:
    return f"step={step:06d}"


def _tolerance(config: Config) -> float:
    """Return the gap of log-probabilities that is let pass: what rounding explains, or anything where that was asked for."""
    return math.inf if config.sampling.on_mismatch == "allow" else TOLERANCE[coarsest_dtype(config)]


async def _restore(job: _Training, learner: Any, stream: TaskStream) -> int:
    """Put the newest whole checkpoint into learner, engine and the order of tasks; return its step, 0 for a new run."""
    from sanderling.engine.weights import push
    from sanderling.learn.checkpoint import latest, load_checkpoint

    found = latest(job.folder.path)
    for skipped in found.skipped:
        job.progress.note(f"checkpoint {skipped.folder.name} is skipped: {skipped.reason}")
    if found.folder is None:
        if job.folder.resumed:
            job.folder.truncate_after(0)
        job.watch.load(None)
        return 0
    state = load_checkpoint(found.folder, learner, config_hash(job.config))
    ended = state.step >= job.config.steps or job.spent(state.step)
    if ended and _recorded(job.folder, "after", step=state.step):
        raise CheckpointError(f"{job.folder.path} is finished: {state.step} of {job.config.steps} steps are done")
    job.folder.truncate_after(state.step)
    stream.restore(state.data_position)
    await push(job.stage.engine, learner.weights(), learner.policy_version)
    job.saved_step = state.step
    job.quarantines.tell_readmitted(job.watch.load(state.screening))
    job.watch.check()
    job.progress.note(f"resumed after step {state.step} of {job.config.steps}")
    return state.step


def _save(job: _Training, learner: Any, stream: TaskStream, step: int) -> None:
    from sanderling.learn.checkpoint import RunState, save_checkpoint

    state = RunState(
        step=step,
        policy_version=learner.policy_version,
        config_hash=config_hash(job.config),
        data_position=stream.state(step * job.config.rollout.groups_per_step),
        screening=job.watch.state(),
    )
    save_checkpoint(job.folder.path, learner, state, model_folder=job.policy.folder, keep=job.config.checkpoint.keep)
    prune_log(job.folder, job.ledger)
    job.saved_step = step


def _announce(job: _Training, estimator: Any, practice: Limits) -> None:
    sandbox = job.stage.capabilities
    job.folder.append_event("sandbox", **asdict(sandbox), state_dir=str(default_state_dir()))
    job.folder.append_event("tasks", split=job.config.split, count=len(job.environment.tasks.ids(job.config.split)))
    job.progress.note(f"run {job.folder.path}")
    limits = practice, job.tasks[0].limits
    for line in announcement(job.config, job.environment, job.policy, limits, sandbox, estimator):
        job.progress.note(line)


async def _check_agreement(job: _Training, learner: Any) -> None:
    """Sample a few actions and score them with the trainer, before anything is learnt from such numbers."""
    from sanderling.learn.startup import check_startup

    found = await check_startup(
        job.stage,
        learner,
        job.tasks[:4],
        tolerance=TOLERANCE[coarsest_dtype(job.config)],
        worst=WORST[coarsest_dtype(job.config)],
        on_mismatch=OnMismatch(job.config.sampling.on_mismatch),
    )
    job.folder.append_event("agreement", verdict=found.verdict.value, max_abs=found.max_abs, tokens=found.n)
    job.progress.note(
        f"sampler and trainer: {found.verdict.value}, at most {found.max_abs:.1e} nats on {found.n} tokens"
    )


async def _evaluate(job: _Training, label: str, *, step: int) -> Mapping[str, float | int]:
    """Evaluate by sampling and, where asked for, greedily; store, record and show both. Returns the sampled one."""
    settings = job.config.evaluation
    job.progress.phase(f"evaluation {label}")
    began = time.monotonic()
    sampled = await evaluate(label, job.tasks, job.stage, job.config.rollout, draw=draw_of(settings))
    record = _keep(job, sampled, label, step)
    if settings.greedy:
        greedy_draw = replace(draw_of(settings), temperature=0.0, samples=1)
        greedy = await evaluate(f"{label}-greedy", job.tasks, job.stage, job.config.rollout, draw=greedy_draw)
        _keep(job, greedy, f"{label}-greedy", step)
    job.folder.append_event("evaluated", label=label, seconds=round(time.monotonic() - began, 1))
    return record


def _keep(job: _Training, evaluation: Evaluation, label: str, step: int) -> dict[str, float | int]:
    tasks = {task.id: task for task in job.tasks}
    job.folder.write_evaluation(label, evaluation.groups, step=step, tasks=tasks)
    record = evaluation.as_json()
    job.folder.append_event("evaluation", label=label, step=step, retried=evaluation.retried, **record)
    low, high = evaluation.interval
    job.progress.evaluation(label, solved=evaluation.solved, tasks=evaluation.n, low=low, high=high)
    return record


def _recorded(folder: RunFolder, label: str, *, step: int) -> dict[str, float | int] | None:
    """Return the newest record of an evaluation of this run taken after `step`, or None."""
    for event in reversed(folder.reader().events()):
        if (event.get("kind"), event.get("label"), event.get("step")) == ("evaluation", label, step):
            return {key: event[key] for key in ("solve_rate", "n", "low", "high", "ungraded")}
    return None


def _finish(job: _Training, steps: int, before: Mapping[str, Any], after: Mapping[str, Any]) -> TrainResult:
    result = TrainResult(
        run=job.folder.path,
        wall_s=time.monotonic() - job.started,
        steps=steps,
        eval_before=before,
        eval_after=after,
        counts=totals_of(job.folder.reader().reports()),
    )
    job.folder.append_event("finished", **result.as_json())
    _report(job)
    return result


def _report(job: _Training) -> None:
    from sanderling.report.html import write_report

    job.progress.note(f"report {write_report(job.folder.reader())}")
