"""One function per verb: train, evaluate, roll out. They connect parts and folders; the work is done below."""

from __future__ import annotations

import asyncio
import hashlib
import json
import platform
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

from sanderling import __version__
from sanderling.assemble import Policy, load_environment, load_policy_folder, make_model, open_stage, threads
from sanderling.config import Config, EvaluationConfig, load_config
from sanderling.credit.catalogue import load_estimator
from sanderling.engine.agreement import OnMismatch
from sanderling.environment import Environment
from sanderling.errors import CheckpointError, ConfigError, RunFolderError, SanderlingError
from sanderling.learn.evaluation import Draw, Evaluation, choose_tasks, evaluate
from sanderling.report.terminal import Progress, ProgressStyle
from sanderling.rollout.episode import Stage
from sanderling.rollout.scheduler import Scheduler, TaskStream
from sanderling.store.run_folder import RunFolder
from sanderling.types import StepReport, Task

TOLERANCE = {"float32": 1e-4, "bfloat16": 5e-2}
"""Largest |sampler - trainer| log-probability in nats, by dtype of the weights."""


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


def configuration_of(config: Config, run: Path | None, *, resume: bool) -> Config:
    """Return the configuration that holds: the given one, or that of the run which is continued. Writes nothing.

    Raises:
        RunFolderError: the folder holds a run already, or there is none to resume.
        ConfigError: the configuration of the run can't be read.
    """
    exists = run is not None and (run / "config.toml").is_file()
    if resume and not exists:
        raise RunFolderError(
            f"nothing to resume: no run at {run}; --resume needs --run with the folder of an existing run"
        )
    if exists and not resume:
        raise RunFolderError(f"{run} holds a run already; add --resume to continue it, or give another folder")
    return load_config([run / "config.toml"]) if resume and run is not None else config


def open_run(config: Config, run: Path | None, *, resume: bool) -> RunFolder:
    """Open the run folder, new or to be continued.

    Raises:
        RunFolderError: the folder can't be used.
    """
    facts = {
        "environment": config.environment,
        "verifier": config.verifier or "of the environment",
        "sanderling": __version__,
        "python": platform.python_version(),
        "machine": platform.platform(),
        "threads": threads(config),
    }
    if run is None:
        return RunFolder.create(Path("runs"), config.name, config.to_toml(), facts)
    return RunFolder.at(run) if resume else RunFolder.at(run, config.to_toml(), facts)


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
    started: float = field(default_factory=time.monotonic)
    totals: dict[str, int] = field(default_factory=dict)
    saved_step: int = -1


async def train(config: Config, run: Path | None, *, resume: bool, stream: TextIO, style: ProgressStyle) -> TrainResult:
    """Evaluate, train, evaluate again, and leave a run folder with everything in it.

    Cancellation (Ctrl-C) saves a checkpoint of the last finished step first.
    """
    given, config = config, configuration_of(config, run, resume=resume)
    environment = load_environment(config.environment, config.verifier)
    policy = load_policy_folder(config.policy)
    tasks = choose_tasks(
        environment, config.evaluation.split, config.evaluation.tasks, config.evaluation.seed, config.limits
    )
    stream_of_tasks = TaskStream(environment=environment, split=config.split, seed=config.seed, overrides=config.limits)
    stream_of_tasks.task(0)  # an empty or misnamed split is found before anything starts
    estimator = load_estimator(config.credit.estimator, config.credit.settings)
    async with open_stage(config, environment, policy, config.rollout) as stage:
        with (
            open_run(config, run, resume=resume) as folder,
            Progress(stream, total_steps=config.steps, title=config.name, style=style) as progress,
        ):
            if unused := unused_settings(given, config):
                progress.note(f"settings of the run hold; not used now: {', '.join(unused)}")
            job = _Training(config, folder, progress, environment, policy, stage, tasks)
            try:
                return await _train(job, stream_of_tasks, estimator)
            except BaseException as error:
                with suppress(SanderlingError):
                    kind = "interrupted" if isinstance(error, KeyboardInterrupt | asyncio.CancelledError) else "failed"
                    folder.append_event(kind, error=f"{type(error).__name__}: {error}"[:2000])
                raise


def unused_settings(given: Config, used: Config) -> list[str]:
    """Return the dotted names of settings that somebody gave (they aren't the default) and that don't hold."""
    default, wanted, held = (_flat(config.model_dump(mode="json")) for config in (Config(), given, used))
    return sorted(key for key, value in wanted.items() if value != held.get(key) and value != default.get(key))


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in settings.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


