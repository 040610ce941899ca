"""The benchmark against TRL, as far as it goes without TRL: our sides do the work that they say, and the page shows it."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

import numpy as np
import pytest

from sanderling.testing.tiny_model import tiny_llama_folder

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TURNS, ACTION, EPISODES = 3, 5, 4


@pytest.fixture(scope="module", autouse=True)
def importable():
    sys.path.insert(0, str(BENCHMARKS))
    yield
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_llama_folder(tmp_path_factory.mktemp("model") / "policy")


def sampled(model, *requests):
    """Return the setup and the record of each round."""
    from against_trl import rollout_setup
    from sanderling_side import Sampling

    sizes = argparse.Namespace(model=model, groups=2, group_size=2, turns=TURNS, action_tokens=ACTION)
    setup = {**rollout_setup(sizes), "threads": 1}

    async def run():
        sampling = Sampling(setup)
        records = [await sampling.round({"seed": 0, **request}) for request in requests]
        await sampling.engine.close()
        return records

    return setup, asyncio.run(run())


def test_every_schedule_samples_the_same_numbers_of_tokens(model):
    from sanderling.harness.tokenizer import FastTokenizer

    base = {"latency_s": 0.0, "tools": "at once"}
    setup, records = sampled(model, {**base, "schedule": "lockstep"}, {**base, "schedule": "continuous"})
    tokenizer = FastTokenizer(model)
    opening = len(tokenizer.encode_marked(setup["opening"]))  # stands before each action
    answer = len(tokenizer.encode(setup["tool_text"])) + opening
    prompts = sum(len(tokenizer.encode(text)) + opening for text in setup["prompts"])
    for record in records:
        assert record["episodes"] == EPISODES
        assert record["action_tokens"] == EPISODES * TURNS * ACTION
        assert record["tool_tokens"] == EPISODES * (TURNS - 1) * answer
        assert record["prompt_tokens"] == prompts * EPISODES // 2


def test_tools_run_at_once_unless_one_at_a_time_is_asked_for(model):
    base = {"schedule": "lockstep", "latency_s": 0.04}
    _, (one, all_) = sampled(model, {**base, "tools": "one at a time"}, {**base, "tools": "at once"})
    waiting = EPISODES * (TURNS - 1) * 0.04
    assert one["generate_s"] >= waiting
    assert all_["generate_s"] >= (TURNS - 1) * 0.04
    assert all_["generate_s"] < one["generate_s"]


def test_all_ways_make_the_same_update_of_the_same_rows(model):
    import torch
    from against_trl import update_setup
    from sanderling_side import Updates

    setup = update_setup(model, groups=1, group_size=4, prompt=40, rest=20) | {"threads": 1, "learning_rate": 1e-2}
    norms, weights = {}, {}
    for way in ("bare", "padded", "shared"):
        work = Updates({**setup, "way": way})
        norms[way] = work.update()
        weights[way] = np.concatenate([p.detach().numpy().ravel() for p in work.model.parameters()])
    plain = load_plain(model)
    before = np.concatenate([p.detach().numpy().ravel() for p in plain.parameters()])
    loss = torch.zeros(())
    for number, row in enumerate(setup["rows"]):
        ids, mask = torch.tensor(row["ids"]), torch.tensor(row["mask"], dtype=torch.bool)
        scores = plain(input_ids=ids[None]).logits[0, :-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0]
        loss = loss - (number % 2 - 0.5) * scores[mask[1:]].mean() / len(setup["rows"])
    loss.backward()
    expected = torch.stack([p.grad.norm() for p in plain.parameters()]).norm().item()
    assert norms == {"bare": None, "padded": pytest.approx(expected, 1e-4), "shared": pytest.approx(expected, 1e-4)}
    for way in ("padded", "shared"):  # Adam's first step has the size of the rate, with the sign of the gradient
        assert np.mean(np.abs(weights[way] - weights["bare"]) < 1e-3) > 0.99
        assert np.mean(np.abs(weights[way] - before) > 5e-3) > 0.5


def load_plain(folder):
    from sanderling.engine.torch_model import ModelDtype, load_model

    return load_model(folder, dtype=ModelDtype.FLOAT32)


def test_an_interpreter_without_trl_is_refused_with_what_to_install():
    from against_trl import probe

    with pytest.raises(SystemExit, match="no such program; make a virtual environment and in it: pip install trl"):
        probe("/nowhere/python")
    with pytest.raises(SystemExit, match="TRL can't be used there \\(there is no package trl\\)"):
        probe(sys.executable)


def test_ways_that_did_different_updates_are_no_result():
    from against_trl import _check_norms

    ways = [{"way": "bare", "first_gradient_norm": None}, {"way": "a", "first_gradient_norm": 1.0}]
    _check_norms([*ways, {"way": "b", "first_gradient_norm": 1.005}])
    with pytest.raises(SystemExit, match="did not make the same update"):
        _check_norms([*ways, {"way": "b", "first_gradient_norm": 1.02}])


def test_the_page_divides_our_speed_by_theirs():
    from against_trl import ROLLOUTS, UPDATES
    from throughput_page import page

    counts = {"episodes": 4, "prompt_tokens": 400, "action_tokens": 96, "tool_tokens": 96}
    rollouts = [
        {"way": way.name, "latency_s": 0.2, "rollouts_per_minute": speed, "cpu_s": 1.0, "peak_mb": 500, **counts}
        for way, speed in zip(ROLLOUTS, (10.0, 11.0, 40.0, 12.0, 50.0, 60.0), strict=True)
    ]
    updates = [
        {
            "way": way.name,
            "tokens": 1000,
            "tokens_per_s": speed,
            "tokens_per_cpu_s": speed,
            "first_gradient_norm": 2.0,
            "start_mb": 300,
            "peak_mb": 420,
        }
        for way, speed in zip(UPDATES, (100.0, 50.0, 90.0, 150.0), strict=True)
    ]
    versions = {"trl": "1.0", "torch": "2.0+cpu", "transformers": "5.0"}
    sizes = {"model": "small", "pretrained": None, "cores": 2, "threads": 1, "group_size": 2, "turns": 4}
    text = page({"versions": versions, **sizes, "rollouts": rollouts, "updates_small": updates})
    assert "| as they are | 5.00 |" in text
    assert "| both one tool at a time | 1.20 |" in text
    assert "| both all tools at once | 1.25 |" in text
    assert "| Sanderling, shared prompts | 150 | 1.50 | 1.50 | 420 | 120 |" in text
    assert "torch==2.0 " in text
    assert "Updates of a pretrained model" not in text
