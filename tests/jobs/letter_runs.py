"""Settings and runs of the letter environment, shared by the tests of whole jobs."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

from sanderling import jobs
from sanderling.config import Config
from sanderling.report.terminal import ProgressStyle

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
    "trust.certificate": "none",  # nobody audits letters
}


def run_training(config: Config, run: Path, *, resume: bool = False) -> jobs.TrainResult:
    stream = io.StringIO()
    return asyncio.run(jobs.train(config, run, resume=resume, stream=stream, style=ProgressStyle.PLAIN))
