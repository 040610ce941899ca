"""Which settings hold when a run goes on, and that a wrong part leaves nothing behind."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from letter_runs import run_training

from sanderling import jobs
from sanderling.assemble import load_policy_folder
from sanderling.errors import ConfigError, PluginError, SandboxUnavailable
from sanderling.report.terminal import ProgressStyle
from sanderling.store.reader import RunReader
from sanderling.types import StopReason


def _losses(run) -> list[dict]:
    return [dict(report.metrics) for report in RunReader(run).reports()]


def test_a_resumed_run_may_go_further_and_nothing_else_may_change(letters, tmp_path):
    run_training(letters(steps=4, seed=3), tmp_path / "whole")
    run_training(letters(steps=2, seed=3), tmp_path / "cut")
    with pytest.raises(ConfigError, match=r"other settings: credit\.estimator, seed\."):
        run_training(letters(steps=4, seed=9, credit__estimator="rloo"), tmp_path / "cut", resume=True)
    run_training(letters(steps=4, seed=3, evaluation__every=3), tmp_path / "cut", resume=True)
    assert _losses(tmp_path / "cut") == _losses(tmp_path / "whole")
    assert "steps = 4" in (tmp_path / "cut" / "config.toml").read_text()


def test_a_policy_is_not_measured_on_what_it_is_trained_on(letters, tmp_path):
    with pytest.raises(ConfigError, match="are both 'train'"):
        run_training(letters(evaluation__split="train"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Unusable:
    def probe(self):
        from sanderling.sandbox.protocol import Capabilities

        missing = ("a moon: wait for the night",)
        return Capabilities(name="lunar", mode="x", isolation="x", usable=False, open_risks=(), missing=missing)

    async def create(self, spec):
        raise AssertionError("never reached")

    async def close(self):
        return None


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"sandbox__backend": "bublewrap"}, PluginError),
        ({"sandbox__backend": f"{__file__}:Unusable"}, SandboxUnavailable),
        ({"engine__name": "torhc"}, PluginError),
        ({"verifier": "sanderling.testing.letters:LetterTasks"}, PluginError),
    ],
)
def test_a_wrong_part_leaves_no_folder(letters, tmp_path, changes, error):
    with pytest.raises(error):
        run_training(letters(**changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_each_split_has_its_own_limits_and_both_end_with_what_the_model_reads(letters, tmp_path):
    config = letters(steps=1, environment=f"{Path(__file__).with_name('hurried_letters.py')}:environment")
    said = io.StringIO()
    asyncio.run(jobs.train(config, tmp_path / "run", resume=False, stream=said, style=ProgressStyle.PLAIN))
    reader = RunReader(tmp_path / "run")
    practised, measured = reader.rollouts(1).members(), reader.evaluation("after").members()
    assert {member.trajectory.stop for member in practised} == {StopReason.MAX_TURNS}
    assert {member.trajectory.stop for member in measured} == {StopReason.SUBMITTED}
    window = load_policy_folder(config.policy).window
    assert "at most 1 turns and 256 tokens" in said.getvalue()
    assert f"evaluations: at most 3 turns and {window} tokens" in said.getvalue()
    assert f"contexts end at {window} tokens" in said.getvalue()