async def _train(job: _Training, stream: TaskStream, estimator: Any) -> TrainResult:
    from sanderling.learn.config import LearnerConfig
    from sanderling.learn.learner import Learner
    from sanderling.learn.loop import Hooks, Parts
    from sanderling.learn.loop import train as run_steps

    config = job.config
    _set_threads(config)
    settings = LearnerConfig(
        optimizer=config.optimizer, loss=config.loss, batch=config.batch, temperature=config.sampling.temperature
    )
    learner = Learner(make_model(config, job.policy.folder), settings)
    done = await _restore(job, learner)
    scheduler = Scheduler(stream, job.stage, config.rollout, position=done * config.rollout.groups_per_step)
    _announce(job)
    await _check_agreement(job, learner)
    before = _recorded(job.folder, "before") if done else None
    before = before or await _evaluate(job, "before", step=done)
    parts = Parts(
        scheduler=scheduler,
        estimator=estimator,
        learner=learner,
        engine=job.stage.engine,
        folder=job.folder,
        seed=config.seed,
        shuffle_rewards=config.control == "shuffled_rewards",
        tolerance=TOLERANCE.get(config.engine.dtype, TOLERANCE["float32"]),
    )
    finished = done

    async def after_step(report: StepReport) -> Mapping[str, float]:
        nonlocal finished
        finished = report.step
        for name, value in report.counts.items():
            job.totals[name] = value if name == "running" else job.totals.get(name, 0) + value
        job.progress.step(report)
        if report.step % config.checkpoint.every == 0 or report.step == config.steps:
            _save(job, learner, report.step)
        every = config.evaluation.every
        if every and report.step % every == 0 and report.step < config.steps:
            return await _evaluation_metrics(job, report.step)
        return {}

    job.progress.phase("training")
    try:
        await run_steps(parts, Hooks(after_step=after_step), first=done + 1, last=config.steps)
    except (KeyboardInterrupt, asyncio.CancelledError):
        if finished > job.saved_step:
            _save(job, learner, finished)
        raise
    after = await _evaluate(job, "after", step=config.steps)
    return _finish(job, before, after)


def _set_threads(config: Config) -> None:
    import torch

    torch.set_num_threads(threads(config))
    torch.manual_seed(config.seed)


async def _restore(job: _Training, learner: Any) -> int:
    """Put the newest whole checkpoint into learner and engine; return its step, 0 for a new run."""
    from sanderling.engine.weights import push
    from sanderling.learn.checkpoint import latest, load_checkpoint

    found = latest(job.folder.path)
    for skipped in found.skipped:
        job.progress.note(f"checkpoint {skipped.folder.name} is skipped: {skipped.reason}")
    if found.folder is None:
        if job.folder.resumed:
            job.folder.truncate_after(0)
        return 0
    state = load_checkpoint(found.folder, learner, _config_hash(job.config))
    if state.step >= job.config.steps and _recorded(job.folder, "after"):
        raise CheckpointError(f"{job.folder.path} is finished: {state.step} of {job.config.steps} steps are done")
    job.folder.truncate_after(state.step)
    await push(job.stage.engine, learner.weights(), learner.policy_version)
    job.saved_step = state.step
    job.progress.note(f"resumed after step {state.step} of {job.config.steps}")
    return state.step


def _save(job: _Training, learner: Any, step: int) -> None:
    from sanderling.learn.checkpoint import RunState, save_checkpoint

    state = RunState(
        step=step,
        policy_version=learner.policy_version,
        config_hash=_config_hash(job.config),
        data_position=step * job.config.rollout.groups_per_step,
    )
    save_checkpoint(job.folder.path, learner, state, model_folder=job.policy.folder, keep=job.config.checkpoint.keep)
    job.saved_step = step


def _config_hash(config: Config) -> str:
    """Return a digest of the settings that decide what is learnt; a resumed run may change the others."""
    kept = config.model_dump(mode="json", exclude={"name", "steps", "evaluation", "checkpoint"})
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


def _announce(job: _Training) -> None:
    config, limits, sandbox = job.config, job.tasks[0].limits, job.stage.capabilities
    job.folder.append_event("sandbox", **asdict(sandbox))
    job.progress.note(f"run {job.folder.path}")
    judge = f", judged by {config.verifier}" if config.verifier else ""
    job.progress.note(
        f"environment {job.environment.name} {job.environment.version}{judge}, policy {config.policy}, sandbox "
        f"{config.sandbox.backend} (isolation {sandbox.isolation}), seed {config.seed}"
    )
    job.progress.note(
        f"{config.steps} steps of {config.rollout.groups_per_step} tasks x {config.rollout.group_size} episodes, credit "
        f"{config.credit.estimator}, staleness at most {config.rollout.max_staleness}, at most {limits.max_turns} turns and "
        f"{limits.max_context_tokens} tokens; an episode cut by a limit gets reward "
        f"{'of the state left behind' if config.rollout.truncated_reward == 'grade' else '0'} and "
        f"{'is trained' if config.rollout.truncated_gradient == 'train' else 'is not trained'}"
    )
    for risk in sandbox.open_risks:
        job.progress.note(f"open in this sandbox mode: {risk}")
    if config.control != "none":
        job.progress.note(f"negative control: {config.control}; nothing should be learnt")


