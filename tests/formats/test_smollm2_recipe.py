"""The recipe of a pretrained model: its settings hold, its environment is there, and its warm-up demonstrates repairs."""

from __future__ import annotations

import asyncio
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np
import pytest
from fix_python.warmup.library import practice_functions
from format_sandboxes import in_sandboxes, shared_data
from test_humanevalpack import ROW, rows_file

from sanderling.assemble import load_environment
from sanderling.config import load_config
from sanderling.errors import TaskError
from sanderling.formats import humanevalpack
from sanderling.harness.tokenizer import FastTokenizer
from sanderling.plugins import load_object
from sanderling.tasks.formats.humanevalpack import EXAMPLE, FILE
from sanderling.testing.engines import tiny_llama_folder

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "recipes"
RECIPE = RECIPES / "smollm2.toml"
SCALED = {
    **ROW,
    "prompt": "def scaled(x: int, y: int) -> int:\n",
    "canonical_solution": "    if x < y:\n        return x + y\n    return x - 1\n",
    "buggy_solution": "    if x < y:\n        return x + y\n    return x - 2\n",
    "entry_point": "scaled",
    "test": "def check(scaled):\n    assert scaled(1, 2) == 3\n    assert scaled(2, 2) == 1\ncheck(scaled)",
    "example_test": "def check(scaled):\n    assert scaled(1, 2) == 3\n    assert scaled(5, 2) == 4\ncheck(scaled)\n",
}


@pytest.fixture(autouse=True)
def beside_each_other(monkeypatch):
    """Scripts of a folder import each other by their names."""
    monkeypatch.syspath_prepend(RECIPES)


def of_demonstrations(name):
    return load_object("recipes", f"{RECIPES / 'demonstrations.py'}:{name}")


def of_warm_up(name):
    return load_object("recipes", f"{RECIPES / 'warm_up.py'}:{name}")


def test_the_recipe_finds_its_environment():
    config = load_config([RECIPE])
    settings = {**config.environment_settings, "path": str(shared_data("humanevalpack_python.jsonl"))}
    environment = load_environment(config.environment, config.verifier, config.harness, settings)
    held_out = environment.tasks.ids("held-out")
    assert 40 <= config.evaluation.tasks <= len(held_out)
    assert not set(held_out) & set(environment.tasks.ids(config.split))


def test_the_answer_to_a_change_is_a_setting(tmp_path):
    file = str(rows_file(tmp_path, ROW))
    assert humanevalpack(file, answer="tried").harness.answer.value == "tried"
    with pytest.raises(TaskError, match="answer is 'tired'; expected acknowledged, tested, tried"):
        humanevalpack(file, answer="tired")


def test_the_teacher_repairs_planted_bugs_of_training_tasks(tmp_path):
    rows = [{**SCALED, "task_id": f"Python/{number}"} for number in range(900, 906)]
    environment = humanevalpack(str(rows_file(tmp_path, *rows)), held_out=0.5, answer="tried")
    tokenizer = FastTokenizer(tiny_llama_folder(tmp_path / "policy"))
    drawn = of_demonstrations("Mutations")(environment.tasks).draw(Random(0))
    bugs = [next(drawn) for _ in range(8)]
    assert {bug.task.id.split("/")[1] for bug in bugs} == {"train"}
    own = [environment.tasks.get(bug.task.id).base[FILE] for bug in bugs]
    # The task's own bug is left to reinforcement learning.
    assert all(bug.task.base[FILE] != file for bug, file in zip(bugs, own, strict=True))

    async def demonstrate(backend):
        teacher = of_demonstrations("Teacher")(environment, backend, tokenizer)
        return await asyncio.gather(*(teacher.demonstrate(bug, Random(number)) for number, bug in enumerate(bugs)))

    shown = [(bug, row) for bug, row in zip(bugs, in_sandboxes(demonstrate), strict=True) if row is not None]
    assert shown
    for bug, row in shown:
        prompt = environment.harness.prompt(bug.task)
        told = tokenizer.decode(row.token_ids.tolist())
        assert told.startswith(prompt) and told.endswith("submit")
        right = tokenizer.decode(row.token_ids[row.weights == 1.0].tolist())
        assert right.startswith(f"line {bug.line}sub|") and right.endswith("submit")
        assert not row.loss_mask[: len(tokenizer.encode(prompt))].any()


@pytest.mark.slow
def test_practice_functions_have_tests_and_are_not_near_a_held_out_task(tmp_path):
    source = max(practice_functions(), key=len)
    signature, _, body = source.partition("\n")
    near = {
        "declaration": f"{signature}\n",
        "prompt": f"{signature}\n",
        "canonical_solution": body,
        "buggy_solution": body,
    }
    rows = [{**SCALED, "task_id": f"Python/{number}"} for number in range(900, 906)]
    held_out = humanevalpack(str(rows_file(tmp_path, *rows)), held_out=0.5).tasks.ids("held-out")[0]
    drawn = []
    for change in ({}, near):  # the same function under another entry point's name
        changed = [{**row, **change} if f"-{row['task_id'][-3:]}-" in held_out else row for row in rows]
        environment = humanevalpack(str(rows_file(tmp_path, *changed)), held_out=0.5)
        practice = of_demonstrations("Practice")(environment.tasks, Random(0))
        bugs = list(islice(practice.draw(Random(0)), 4))
        assert all("assert" in bug.task.base[EXAMPLE].decode() for bug in bugs)
        drawn.append(practice.sources)
    assert source in drawn[0]
    assert set(drawn[0]) - set(drawn[1]) == {source}


def test_imitation_makes_the_demonstration_likely(tmp_path):
    from sanderling.engine.torch_model import ModelDtype, load_model
    from sanderling.learn.learner import Learner

    folder = tiny_llama_folder(tmp_path / "policy", scale=0.1)
    tokenizer = FastTokenizer(folder)
    environment = humanevalpack(str(rows_file(tmp_path, SCALED)), held_out=0.0)
    told = of_demonstrations("Demonstration")(environment.harness.codec(tokenizer), tokenizer, "Fix it.\n")
    told.hear(told.say("line 4", 1.0), "return x - 2")
    told.say("submit", 1.0)
    row = told.row("a")
    before = Learner(load_model(folder, dtype=ModelDtype.FLOAT32)).logprobs([row])[0].sum()
    model = load_model(folder, dtype=ModelDtype.FLOAT32)
    settings = of_warm_up("Settings")(learning_rate=3e-3, batch_tokens=len(row.token_ids))
    of_warm_up("imitate")(model, [row] * 20, settings)
    model.save_pretrained(folder)
    after = Learner(load_model(folder, dtype=ModelDtype.FLOAT32)).logprobs([row])[0].sum()
    assert np.isfinite(before) and after > before / 2
