"""A whole run with everything that is for large models, on a small one: it trains, it resumes, and the policy is a folder."""

import pytest
from letter_runs import LETTERS, run_training

from sanderling.config import load_config
from sanderling.engine.torch_model import ModelDtype, load_model
from sanderling.store.reader import RunReader
from sanderling.testing.engines import tiny_llama_folder

pytest.importorskip("peft")
LARGE = {
    "engine.dtype": "bfloat16",
    "engine.prompts": "shared",
    "trainer.compute_dtype": "bfloat16",
    "trainer.weight_dtype": "bfloat16",
    "trainer.gradient_checkpointing": True,
    "trainer.lora.rank": 8,
    "batch.layout": "shared",
    "steps": 2,
    "checkpoint.every": 1,
    "evaluation.tasks": 2,
    "rollout.groups_per_step": 2,
    "rollout.group_size": 8,
}


def test_low_rank_bfloat16_and_shared_prompts_through_the_whole_job(tmp_path):
    policy = tiny_llama_folder(tmp_path / "policy", scale=0.1)
    settings = {**LETTERS, **LARGE, "policy": str(policy)}
    run_training(load_config([], {**settings, "steps": 1}), tmp_path / "run")
    result = run_training(load_config([], settings), tmp_path / "run", resume=True)
    assert result.steps == 2 and result.counts["updates"] >= 1
    reports = list(RunReader(tmp_path / "run").reports())
    assert all(report.metrics["logprob_gap_mean"] < 0.05 for report in reports if "logprob_gap_mean" in report.metrics)
    trained = load_model(tmp_path / "run" / "checkpoints" / "000002", dtype=ModelDtype.FLOAT32).state_dict()
    start = load_model(policy, dtype=ModelDtype.BFLOAT16).state_dict()
    moved = {name for name, tensor in trained.items() if not tensor.equal(start[name].float())}
    assert moved and all("proj" in name for name in moved)
