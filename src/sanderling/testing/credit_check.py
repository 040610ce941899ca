"""Is this a credit estimator? `check_credit(estimator)` says in sentences what is wrong with it.

    from sanderling.testing import check_credit

    problems = check_credit(my_estimator)
    assert not problems, "\\n".join(problems)

The estimator is called with small groups that hold every signal (state keys, turn rewards and scores, values, forks), and its
answers are held against the contract (`sanderling.credit.protocol`) and against what must hold of any credit: equal inputs
give equal outputs, an excluded member changes nothing, the order of members says nothing, and the reward must matter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sanderling.batch.rows import assign_credit
from sanderling.credit.protocol import Credit, CreditEstimator
from sanderling.testing import records
from sanderling.testing.group_files import fixture
from sanderling.types import Disposition, Gradient, Group, Member, Membership, Signal, StopReason, Trajectory, Values

CLOSE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    """One group and what is to be looked at in the estimator's answer."""

    what: str
    group: Group


def find_problems(estimator: CreditEstimator) -> list[str]:
    """Return what is wrong with an estimator, one sentence each; [] where nothing was found.

    Args:
        estimator: the object itself, such as `load_estimator("my_credit.py:Mine")`.
    """
    problems: list[str] = []
    if not callable(estimator):
        return [f"it is a {type(estimator).__name__}, which can't be called; expected credit(group)"]
    problems += _wrong_needs(estimator)
    trials = _trials()
    for trial in trials:
        found = _answer(estimator, trial.group, f"On {trial.what} it", problems)
        if found is not None:
            problems += _wrong_shape(found, trial)
    if problems:
        return problems
    rich = trials[0].group
    for check in (_unrepeatable, _order, _excluded, _reward_ignored):
        problems += check(estimator, rich)
    return problems + _changed_input(estimator)


def _trials() -> list[_Trial]:
    rich = _with_everything(fixture("four_trajectories"))
    lost = replace(rich, members=(*rich.members[:2], _lost(rich.members[2]), rich.members[3]))
    return [
        _Trial(what="a group of four episodes", group=rich),
        _Trial(what="a group with an excluded member", group=lost),
        _Trial(what="a group of equal rewards", group=_with_everything(records.group([1.0, 1.0, 1.0], turns=3))),
        _Trial(what="a group of one episode", group=replace(rich, members=rich.members[:1])),
        _Trial(what="a group without graded members", group=records.group([None, None])),
        _Trial(what="an episode in several rows", group=_with_everything(fixture("two_rows"))),
        _Trial(what="episodes of different lengths", group=_with_everything(fixture("unequal_turns"))),
        _Trial(what="forked episodes", group=_with_everything(fixture("two_trees"))),
    ]


def _with_everything(group: Group) -> Group:
    """Give every turn a key, a reward and a score, and every member values."""
    return replace(group, members=tuple(_filled(m, i) for i, m in enumerate(group.members)))


def _filled(member: Member, index: int) -> Member:
    turns = tuple(
        replace(
            turn, state_key=turn.state_key or f"s{k}", reward=0.1 * ((index + k) % 3), score=0.25 * ((index + k) % 4)
        )
        for k, turn in enumerate(member.trajectory.turns)
    )
    trajectory = replace(member.trajectory, turns=turns)
    return replace(member, trajectory=trajectory, values=member.values or _values(trajectory, index))


def _values(trajectory: Trajectory, index: int) -> Values:
    at_tokens = np.linspace(0.2, 0.6, trajectory.num_action_tokens) + 0.01 * index
    starts = np.cumsum([0, *[len(turn.action.token_ids) for turn in trajectory.turns]])[:-1]
    return Values(at_turns=at_tokens[starts], at_tokens=at_tokens, at_end=0.3)


def _lost(member: Member) -> Member:
    gone = Disposition(membership=Membership.EXCLUDED, reward=None, gradient=Gradient.NONE, reason="sandbox_lost")
    return replace(
        member, trajectory=replace(member.trajectory, stop=StopReason.SANDBOX_LOST), disposition=gone, values=None
    )


def _answer(estimator: CreditEstimator, group: Group, begin: str, problems: list[str]) -> Credit | None:
    try:
        found = assign_credit([group], estimator)
    except Exception as error:  # whatever a user's code raises is what we report
        problems.append(f"{begin} raises {type(error).__name__}: {error}.")
        return None
    return found


