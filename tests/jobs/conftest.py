from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest

from sanderling import jobs
from sanderling.config import Config, load_config
from sanderling.report.terminal import ProgressStyle
from sanderling.testing.tiny_model import tiny_llama_folder

LETTERS = {
    "environment": "sanderling.testing.letters:letter_environment",
    "sandbox.backend": "sanderling.testing.environments:memory_backend",
    "engine.threads": 1,
    "steps": 8,
    "evaluation.tasks": 16,
    "evaluation.greedy": False,
    "rollout.groups_per_step": 4,
    "rollout.group_size": 16,
    "optimizer.learning_rate": 3e-3,
    "checkpoint.every": 3,
}


@pytest.fixture(scope="session")
def tiny_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama_folder(tmp_path_factory.mktemp("policy") / "tiny")


@pytest.fixture
def letters(tiny_policy: Path):
    """Return a function that makes a configuration of the letter environment."""

    def make(**changes: object) -> Config:
        overrides = {key.replace("__", "."): value for key, value in changes.items()}
        return load_config([], {**LETTERS, "policy": str(tiny_policy), **overrides})

    return make


def run_training(config: Config, run: Path, *, resume: bool = False) -> jobs.TrainResult:
    stream = io.StringIO()
    return asyncio.run(jobs.train(config, run, resume=resume, stream=stream, style=ProgressStyle.PLAIN))
