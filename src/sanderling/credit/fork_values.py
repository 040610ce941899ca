"""Values by Monte Carlo: how good a state is, from what fresh continuations of it earned (VinePPO, arXiv 2410.01679, eq. 6).

    V(s_k) = mean over the probes forked before turn k of what they earned from there on

No model is trained for it, and each continuation costs turns of the environment. With these values, GAE over turns with
lambda = 0 is VinePPO's advantage A_k = r_k + V(s_{k+1}) - V(s_k): the estimator "vine".

The first state needs no probe where an episode has siblings: all begin there, and the mean of the others' returns is as good
a sample. A state without a value of its own (all of its probes were lost) gets one between those of its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sanderling.credit.paths import FloatArray, Path, discounted_returns, paths
from sanderling.types import Branching, Group, Member, Membership, Values


def with_fork_values(group: Group) -> Group:
    """Return the group with `Member.values` measured by its probes, in units of the reward; without probes, the group."""
    probes = probe_returns(group)
    if not probes:
        return group
    gathered = paths(group)
    found: dict[str, FloatArray] = {}
    for path in gathered:
        values = state_values(path, probes, _first_state(path, gathered))
        found |= {name: values[places] for name, places in path.places.items()}
    members = tuple(
        replace(m, values=Values(at_turns=found[m.trajectory.id])) if m.trajectory.id in found else m
        for m in group.members
    )
    return replace(group, members=members)


def probe_returns(group: Group) -> dict[tuple[str, int], list[float]]:
    """Return what the probes of a group earned from their fork on, by row and turn in it before which they were forked."""
    found: dict[tuple[str, int], list[float]] = {}
    for member in group.members:
        row = member.trajectory
        if member.disposition.membership is Membership.PROBE and row.branching is Branching.FORK and row.parent_id:
            found.setdefault((row.parent_id, row.forked_at or 0), []).append(_earned(member, group.members))
    return found


def state_values(path: Path, probes: dict[tuple[str, int], list[float]], first: float | None) -> FloatArray:
    """Return the value of the state before each turn of an episode, (K,).

    Args:
        path: the episode.
        probes: as `probe_returns` has them.
        first: value of the first state, where no probe measured it; None: nobody knows.
    """
    count = len(path.turns)
    values = np.full(count + 1, np.nan)
    values[count] = 0.0  # behind the last turn nothing is earned
    for place, member in enumerate(path.owners):
        own = int(np.flatnonzero(path.places[member.trajectory.id] == place)[0])
        if returns := probes.get((member.trajectory.id, own)):
            values[place] = np.mean(returns)
    to_go = discounted_returns(path.rewards(), 1.0)
    if np.isnan(values[0]):
        values[0] = 0.0 if first is None else first  # 0: no baseline, which is never biased
    return _filled(values, np.append(to_go, 0.0))[:count]


def _filled(values: FloatArray, to_go: FloatArray) -> FloatArray:
    """Fill the gaps: linearly between the neighbours, where the end of the episode counts with what it paid."""
    known = np.flatnonzero(~np.isnan(values))
    total = values + (
        to_go[0] - to_go
    )  # with what was earned before, so that paid turns don't look like a loss of value
    total[-1] = to_go[0]
    places = np.arange(len(values))
    filled = np.interp(places, known, total[known]) - (to_go[0] - to_go)
    return np.where(np.isnan(values), filled, values)


def _first_state(path: Path, gathered: Sequence[Path]) -> float | None:
    """Return the mean return of the other episodes that began at the task's start, None where there is no other."""
    others = [p for p in gathered if p is not path and p.first_own == 0]
    return float(np.mean([p.rewards().sum() for p in others])) if others else None


def _earned(probe: Member, members: Sequence[Member]) -> float:
    """Return the reward of a probe with what its own turns were paid, all rows together."""
    rows = [m.trajectory for m in members if m is probe or m.trajectory.parent_id == probe.trajectory.id]
    paid = sum(
        turn.reward
        for row in rows
        if row is probe.trajectory or row.branching is Branching.ROW
        for turn in row.turns[row.forked_at or 0 :]
    )
    assert probe.disposition.reward is not None  # a disposition refuses a probe without one
    return probe.disposition.reward + paid
