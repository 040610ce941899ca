"""Which settings hold when a run goes on, and that a wrong part leaves nothing behind."""

from __future__ import annotations

import asyncio
import io

import pytest
from letter_runs import run_training

from sanderling import jobs
from sanderling.config import load_config
from sanderling.errors import PluginError, SandboxUnavailable
from sanderling.report.terminal import ProgressStyle
from sanderling.store.reader import RunReader


def _losses(run) -> list[dict]:
    return [dict(report.metrics) for report in RunReader(run).reports()]


def test_a_resumed_run_needs_nothing_but_its_folder(letters, tmp_path):
    """Environment, policy, seed and estimator come from the run, and what was given in vain is said."""
    run_training(letters(steps=4, seed=3), tmp_path / "whole")
    run_training(letters(steps=2, seed=3), tmp_path / "cut")
    config = tmp_path / "cut" / "config.toml"
    config.write_text(config.read_text().replace("steps = 2", "steps = 4"))
    stream = io.StringIO()
    given = load_config([], {"seed": 9, "credit.estimator": "rloo"})
    asyncio.run(jobs.train(given, tmp_path / "cut", resume=True, stream=stream, style=ProgressStyle.PLAIN))
    assert _losses(tmp_path / "cut") == _losses(tmp_path / "whole")
    assert "settings of the run hold; not used now: credit.estimator, seed\n" in stream.getvalue()


def test_the_same_settings_again_are_no_news(letters, tmp_path):
    config = letters(steps=2, seed=3)
    assert jobs.unused_settings(config, config) == []
    assert jobs.unused_settings(load_config(), config) == []
    assert jobs.unused_settings(letters(steps=2, seed=4), config) == ["seed"]


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
