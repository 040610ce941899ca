"""Quarantined tasks come back only by name, once, and their episodes are counted anew."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sanderling.errors import ConfigError
from sanderling.screening.config import ScreeningConfig
from sanderling.screening.watch import Watch
from sanderling.testing import records
from sanderling.types import Finding, Group

SETTINGS = {"quarantine_proven": 2, "quarantine_suspected": 1.0, "stop_rate": 1.0}


def hacked(task: str, proven: int, total: int = 4) -> Group:
    """Return a group whose first `proven` episodes are proven hacks."""
    group = records.group([0.0] * total, task_id=task)
    members = [
        replace(
            member,
            findings=(
                Finding(
                    trajectory_id=member.trajectory.id,
                    screen="test",
                    severity="proven",
                    turn=None,
                    quote="",
                    explanation="",
                ),
            ),
        )
        for member in group.members[:proven]
    ]
    return replace(group, members=(*members, *group.members[proven:]))


def watch(**settings: object) -> Watch:
    return Watch(ScreeningConfig(**{**SETTINGS, **settings}))


def test_a_task_comes_back_by_name_and_is_counted_anew():
    first = watch()
    assert [(one.task_id, one.step) for one in first.count(5, [hacked("a", 2), hacked("b", 1)])] == [("a", 5)]
    assert first.proven() == ("a", "b")
    state = first.state()
    assert list(_loaded(state).quarantined) == ["a"]

    again = watch(readmitted={"a": 5})
    assert [one.task_id for one in again.load(state)] == ["a"]
    assert not again.quarantined
    assert again.count(6, [hacked("a", 1)]) == ()  # the two proofs of step 5 don't count any more
    assert [one.step for one in again.count(7, [hacked("a", 1)])] == [7]

    third = watch(readmitted={"a": 5})
    assert third.load(again.state()) == ()  # the same word doesn't void a later quarantine
    assert third.quarantined["a"].step == 7
    assert [one.step for one in watch(readmitted={"a": 7}).load(again.state())] == [7]


def _loaded(state: object) -> Watch:
    found = watch()
    found.load(state)
    return found


@pytest.mark.parametrize(
    ("readmitted", "said"),
    [
        ({"b": 9}, "'b' as of step 9, but it isn't quarantined"),
        ({"a": 4}, "but it was quarantined at step 5"),
        ({"a": 6}, "but it was quarantined at step 5"),
    ],
)
def test_taking_back_what_is_not_there_is_an_error(readmitted, said):
    first = watch()
    first.count(5, [hacked("a", 2)])
    with pytest.raises(ConfigError, match=said):
        watch(readmitted=readmitted).load(first.state())
    with pytest.raises(ConfigError, match="isn't quarantined"):
        watch(readmitted=readmitted).load(None)
