"""HumanEvalPack rows: read strictly, graded by replay, worked on with the line editor."""

from __future__ import annotations

import asyncio
import json

import pytest
from format_sandboxes import in_sandboxes, shared_data

from sanderling.assemble import load_environment
from sanderling.errors import PluginError, TaskError
from sanderling.formats import humanevalpack
from sanderling.tasks.formats.humanevalpack import HumanEvalPackTasks, read_rows
from sanderling.types import Submission

ROW = {
    "task_id": "Python/900",
    "prompt": 'def twice(x: int) -> int:\n    """Twice the number.\n    >>> twice(2)\n    4\n    """\n',
    "declaration": "def twice(x: int) -> int:\n",
    "canonical_solution": "    return 2 * x\n",
    "buggy_solution": "    return x ** 2\n",
    "bug_type": "operator misuse",
    "failure_symptoms": "incorrect output",
    "entry_point": "twice",
    "test": "\n\ndef check(twice):\n    assert twice(2) == 4\n    assert twice(3) == 6\n\ncheck(twice)",
    "example_test": "def check(twice):\n    assert twice(2) == 4\ncheck(twice)\n",
}


def rows_file(tmp_path, *rows):
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows), "utf-8")
    return file


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "holds no row"),
        (["{"], "line 1 of .* is no JSON"),
        ([{**ROW, "test": 3}], "line 1 of .*: test"),
        ([{key: value for key, value in ROW.items() if key != "entry_point"}], "entry_point"),
        ([ROW, ROW], "line 2 of .*: a second row 'Python/900'"),
        ([{**ROW, "buggy_solution": "    return (\n"}], "the buggy source of Python/900 is no Python"),
    ],
)
def test_bad_files_are_one_clear_error(tmp_path, rows, message):
    with pytest.raises(TaskError, match=message):
        read_rows(rows_file(tmp_path, *rows))


def test_a_row_is_a_task_without_its_answer(tmp_path):
    rows = [{**ROW, "task_id": f"Python/{n}"} for n in range(900, 940)]
    tasks = HumanEvalPackTasks(read_rows(rows_file(tmp_path, *rows)), held_out=0.5)
    assert tasks.splits() == ("train", "held-out")
    assert 10 < len(tasks.ids("train")) < 30
    task = tasks.get(tasks.ids("train")[0])
    assert task.base["solution.py"].decode() == ROW["prompt"] + ROW["buggy_solution"]
    assert "2 * x" not in repr(task)
    assert "twice(3)" not in repr(task)  # the hidden test
    assert task.metadata["licence"].startswith("MIT")
    with pytest.raises(TaskError, match="between 0 and 1"):
        HumanEvalPackTasks([], held_out=2)


def test_the_environment_takes_its_file_as_a_setting(tmp_path):
    name, file = "sanderling.formats:humanevalpack", rows_file(tmp_path, ROW)
    environment = load_environment(name, settings={"path": str(file), "held_out": 0.0})
    [task_id] = environment.tasks.ids("train")
    prompt = environment.harness.prompt(environment.tasks.get(task_id))
    assert prompt.startswith("Fix the bug in twice.\n1 def twice(x: int) -> int:\n")
    with pytest.raises(PluginError, match="lack 'path'"):
        load_environment(name)
    with pytest.raises(PluginError, match="did you mean 'path'"):
        load_environment(name, settings={"pth": "x"})
    with pytest.raises(PluginError, match="have no 'path'; known: none"):
        load_environment("fix_python", settings={"path": "x"})


def test_an_episode_in_the_editor(tmp_path):
    environment = humanevalpack(str(rows_file(tmp_path, ROW)), held_out=0.0)
    [task_id] = environment.tasks.ids("train")
    task = environment.tasks.get(task_id)

    async def play(backend):
        sandbox = await backend.create(environment.sandbox_spec(task))
        conversation = environment.harness.start(task, sandbox)
        texts = []
        for action in ("test", "set 6 | return x +", "set 6 | return 3 * x", "set 6 | return x + x", "submit"):
            texts.append((await conversation.act(action)).text)
        work = await sandbox.submission(task.editable)
        await sandbox.destroy()
        return texts, await environment.verifier.grade(task, work, backend, 3)

    texts, verdict = in_sandboxes(play)
    assert texts == [
        "ok", "SyntaxError in solution.py line 6", "failed: assert twice(2) == 4", "ok", ""
    ]  # fmt: skip
    assert verdict.reward == 1.0


def graded_rows(chosen):
    """Rewards of the right body, of the buggy one, and of the buggy one as it stands, for rows of the real data set."""
    environment = humanevalpack(str(shared_data("humanevalpack_python.jsonl")))
    ids = [task_id for split in environment.tasks.splits() for task_id in environment.tasks.ids(split)]

    async def grade_all(backend):
        limit = asyncio.Semaphore(4)

        async def grade(task_id):
            async with limit:
                task = environment.tasks.get(task_id)
                control = await environment.verifier.control(task, backend, 5)
                return control, await environment.verifier.grade(task, Submission(files={}), backend, 5)

        return await asyncio.gather(*(grade(task_id) for task_id in chosen(ids)))

    return in_sandboxes(grade_all)


def test_real_rows_are_graded_by_observation():
    for right, buggy in graded_rows(lambda ids: ids[::40]):
        assert (right.reward, buggy.reward) == (1.0, 0.0)
        assert right.evidence.channel == "observation"


@pytest.mark.slow
def test_all_164_real_rows_are_graded_by_observation():
    verdicts = graded_rows(lambda ids: ids)
    assert len(verdicts) == 164
    assert {(right.reward, buggy.reward, right.evidence.channel) for right, buggy in verdicts} == {
        (1.0, 0.0, "observation")
    }
