"""What a report says, computed from the run folder alone: rates with intervals, accounts, families, examples."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sanderling.store.estimators import wilson
from sanderling.store.reader import Rollouts, RunReader
from sanderling.types import Member, Membership, StepReport

Heads = Sequence[Mapping[str, Any]]


class Decoding(StrEnum):
    """How the actions of an evaluation were drawn; a label that ends in -greedy says greedy."""

    SAMPLED = "sampled"
    GREEDY = "greedy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A share of solved tasks with its 95 % Wilson interval."""

    solved: int
    graded: int

    @property
    def value(self) -> float:
        return self.solved / self.graded if self.graded else math.nan

    @property
    def low(self) -> float:
        return wilson(self.solved, self.graded)[0]

    @property
    def high(self) -> float:
        return wilson(self.solved, self.graded)[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSummary:
    """One training step as it is on disk."""

    step: int
    rate: Rate
    stops: Mapping[str, int]  # every trajectory, excluded ones too
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One evaluation as it is on disk."""

    label: str
    step: int | None
    decoding: Decoding
    rate: Rate
    excluded: int
    by_family: Mapping[str, Rate]
    rewards: Mapping[str, tuple[float, ...]]  # by task id


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """The same tasks before and after; a task counts as solved when most of its graded trajectories solved it."""

    both: int
    gained: int
    lost: int
    neither: int

    @property
    def p_value(self) -> float:
        """Exact two-sided sign test of gained against lost: how likely so lopsided a split is without any change."""
        n, k = self.gained + self.lost, min(self.gained, self.lost)
        return min(1.0, 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2**n)


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One trajectory to show."""

    title: str
    source: str
    prompt: str
    member: Member


def step_summaries(reader: RunReader) -> list[StepSummary]:
    """Return one summary per stored training step."""
    return [_step_summary(step, reader.heads(f"step={step:06d}")) for step in reader.steps()]


def evaluations(reader: RunReader) -> list[Evaluation]:
    """Return the evaluations, in the order of their steps; those without a step keep the order in which they were taken."""
    found = [_evaluation(reader, label) for label in reader.evaluations()]
    return sorted(found, key=lambda one: math.inf if one.step is None else one.step)


def before_and_after(found: Sequence[Evaluation], decoding: Decoding) -> tuple[Evaluation | None, Evaluation | None]:
    """Return the evaluations of one decoding to compare: those named so, else the first and the last."""
    alike = [one for one in found if one.decoding is decoding]
    named = {one.label.removesuffix("-greedy"): one for one in alike}
    before = named.get("before") or (alike[0] if alike else None)
    after = named.get("after") or (alike[-1] if len(alike) > 1 else None)
    return before, None if after is before else after


def smoothed(steps: Sequence[StepSummary], width: int) -> list[Rate]:
    """Return the rate over a centred window of `width` steps: counts are pooled, so the interval is that of the pool."""
    half = width // 2
    windows = [steps[max(0, i - half) : i + half + 1] for i in range(len(steps))]
    return [
        Rate(solved=sum(one.rate.solved for one in window), graded=sum(one.rate.graded for one in window))
        for window in windows
    ]


def pairing(before: Evaluation, after: Evaluation) -> Pairing | None:
    """Return how the tasks of both evaluations changed, or None where they share none."""
    shared = [task for task in before.rewards if task in after.rewards]
    if not shared:
        return None
    split = Counter((_mostly(before.rewards[task]), _mostly(after.rewards[task])) for task in shared)
    return Pairing(
        both=split[True, True], gained=split[False, True], lost=split[True, False], neither=split[False, False]
    )


def family_of(head: Mapping[str, Any]) -> str:
    """Return the task's family: its label, else the last part of the task id without a number."""
    labels = dict(head["task_metadata"] or ())
    if "family" in labels:
        return labels["family"]
    name, _, number = head["task_id"].rpartition("/")[2].rpartition("-")
    return name if name and number.isdigit() else head["task_id"].rpartition("/")[2]


def totals(reports: Sequence[StepReport]) -> dict[str, int]:
    """Return the counts of all steps added up; `running` is a level, so its last value stands."""
    summed: Counter[str] = Counter()
    for report in reports:
        summed.update(dict(report.counts))
    if reports and "running" in summed:
        summed["running"] = reports[-1].counts.get("running", 0)
    return dict(summed)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """A task that was quarantined, or audited because the run stopped itself, and what its audit says."""

    task: str
    why: str  # since which step, and for what
    taken_back: bool
    verdict: str  # of the audit; empty: there was none
    against: tuple[str, ...]
    command: str  # that audits it from a terminal; empty: there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Screening:
    """What the screens found in the training episodes."""

    counts: Mapping[str, int]  # hacks_proven, hacks_suspected, screens_failed, findings_<severity>, over all steps
    proven: Rate  # of all graded episodes
    by_screen: Sequence[tuple[str, str, int]]  # (screen, severity, findings), the most frequent first
    set_aside: Sequence[SetAside]

    @property
    def quarantined(self) -> int:
        """Tasks that were quarantined at some time."""
        return sum(bool(one.why) for one in self.set_aside)


def screening(reader: RunReader, reports: Sequence[StepReport]) -> Screening | None:
    """Return what was found; None for a run without screening."""
    counts = totals(reports)
    if "hacks_proven" not in counts:
        return None
    found: Counter[tuple[str, str]] = Counter()
    if any(counts.get(f"findings_{severity}") for severity in ("info", "suspected", "proven")):
        for step in reader.steps():
            found.update((row["screen"], row["severity"]) for row in reader.findings(f"step={step:06d}"))
    return Screening(
        counts=counts,
        proven=Rate(solved=counts["hacks_proven"], graded=counts.get("graded", 0)),
        by_screen=[(screen, severity, number) for (screen, severity), number in found.most_common()],
        set_aside=_set_aside(reader.events()),
    )


def _set_aside(events: Sequence[Mapping[str, Any]]) -> list[SetAside]:
    """Return what the newest events say of each task; an audit counts where no later quarantine made it old."""
    latest: dict[str, dict[str, Mapping[str, Any]]] = {}
    for event in events:
        if event["kind"] == "quarantined":
            latest.setdefault(event["task"], {}).clear()
        if event["kind"] in ("quarantined", "task_audited", "readmitted"):
            latest.setdefault(event["task"], {})[event["kind"]] = event
    rows = []
    for task, found in latest.items():
        why, audit = found.get("quarantined"), found.get("task_audited", {})
        rows.append(
            SetAside(
                task=task,
                why=f"step {why['step']}: {why['reason']}" if why else "",
                taken_back="readmitted" in found,
                verdict=audit.get("verdict", ""),
                against=tuple(audit.get("against", ())),
                command=audit.get("command", ""),
            )
        )
    return rows


def is_solved(reward: float | None) -> bool:
    """Return whether a reward says that the task was solved: 1 or more. None (unknown) doesn't."""
    return reward is not None and reward >= 1.0


def examples(reader: RunReader, before: Evaluation | None, after: Evaluation | None) -> list[tuple[Example, ...]]:
    """Return what to show, in rows: the same task before and after, else one solved and one failed training episode."""
    if before is not None and after is not None:
        return _paired_examples(reader, before, after)
    for step in reversed(reader.steps()):
        rollouts = reader.rollouts(step)
        graded = [member for member in rollouts.members() if member.disposition.membership is Membership.MEMBER]
        solved = [member for member in graded if is_solved(member.disposition.reward)]
        failed = [member for member in graded if not is_solved(member.disposition.reward)]
        chosen = [(f"Step {step}, solved", solved), (f"Step {step}, not solved", failed)]
        if graded:
            return [tuple(_example(title, rollouts, some[0]) for title, some in chosen if some)]
    return []


def _paired_examples(reader: RunReader, before: Evaluation, after: Evaluation) -> list[tuple[Example, ...]]:
    shared = [task for task in before.rewards if task in after.rewards]
    states = {task: (_mostly(before.rewards[task]), _mostly(after.rewards[task])) for task in shared}
    gained = [task for task in shared if states[task] == (False, True)]
    failing = [task for task in shared if states[task] == (False, False)]
    first, second = reader.evaluation(before.label), reader.evaluation(after.label)
    rows = []
    for task in _spread(gained, 2) + failing[:1]:
        row = [
            _example(f"{title}: {'solved' if is_solved(member.disposition.reward) else 'not solved'}", rollouts, member)
            for title, rollouts, wanted in (("Before", first, False), ("After", second, states[task][1]))
            if (member := _member_of(rollouts, task, solved=wanted)) is not None
        ]
        rows.append(tuple(row))
    return rows


def _spread(tasks: list[str], count: int) -> list[str]:
    """Return `count` of the tasks from different places of the list, so that they differ in kind."""
    if len(tasks) <= count:
        return tasks
    return [tasks[len(tasks) * index // count] for index in range(count)]


def _member_of(rollouts: Rollouts, task: str, *, solved: bool) -> Member | None:
    graded = [member for group in rollouts.groups if group.task_id == task for member in group.graded()]
    return next((member for member in graded if is_solved(member.disposition.reward) == solved), None)


def _example(title: str, rollouts: Rollouts, member: Member) -> Example:
    prompt = rollouts.task_prompts.get(member.trajectory.task_id, "")
    return Example(title=title, source=rollouts.source, prompt=prompt, member=member)


def _episodes(heads: Heads) -> Heads:
    """Return one head per episode from the task's start: that of its first row."""
    return [head for head in heads if head["parent_id"] is None]


def _step_summary(step: int, heads: Heads) -> StepSummary:
    heads = _episodes(heads)
    stops = Counter(head["stop"] for head in heads)
    return StepSummary(step=step, rate=_rate(_graded(heads)), stops=stops, total=len(heads))


def _evaluation(reader: RunReader, label: str) -> Evaluation:
    heads = _episodes(reader.heads(f"eval={label}"))
    graded = _graded(heads)
    families: dict[str, list[Mapping[str, Any]]] = {}
    rewards: dict[str, list[float]] = {}
    for head in graded:
        families.setdefault(family_of(head), []).append(head)
        rewards.setdefault(head["task_id"], []).append(head["disposition_reward"])
    return Evaluation(
        label=label,
        step=reader.step_of(f"eval={label}"),
        decoding=Decoding.GREEDY if label.rpartition("-")[2] == "greedy" else Decoding.SAMPLED,
        rate=_rate(graded),
        excluded=len(heads) - len(graded),
        by_family={name: _rate(some) for name, some in sorted(families.items())},
        rewards={task: tuple(values) for task, values in rewards.items()},
    )


def _graded(heads: Heads) -> Heads:
    return [head for head in heads if head["membership"] == Membership.MEMBER.value]


def _rate(graded: Heads) -> Rate:
    return Rate(solved=sum(is_solved(head["disposition_reward"]) for head in graded), graded=len(graded))


def _mostly(rewards: Sequence[float]) -> bool:
    return sum(map(is_solved, rewards)) * 2 > len(rewards)
