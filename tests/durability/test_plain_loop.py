"""Synchronous training through the scheduler is a plain loop, to the bit; a push that does nothing stops the run at once."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from sanderling import jobs
from sanderling.assemble import load_environment, load_policy_folder, open_stage
from sanderling.batch.rows import assign_credit, training_rows
from sanderling.compute import make_model, make_torch_engine
from sanderling.config import Config, load_config
from sanderling.credit.catalogue import load_estimator
from sanderling.engine.weights import push
from sanderling.errors import MeasurementError, WeightPushError
from sanderling.jobs.run_checks import check_run
from sanderling.learn.config import LearnerConfig
from sanderling.learn.learner import Learner
from sanderling.report.terminal import ProgressStyle
from sanderling.rollout.episode import Plan
from sanderling.rollout.ledger import Ledger
from sanderling.rollout.scheduler import start_group
from sanderling.rollout.seeds import derive
from sanderling.rollout.task_stream import TaskStream
from sanderling.store.reader import RunReader
from sanderling.testing.records import difference
from sanderling.testing.tiny_model import tiny_llama_folder
from sanderling.types import Group

STEPS = 5


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Config:
    settings = {
        "environment": "sanderling.testing.letters:letter_environment",
        "sandbox.backend": "sanderling.testing.environments:memory_backend",
        "policy": str(tiny_llama_folder(tmp_path_factory.mktemp("policy") / "tiny")),
        "engine.threads": 1,
        "seed": 3,
        "steps": STEPS,
        "evaluation.tasks": 4,
        "rollout.groups_per_step": 4,
        "rollout.group_size": 16,
        "optimizer.learning_rate": 3e-3,
        "trust.certificate": "none",
    }
    return load_config([], settings)


def train(config: Config, run: Path, *, resume: bool = False) -> None:
    asyncio.run(jobs.train(config, run, resume=resume, stream=io.StringIO(), style=ProgressStyle.PLAIN))


def with_engine(config: Config, name: str) -> Config:
    engine = config.engine.model_copy(update={"name": f"{__file__}:{name}"})
    return config.model_copy(update={"engine": engine})


async def plainly(config: Config) -> tuple[list[list[Group]], Learner]:
    """Sample, score, update, push; nothing else."""
    environment, policy = load_environment(config.environment), load_policy_folder(config.policy)
    estimator, rollout = load_estimator(config.credit.estimator, {}), config.rollout
    stream = TaskStream(environment, "train", seed=config.seed)
    settings = LearnerConfig(optimizer=config.optimizer, loss=config.loss, batch=config.batch)
    learner = Learner(make_model(config, policy.folder, dtype="float32"), settings)
    steps = []
    async with open_stage(config, environment, policy, rollout) as stage:
        for step in range(STEPS):
            numbers = range(step * rollout.groups_per_step, (step + 1) * rollout.groups_per_step)
            running = []
            for number in numbers:
                seed = derive(config.seed, "group", number)
                plan = Plan(task=stream.task(number), group_id=f"train-{number:07d}", index=0, attempt=0, seed=seed)
                running.append(start_group(plan, rollout.group_size, stage, rollout, Ledger(), lambda member: None))
            groups = [await group for group in running]
            steps.append(groups)
            credit = assign_credit(groups, estimator)
            learner.step(training_rows(groups, credit, config.batch))
            await push(stage.engine, learner.weights(), learner.policy_version)
    return steps, learner


@pytest.mark.slow
def test_synchronous_training_is_a_plain_loop_to_the_bit(config, tmp_path):
    train(config, tmp_path / "run")
    steps, learner = asyncio.run(plainly(config))
    reader = RunReader(tmp_path / "run")
    for number, groups in enumerate(steps, 1):
        stored = {m.trajectory.id: m.trajectory for m in reader.rollouts(number).members()}
        for member in (member for group in groups for member in group.members):
            twin = stored[member.trajectory.id]
            assert [
                difference(a.action, b.action) for a, b in zip(twin.turns, member.trajectory.turns, strict=True)
            ] == [None] * len(twin.turns)
    assert learner.policy_version == reader.reports()[-1].policy_version > 0
    saved = load_file(tmp_path / "run" / "checkpoints" / f"{STEPS:06d}" / "model.safetensors")
    own = learner.model.state_dict()
    assert all((own[name].numpy() == weights).all() for name, weights in saved.items())


def deaf_engine(config: Config, folder: Path):
    """Return an engine that says yes to new weights and goes on with the old ones."""
    engine = make_torch_engine(config, folder)

    async def update_weights(state, version):
        return engine.fingerprint()

    engine.update_weights = update_weights
    return engine


def test_a_push_that_does_nothing_is_noticed_within_one_step(config, tmp_path):
    with pytest.raises(WeightPushError, match="expected"):
        train(with_engine(config, "deaf_engine"), tmp_path / "run")
    assert RunReader(tmp_path / "run").reports() == []


def mortal_engine(config: Config, folder: Path):
    """Return an engine that ends after its first update, if the policy's folder says so."""
    engine = make_torch_engine(config, folder)
    generate_many = engine.generate_many

    async def generate_until_the_end(requests):
        if engine.policy_version == 1 and (folder / "mortal").exists():
            await engine.close()
        return await generate_many(requests)

    engine.generate_many = generate_until_the_end
    return engine


@pytest.mark.slow
def test_a_run_whose_engine_ends_says_so_and_resumes_to_the_same_end(config, tmp_path):
    mortal, marker = with_engine(config, "mortal_engine"), Path(config.policy) / "mortal"
    train(mortal, tmp_path / "whole")
    marker.touch()
    with pytest.raises(
        MeasurementError, match=r"none of 64 episodes could be graded; most often: the engine is closed"
    ):
        train(mortal, tmp_path / "run")
    marker.unlink()
    train(mortal, tmp_path / "run", resume=True)
    assert [check.problems for check in check_run(tmp_path / "run") if not check.ok] == []
    ends = [
        load_file(tmp_path / name / "checkpoints" / f"{STEPS:06d}" / "model.safetensors") for name in ("run", "whole")
    ]
    assert all((ends[0][name] == ends[1][name]).all() for name in ends[0])