def _wrong_needs(estimator: CreditEstimator) -> list[str]:
    declared: Any = getattr(estimator, "needs", frozenset())
    try:
        unknown = [need for need in declared if not isinstance(need, Signal)]
    except TypeError:
        return [f"Its needs are a {type(declared).__name__}; expected a frozenset of sanderling.types.Signal."]
    known = ", ".join(Signal.__members__)
    return [f"It needs {need!r}, which is no Signal; expected some of {known}." for need in unknown]


def _wrong_shape(credit: Credit, trial: _Trial) -> list[str]:
    problems = []
    graded = {m.trajectory.id: m.trajectory for m in trial.group.graded()}
    for name in sorted(credit.keys() - graded.keys()):
        problems.append(
            f"On {trial.what} it gives credit to {name!r}, which is excluded or no member; start from group.graded()."
        )
    for name, trajectory in graded.items():
        if name not in credit:
            problems.append(
                f"On {trial.what} it gives no credit to {name!r}; every graded member needs an array, zeros at least."
            )
        else:
            problems += _wrong_array(credit[name], trajectory, trial.what)
    return problems


def _wrong_array(found: Any, trajectory: Trajectory, what: str) -> list[str]:
    turns, tokens = len(trajectory.turns), trajectory.num_action_tokens
    if not isinstance(found, np.ndarray):
        return [f"On {what} the credit of {trajectory.id!r} is a {type(found).__name__}; expected a numpy array."]
    if found.shape not in ((turns,), (tokens,)):
        return [
            f"On {what} the credit of {trajectory.id!r} has shape {found.shape}; expected ({turns},), one number per turn, or "
            f"({tokens},), one per action token."
        ]
    if not np.issubdtype(found.dtype, np.floating):
        return [f"On {what} the credit of {trajectory.id!r} has dtype {found.dtype}; expected float64."]
    if not np.isfinite(found).all():
        return [
            f"On {what} the credit of {trajectory.id!r} is {found.tolist()}; expected finite numbers (does it divide by a "
            "deviation of 0?)."
        ]
    return []


def _unrepeatable(estimator: CreditEstimator, group: Group) -> list[str]:
    first, second = (assign_credit([group], estimator) for _ in range(2))
    if _same(first, second, 0.0):
        return []
    return [
        "Called twice with the same group it gives different credit; it has to be a pure function, without random numbers."
    ]


def _order(estimator: CreditEstimator, group: Group) -> list[str]:
    turned = replace(group, members=group.members[::-1])
    if _same(assign_credit([group], estimator), assign_credit([turned], estimator), CLOSE):
        return []
    return ["It depends on the order of the members; siblings have no order."]


def _excluded(estimator: CreditEstimator, group: Group) -> list[str]:
    lost = replace(group, members=(*group.members[:3], _lost(group.members[3])))
    without = replace(group, members=group.members[:3])
    if _same(assign_credit([lost], estimator), assign_credit([without], estimator), 0.0):
        return []
    return [
        "An excluded member changes the credit of the others (invariant 5); use group.graded() and group.rewards()."
    ]


def _changed_input(estimator: CreditEstimator) -> list[str]:
    fresh, before = (_trials()[0].group for _ in range(2))
    assign_credit([fresh], estimator)
    where = records.difference(before, fresh)
    return (
        []
        if where is None
        else [f"It changes its input ({where}); records are frozen, their arrays have to stay as well."]
    )


def _reward_ignored(estimator: CreditEstimator, group: Group) -> list[str]:
    better = replace(
        group, members=tuple(_rewarded(m, 1.0 - float(m.disposition.reward or 0.0)) for m in group.members)
    )
    if not _same(assign_credit([group], estimator), assign_credit([better], estimator), CLOSE):
        return []
    return ["Other rewards at the end give the same credit, so nothing is learnt from them."]


def _rewarded(member: Member, reward: float) -> Member:
    return replace(member, disposition=replace(member.disposition, reward=reward))


def _same(first: Credit, second: Credit, tolerance: float) -> bool:
    return first.keys() == second.keys() and all(
        np.allclose(first[k], second[k], rtol=0.0, atol=tolerance) for k in first
    )
