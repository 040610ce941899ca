"""The order of training tasks: all of them, reproducible, resumable; kinds that teach nothing come less often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sanderling.environment import Environment
from sanderling.errors import CheckpointError, ConfigError, RunStopped
from sanderling.rollout.config import TaskOrder
from sanderling.rollout.task_stream import LEAST_SHARE, TaskStream
from sanderling.testing.environments import calc_environment
from sanderling.testing.records import group
from sanderling.types import Group, Task


@dataclass(frozen=True)
class _Kinds:
    """Tasks "easy-0", "mixed-0", "hard-0", ... whose kind is the first part of the name."""

    count: int

    def ids(self, split: str) -> Sequence[str]:
        return [f"{kind}-{number}" for kind in ("easy", "mixed", "hard") for number in range(self.count)]

    def get(self, task_id: str) -> Task:
        return Task(id=task_id, prompt="", base={}, metadata={"family": task_id.split("-", maxsplit=1)[0]})


def _environment(count: int = 100, kind: str = "family") -> Environment:
    return replace(calc_environment(), tasks=_Kinds(count), task_kind=kind)


_REWARDS = {"easy": (1.0, 1.0), "mixed": (1.0, 0.0), "hard": (0.0, 0.0)}


def _outcome(task: Task) -> Group:
    return group(_REWARDS[task.metadata["family"]], task_id=task.id)


def _run(stream: TaskStream, first: int, last: int, per_step: int = 8) -> list[str]:
    ids = []
    for start in range(first, last, per_step):
        tasks = [stream.task(position) for position in range(start, start + per_step)]
        stream.observe([_outcome(task) for task in tasks])
        ids += [task.id for task in tasks]
    return ids


def test_every_task_comes_once_per_epoch_and_each_epoch_in_its_own_order() -> None:
    environment = calc_environment(count=20)
    stream = TaskStream(environment, "train", seed=1)
    first = [stream.task(position).id for position in range(20)]
    second = [stream.task(position).id for position in range(20, 40)]
    assert sorted(first) == sorted(second) == sorted(environment.tasks.ids("train"))
    assert first != second
    assert first == [stream.task(position).id for position in range(20)]


def test_kinds_that_teach_nothing_come_less_often_but_never_stop() -> None:
    stream = TaskStream(_environment(2000), "train", seed=3, order=TaskOrder.ADAPTIVE)
    _run(stream, 0, 400)
    kinds = Counter(name.split("-")[0] for name in _run(stream, 400, 2400))
    for kind in ("easy", "hard"):
        # By then mixed is kept with certainty and the others with the least share.
        assert 0.7 * LEAST_SHARE < kinds[kind] / kinds["mixed"] < 1.4 * LEAST_SHARE


@pytest.mark.parametrize("environment", [_environment(), _environment(kind="")], ids=["asked for", "no kinds"])
def test_the_uniform_order_passes_nothing_over(environment: Environment) -> None:
    order = TaskOrder.ADAPTIVE if not environment.task_kind else TaskOrder.UNIFORM
    stream = TaskStream(environment, "train", seed=3, order=order)
    assert len(set(_run(stream, 0, 300, per_step=10))) == 300


@settings(max_examples=30)
@given(seed=st.integers(0, 5), stop=st.integers(1, 20), order=st.sampled_from(TaskOrder))
def test_a_restored_stream_goes_on_with_the_same_tasks(seed: int, stop: int, order: TaskOrder) -> None:
    whole = TaskStream(_environment(), "train", seed=seed, order=order)
    expected = _run(whole, 0, 240)
    first, second = (TaskStream(_environment(), "train", seed=seed, order=order) for _ in range(2))
    begun = _run(first, 0, 8 * stop)
    second.restore(first.state(8 * stop))
    assert begun + _run(second, 8 * stop, 240) == expected


def test_tasks_that_were_drawn_ahead_are_drawn_again_after_a_restart() -> None:
    stream = TaskStream(_environment(), "train", seed=0, order=TaskOrder.ADAPTIVE)
    ahead = [stream.task(position).id for position in range(24)]
    stream.observe([_outcome(stream.task(position)) for position in range(8)])
    again = TaskStream(_environment(), "train", seed=0, order=TaskOrder.ADAPTIVE)
    again.restore(stream.state(8))
    assert [again.task(position).id for position in range(8, 24)] == ahead[8:]
    assert [again.task(position).id for position in range(24, 40)] == [stream.task(p).id for p in range(24, 40)]


def test_a_state_that_is_none_is_refused() -> None:
    with pytest.raises(CheckpointError, match="place in the data"):
        TaskStream(_environment(), "train", seed=0).restore({"position": 3})


def test_an_empty_split_is_said_at_once() -> None:
    with pytest.raises(ConfigError, match="no task in split 'train'"):
        TaskStream(calc_environment(count=0), "train", seed=1)


def test_a_stream_without_a_task_left_ends_the_run() -> None:
    aside: dict[str, int] = {}
    stream = TaskStream(_environment(1), "train", seed=0, set_aside=aside.keys())
    stream.task(0)
    aside.update(dict.fromkeys(("easy-0", "mixed-0", "hard-0"), 1))
    assert stream.empty
    with pytest.raises(RunStopped, match="all 3 tasks are quarantined"):
        stream.task(9)
