"""Measure a policy as it is."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from sanderling.assemble import limits_within, load_environment, load_policy_folder, open_stage
from sanderling.compute import set_threads
from sanderling.config import Config, EvaluationConfig
from sanderling.errors import ConfigError, RunFolderError
from sanderling.learn.evaluation import Draw, Evaluation, choose_tasks, evaluate
from sanderling.store.run_folder import RunFolder
from sanderling.verify.predictions import PredictionRecorder


class Decoding(StrEnum):
    """How an evaluation takes tokens."""

    SAMPLED = "sampled"  # at temperature 1
    GREEDY = "greedy"


async def evaluate_policy(
    config: Config, decoding: Decoding, out: Path | None, predictions: Path | None = None
) -> Evaluation:
    """Evaluate a policy as it is. `config.evaluation` says on what; with `out` the episodes are stored there.

    With `predictions` the submissions are written to that file as patches, one line per task that handed one in.

    Raises:
        ConfigError, ModelError, SandboxUnavailable, RunFolderError: nothing was started.
        MeasurementError: not one episode could be graded.
    """
    settings = config.evaluation
    if decoding is Decoding.GREEDY and settings.samples > 1:
        raise ConfigError(f"samples = {settings.samples} with greedy decoding: all would be the same; ask for one")
    if predictions is not None and settings.samples > 1:
        raise ConfigError(
            f"samples = {settings.samples} with a predictions file, which has one line per task; ask for one"
        )
    if out is not None and (out / "config.toml").exists():
        raise RunFolderError(f"{out} holds a run already; give a new folder for the episodes of this evaluation")
    environment = load_environment(config.environment, config.verifier, config.harness, config.environment_settings)
    recorder = PredictionRecorder(environment.verifier, config.policy)
    environment = environment if predictions is None else replace(environment, verifier=recorder)
    policy = load_policy_folder(config.policy)
    limits = limits_within(policy.window, config.limits, environment, settings.split)
    tasks = choose_tasks(environment, settings.split, settings.tasks, settings.seed, limits)
    set_threads(config)
    draw = draw_of(settings) if decoding is Decoding.SAMPLED else replace(draw_of(settings), temperature=0.0)
    with RunFolder.at(out, config.to_toml(), {}) if out is not None else nullcontext() as folder:
        async with open_stage(config, environment, policy, config.rollout) as stage:
            result = await evaluate(decoding.value, tasks, stage, config.rollout, draw=draw)
        if folder is not None:
            folder.write_evaluation(result.label, result.groups, step=0, tasks={task.id: task for task in tasks})
    if predictions is not None:
        recorder.write(predictions)
    return result


def draw_of(settings: EvaluationConfig) -> Draw:
    """Return how an evaluation with these settings draws its actions, at temperature 1."""
    return Draw(samples=settings.samples, seed=settings.seed, concurrency=settings.concurrency)