async def _check_agreement(job: _Training, learner: Any) -> None:
    """Sample a few actions and score them with the trainer, before anything is learnt from such numbers."""
    from sanderling.learn.startup import check_startup

    found = await check_startup(
        job.stage,
        learner,
        job.tasks[:4],
        tolerance=TOLERANCE.get(job.config.engine.dtype, TOLERANCE["float32"]),
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
    sampled = await evaluate(label, job.tasks, job.stage, job.config.rollout, draw=_draw(settings))
    record = _keep(job, sampled, label, step)
    if settings.greedy:
        greedy_draw = replace(_draw(settings), temperature=0.0, samples=1)
        greedy = await evaluate(f"{label}-greedy", job.tasks, job.stage, job.config.rollout, draw=greedy_draw)
        _keep(job, greedy, f"{label}-greedy", step)
    job.folder.append_event("evaluated", label=label, seconds=round(time.monotonic() - began, 1))
    return record


async def _evaluation_metrics(job: _Training, step: int) -> dict[str, float]:
    began = time.monotonic()
    record = await _evaluate(job, f"step={step:06d}", step=step)
    return {
        "eval_solve_rate": float(record["solve_rate"]),
        "eval_solve_rate_low": float(record["low"]),
        "eval_solve_rate_high": float(record["high"]),
        "eval_tasks": float(record["n"]),
        "eval_seconds": time.monotonic() - began,
    }


def _draw(settings: EvaluationConfig) -> Draw:
    return Draw(samples=settings.samples, seed=settings.seed, concurrency=settings.concurrency)


def _keep(job: _Training, evaluation: Evaluation, label: str, step: int) -> dict[str, float | int]:
    tasks = {task.id: task for task in job.tasks}
    job.folder.write_evaluation(label, evaluation.groups, step=step, tasks=tasks)
    record = evaluation.as_json()
    job.folder.append_event("evaluation", label=label, step=step, ungraded=evaluation.ungraded, **record)
    low, high = evaluation.interval
    job.progress.evaluation(label, solved=evaluation.solved, tasks=evaluation.n, low=low, high=high)
    return record


def _recorded(folder: RunFolder, label: str) -> dict[str, float | int] | None:
    """Return the newest record of an evaluation of this run, or None."""
    for event in reversed(folder.reader().events()):
        if event.get("kind") == "evaluation" and event.get("label") == label:
            return {key: event[key] for key in ("solve_rate", "n", "low", "high")}
    return None


def _finish(job: _Training, before: Mapping[str, Any], after: Mapping[str, Any]) -> TrainResult:
    from sanderling.report.html import write_report

    result = TrainResult(
        run=job.folder.path,
        wall_s=time.monotonic() - job.started,
        steps=job.config.steps,
        eval_before=before,
        eval_after=after,
        counts=job.totals,
    )
    job.folder.append_event("finished", **result.as_json())
    report = write_report(job.folder.reader())
    job.progress.note(f"report {report}")
    return result


async def evaluate_policy(config: Config, *, greedy: bool, samples: int, out: Path | None) -> Evaluation:
    """Evaluate a policy as it is. `config.evaluation` says on what; with `out` the episodes are stored there.

    Raises:
        ConfigError, ModelError, SandboxUnavailable: nothing was started.
    """
    environment = load_environment(config.environment, config.verifier)
    policy = load_policy_folder(config.policy)
    settings = config.evaluation
    tasks = choose_tasks(environment, settings.split, settings.tasks, settings.seed, config.limits)
    if greedy and samples > 1:
        raise ConfigError(f"samples = {samples} with greedy decoding: every sample would be the same; ask for one")
    _set_threads(config)
    draw = replace(_draw(settings), samples=samples, temperature=0.0 if greedy else 1.0)
    async with open_stage(config, environment, policy, config.rollout) as stage:
        result = await evaluate("greedy" if greedy else "sampled", tasks, stage, config.rollout, draw=draw)
    if out is not None:
        facts = {"environment": config.environment, "verifier": config.verifier or "of the environment"}
        with RunFolder.at(out, config.to_toml(), facts) as folder:
            folder.write_evaluation(result.label, result.groups, step=0, tasks={task.id: task for task in tasks})
    return result
