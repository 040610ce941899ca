"""Numbers of one step, from its groups and rows. Names are declared in `sanderling.store.declared`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sanderling.credit.episodes import Episode, episodes, own_turns
from sanderling.errors import MeasurementError
from sanderling.store.estimators import wilson
from sanderling.types import (
    Branching,
    Graded,
    Gradient,
    Group,
    Member,
    Membership,
    StopReason,
    TrainingRow,
    Trajectory,
    Ungraded,
)


def solve_counts(groups: Sequence[Group]) -> tuple[int, int]:
    """Return (solved, graded): episodes with reward 1 and episodes that enter a baseline.

    Solved is what the verifier said, before any penalty for length or limits. Forks don't count: they begin where another
    episode led, so they say nothing about the policy from the start.
    """
    rewards = [
        member.verdict.reward if isinstance(member.verdict, Graded) else member.disposition.reward
        for member in _graded_roots(groups)
    ]
    return sum(reward == 1.0 for reward in rewards), len(rewards)


def episode_metrics(groups: Sequence[Group], dropped: Sequence[Member]) -> dict[str, float]:
    """Return what the episodes of a step show, before anything is trained."""
    graded = [episode for group in groups for episode in episodes(group)]
    everyone = [m for g in groups for m in g.roots() if m.disposition.membership is not Membership.PROBE]
    dropped = [member for member in dropped if member.trajectory.begins_episode]
    solved, total = solve_counts(groups)
    low, high = wilson(solved, total)
    metrics = {
        "solve_rate": solved / total if total else 0.0,
        "solve_rate_low": low,
        "solve_rate_high": high,
        "groups_total": float(len(groups)),
        "groups_zero_variance": float(sum(_uniform(group) for group in groups)),
        "members_excluded": float(len(everyone) - len(graded) + len(dropped)),
    }
    stops = Counter(member.trajectory.stop for member in [*everyone, *dropped])
    count = len(everyone) + len(dropped)
    metrics |= {f"stop_{stop.value}": stops[stop] / count for stop in StopReason if stops[stop]}
    if graded:
        metrics |= _shape(graded)
    return metrics | _state_groups(groups)


def fork_counts(groups: Sequence[Group]) -> dict[str, int]:
    """Return what forking cost: forks, the turns and the tokens that were theirs alone; {} where nothing was forked."""
    rows: dict[str, list[Trajectory]] = {}
    for trajectory in (m.trajectory for group in groups for m in group.members):
        if trajectory.branching is Branching.FORK and trajectory.parent_id is not None:
            rows[trajectory.id] = [trajectory]
        elif trajectory.parent_id in rows:
            rows[trajectory.parent_id].append(trajectory)
    if not rows:
        return {}
    own = [row for fork in rows.values() for row in fork]
    return {
        "forks": len(rows),
        "fork_turns": sum(len(own_turns(row)) for row in own),
        "fork_sampled_tokens": sum(row.usage.sampled_tokens for row in own),
    }


def _graded_roots(groups: Sequence[Group]) -> list[Member]:
    everyone = [m for group in groups for m in group.roots() if m.trajectory.parent_id is None]
    return [m for m in everyone if m.disposition.membership is Membership.MEMBER]


def _shape(graded: Sequence[Episode]) -> dict[str, float]:
    ends = [episode.members[0].trajectory for episode in graded]
    shapes = [_episode_shape(episode) for episode in graded]
    turns, actions, contexts, bad_calls, tests = (np.array(column) for column in zip(*shapes, strict=True))
    rewards = np.array([episode.reward for episode in graded])
    return {
        "reward_mean": float(rewards.mean()),
        "reward_std": float(rewards.std()),
        "turns_mean": float(turns.mean()),
        "turns_max": float(turns.max()),
        "action_tokens_mean": float(actions.mean()),
        "action_tokens_max": float(actions.max()),
        "context_tokens_mean": float(contexts.mean()),
        "context_tokens_max": float(contexts.max()),
        "submitted_share": float(np.mean([t.stop is StopReason.SUBMITTED for t in ends])),
        "bad_call_share": int(bad_calls.sum()) / max(1, int(turns.sum())),
        "tests_run_mean": float(tests.mean()),
        "refused_submissions": float(sum(_refused(episode.members[0]) for episode in graded)),
    }


def _episode_shape(episode: Episode) -> tuple[int, int, int, int, int]:
    """Return turns, sampled tokens, tokens of the longest row, bad calls and test runs of one episode, all rows together."""
    rows = [member.trajectory for member in episode.members]
    own = [turn for row in rows for turn in own_turns(row)]
    longest = max(len(row.token_ids()) for row in rows)
    tests = sum(turn.observation.source == "tests" for turn in own)
    return len(own), sum(r.usage.sampled_tokens for r in rows), longest, sum(r.usage.bad_calls for r in rows), tests


def _uniform(group: Group) -> bool:
    rewards = [episode.reward for episode in episodes(group)]
    return len(rewards) > 1 and float(np.ptp(rewards)) == 0.0


def _refused(member: Member) -> bool:
    evidence = getattr(member.verdict, "evidence", None)
    return evidence is not None and any("refused" in note for note in evidence.notes)


def _state_groups(groups: Sequence[Group]) -> dict[str, float]:
    """Return how often siblings meet in the same state: what credit by state groups would have to work with."""
    sizes: list[int] = []
    for group in groups:
        keys = Counter(
            turn.state_key for m in group.graded() for turn in own_turns(m.trajectory) if turn.state_key is not None
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
    """Return trained and dropped_<reason> of the graded episodes; together they are all of them."""
    live = {row.trajectory_id for row in rows if np.any(row.advantages[row.loss_mask])}
    counts: Counter[str] = Counter(trained=0)
    for root in (root for group in groups for root in group.roots()):
        fate = root.disposition
        if isinstance(root.verdict, Graded) and fate.membership is Membership.EXCLUDED:
            counts[f"dropped_{fate.reason.removeprefix('dropped_')}"] += 1
        elif fate.membership is Membership.PROBE:
            counts["dropped_probe"] += 1
    for episode in (episode for group in groups for episode in episodes(group)):
        fate = episode.members[0].disposition
        if any(member.trajectory.id in live for member in episode.members):
            counts["trained"] += 1
        elif fate.gradient is Gradient.NONE:
            counts[f"dropped_masked_{fate.reason}"] += 1
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
    causes = Counter(m.verdict.cause for group in groups for m in group.roots() if isinstance(m.verdict, Ungraded))
    count = sum(len(group.roots()) for group in groups)
    cause = f"; most often: {causes.most_common(1)[0][0]}" if causes else ""
    if screened := count - causes.total():
        cause += f"; {screened} were excluded by screening"
    raise MeasurementError(f"{what}: none of {count} episodes could be graded{cause}. Nothing was learnt from them")


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
