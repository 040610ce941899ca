"""Leaves behind a turn, where forks were forked again and episodes have several rows."""

from dataclasses import replace

import pytest

from sanderling.credit.paths import paths
from sanderling.credit.tree import Forest, TreeValue
from sanderling.testing import records
from sanderling.types import Branching


def episode(name, turns, reward=0.0, *, of=None, at=None):
    """An episode "g/<name>.0" of some turns; `of` names the trajectory that it was forked from before turn `at`."""
    made = records.trajectory([records.turn(f"{name}{k}") for k in range(turns)], id=f"g/{name}")
    if of is not None:
        made = replace(made, parent_id=f"g/{of}", forked_at=at, branching=Branching.FORK)
    return records.member(made, reward)


def row(name, turns, reward, *, root):
    made = records.trajectory([records.turn(f"{name}{k}") for k in range(turns)], id=f"g/{root}")
    return records.member(replace(made, id=f"g/{name}", parent_id=f"g/{root}", forked_at=0), reward)


def group(*members):
    return replace(records.group([], id="g"), members=members)


def test_forks_of_forks():
    made = group(
        episode("0.0", 4),
        episode("0.0~2.0.0", 3, of="0.0", at=2),
        episode("0.0~2.0.0~1.0.0", 2, of="0.0~2.0.0", at=1),  # before the turn at which its parent was forked
        episode("1.0", 1),
    )
    forest = Forest(paths(made))
    assert [forest.behind(0, k) for k in range(4)] == [(0, 1, 2), (0, 1), (0,), (0,)]
    assert [forest.behind(1, k) for k in range(3)] == [(0, 1, 2), (0, 1), (1,)]
    assert [forest.behind(2, k) for k in range(2)] == [(0, 1, 2), (2,)]
    assert [forest.tree(i) for i in range(4)] == [0, 0, 0, 3]


def test_forks_of_a_later_row():
    made = group(
        episode("0.0", 2, 1.0),
        row("0.0+1", 2, 1.0, root="0.0"),
        episode("0.0~2.0.0", 1, of="0.0+1", at=0),
        episode("0.0~3.0.0", 2, of="0.0+1", at=1),
    )
    forest = Forest(paths(made))
    assert [len(path.turns) for path in forest.gathered] == [4, 1, 2]
    assert [forest.behind(0, k) for k in range(4)] == [(0, 1, 2), (0, 1, 2), (0, 2), (0,)]
    credit = TreeValue()(made)
    assert credit["g/0.0"].tolist() == [0.0, 0.0]
    assert credit["g/0.0+1"].tolist() == pytest.approx([0.5, 1.0])
    assert credit["g/0.0~2.0.0"].tolist() == pytest.approx([-0.5])
    assert credit["g/0.0~3.0.0"].tolist() == pytest.approx([0.5, -1.0])
