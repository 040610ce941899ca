"""Numbers of one step, from its groups and rows. Names are declared in `sanderling.store.declared`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sanderling.errors import MeasurementError
from sanderling.store.estimators import wilson
from sanderling.types import Gradient, Group, Member, Membership, StopReason, TrainingRow, Ungraded


def solve_counts(groups: Sequence[Group]) -> tuple[int, int]:
    """Return (solved, graded): members with reward 1 and members of a baseline."""
    rewards = [member.disposition.reward for group in groups for member in group.graded()]
    return sum(reward == 1.0 for reward in rewards), len(rewards)


def episode_metrics(groups: Sequence[Group], dropped: Sequence[Member]) -> dict[str, float]:
    """Return what the episodes of a step show, before anything is trained."""
    graded = [member for group in groups for member in group.graded()]
    everyone = [member for group in groups for member in group.members]
    solved, total = solve_counts(groups)
    low, high = wilson(solved, total)
    metrics = {
        "solve_rate": solved / total if total else 0.0,
        "solve_rate_low": low,
        "solve_rate_high": high,
        "groups_total": float(len(groups)),
        "groups_zero_variance": float(sum(np.ptp(g.rewards()) == 0 for g in groups if len(g.graded()) > 1)),
        "members_excluded": float(len(everyone) - len(graded) + len(dropped)),
    }
    stops = Counter(member.trajectory.stop for member in [*everyone, *dropped])
    count = len(everyone) + len(dropped)
    metrics |= {f"stop_{stop.value}": stops[stop] / count for stop in StopReason if stops[stop]}
    if graded:
        metrics |= _shape(graded)
    return metrics | _state_groups(groups)


def _shape(graded: Sequence[Member]) -> dict[str, float]:
    trajectories = [member.trajectory for member in graded]
    turns = np.array([len(t.turns) for t in trajectories])
    actions = np.array([t.usage.sampled_tokens for t in trajectories])
    contexts = np.array([len(t.prompt_ids) + t.usage.sampled_tokens + t.usage.observation_tokens for t in trajectories])
    rewards = np.array([member.disposition.reward for member in graded])
    return {
        "reward_mean": float(rewards.mean()),
        "reward_std": float(rewards.std()),
        "turns_mean": float(turns.mean()),
        "turns_max": float(turns.max()),
        "action_tokens_mean": float(actions.mean()),
        "action_tokens_max": float(actions.max()),
        "context_tokens_mean": float(contexts.mean()),
        "context_tokens_max": float(contexts.max()),
        "submitted_share": float(np.mean([t.stop is StopReason.SUBMITTED for t in trajectories])),
        "bad_call_share": sum(t.usage.bad_calls for t in trajectories) / max(1, int(turns.sum())),
        "tests_run_mean": float(
            np.mean([sum(turn.observation.source == "tests" for turn in t.turns) for t in trajectories])
        ),
        "refused_submissions": float(sum(_refused(member) for member in graded)),
    }


def _refused(member: Member) -> bool:
    evidence = getattr(member.verdict, "evidence", None)
    return evidence is not None and any("refused" in note for note in evidence.notes)


def _state_groups(groups: Sequence[Group]) -> dict[str, float]:
    """Return how often siblings meet in the same state: what credit by state groups would have to work with."""
    sizes: list[int] = []
    for group in groups:
        keys = Counter(
            turn.state_key for m in group.graded() for turn in m.trajectory.turns if turn.state_key is not None
        )
        sizes += [size for size in keys.values() for _ in range(size)]
    if not sizes:
        return {}
    return {
        "state_singleton_share": sizes.count(1) / len(sizes),
        "state_group_mean": float(1 / np.mean([1 / size for size in sizes])),
    }


def row_metrics(rows: Sequence[TrainingRow], groups: Sequence[Group], version: int) -> dict[str, float]:
    """Return what is about to be trained; `version` is the number of the weights that will be updated."""
    live = {row.trajectory_id for row in rows if np.any(row.advantages[row.loss_mask])}
    metrics = {"groups_trained": float(sum(any(m.trajectory.id in live for m in group.members) for group in groups))}
    if not rows:
        return metrics
    staleness = version - np.concatenate([row.policy_versions[row.loss_mask] for row in rows])
    return metrics | {"staleness_max": float(staleness.max()), "staleness_mean": float(staleness.mean())}


def disposition_counts(groups: Sequence[Group], rows: Sequence[TrainingRow]) -> dict[str, int]:
    """Return trained and dropped_<reason> of the graded members; together they are all of them."""
    live = {row.trajectory_id for row in rows if np.any(row.advantages[row.loss_mask])}
    counts: Counter[str] = Counter(trained=0)
    for group in groups:
        for member in group.members:
            if member.disposition.membership is not Membership.MEMBER:
                continue
            if member.trajectory.id in live:
                counts["trained"] += 1
            elif member.disposition.gradient is Gradient.NONE:
                counts[f"dropped_masked_{member.disposition.reason}"] += 1
            else:
                counts["dropped_zero_advantage"] += 1
    return dict(counts)


def require_graded(groups: Sequence[Group], what: str) -> None:
    """Refuse to go on where nothing was measured.

    Raises:
        MeasurementError: no episode was graded; quotes the most frequent cause.
    """
    if any(group.graded() for group in groups):
        return
    causes = Counter(m.verdict.cause for group in groups for m in group.members if isinstance(m.verdict, Ungraded))
    episodes = sum(len(group.members) for group in groups)
    cause = f"; most often: {causes.most_common(1)[0][0]}" if causes else ""
    raise MeasurementError(f"{what}: none of {episodes} episodes could be graded{cause}. Nothing was learnt from them")


def with_dropped(groups: Sequence[Group], dropped: Sequence[Member]) -> list[Group]:
    """Add the attempts that were retried to their groups, for the record only."""
    by_group: dict[str, list[Member]] = {}
    for member in dropped:
        by_group.setdefault(member.trajectory.group_id, []).append(member)
    known = {group.id for group in groups}
    # With staleness, an attempt may be dropped in an earlier step than the one that trains its group.
    later = [
        Group(id=name, task_id=members[0].trajectory.task_id, members=tuple(members))
        for name, members in by_group.items()
        if name not in known
    ]
    return [replace(g, members=(*g.members, *by_group.get(g.id, ()))) for g in groups] + later
