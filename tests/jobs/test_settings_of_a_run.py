"""Which settings hold when a run goes on, and that a wrong part leaves nothing behind."""

from __future__ import annotations

import pytest
from letter_runs import run_training

from sanderling.errors import ConfigError, PluginError, SandboxUnavailable
from sanderling.store.reader import RunReader


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
