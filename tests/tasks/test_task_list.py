from __future__ import annotations

import pytest

from sanderling.errors import TaskError
from sanderling.tasks.listed import TaskList
from sanderling.types import Task


def task(name: str) -> Task:
    return Task(id=name, prompt="Do it.", base={})


def test_the_split_is_a_part_of_the_id():
    tasks = TaskList([task("toy/train/b"), task("toy/held-out/a"), task("toy/train/a")])
    assert tasks.splits() == ("train", "held-out")
    assert tasks.ids("train") == ("toy/train/b", "toy/train/a")
    assert tasks.get("toy/held-out/a").id == "toy/held-out/a"


@pytest.mark.parametrize("name", ["alone", "toy/train", "toy//a", "toy/train/"])
def test_an_id_without_a_split_is_refused(name):
    with pytest.raises(TaskError, match="names no split"):
        TaskList([task(name)])


def test_ids_are_unique_and_unknown_ones_are_named():
    with pytest.raises(TaskError, match="two tasks have the id 'toy/train/a'"):
        TaskList([task("toy/train/a"), task("toy/train/a")])
    tasks = TaskList([task("toy/train/a")])
    with pytest.raises(TaskError, match="no split 'test'; there are train"):
        tasks.ids("test")
    with pytest.raises(TaskError, match="did you mean 'toy/train/a'"):
        tasks.get("toy/train/aa")
    with pytest.raises(TaskError, match="no split 'train'; there are none"):
        TaskList([]).ids("train")
