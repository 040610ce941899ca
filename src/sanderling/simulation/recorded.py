"""A recorded run as the work of a plan: the same episodes again, on machines whose speeds are found by simulating the run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sanderling.batch.config import BatchConfig
from sanderling.config import Config, load_config
from sanderling.errors import ConfigError
from sanderling.simulation.scripts import Place, Script, Turns, gather
from sanderling.store.reader import Rollouts, RunReader
from sanderling.types import Graded, Limits, Member, StepReport, Trajectory

READ_SHARE = 0.1
"""Cost of reading a token as a share of sampling one, where nothing tells: many tokens are read in one pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """What one attempt did. Times are as recorded: with the waiting for cores, and for sampling with that for siblings."""

    turns: Turns
    script: Script  # without its rounds
    sandbox_s: float
    sample_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scales:
    """By how much recorded seconds are longer than the work in them would be on a core of its own, as factors of it."""

    sandbox: float = 1.0
    tools: float = 1.0
    grade: float = 1.0


class RecordedWorkload:
    """Implements `Workload`: group by group and sibling by sibling what a run recorded, from the start again at its end."""

    def __init__(self, groups: Sequence[_Group], groups_per_step: int, scales: Scales) -> None:
        self._groups = groups
        self._groups_per_step = groups_per_step
        self._scales = scales

    def scaled(self, scales: Scales) -> RecordedWorkload:
        return RecordedWorkload(self._groups, self._groups_per_step, scales)

    def prompt_tokens(self, group: int) -> int:
        return self._groups[group % len(self._groups)].prompt_tokens

    def script(self, place: Place, rounds: int | None) -> Script:
        siblings = self._groups[place.group % len(self._groups)].siblings
        attempts = siblings[place.index % len(siblings)]
        found = attempts[min(place.attempt, len(attempts) - 1)]
        turns = Turns(found.turns.actions, found.turns.observations, found.turns.tools_s * self._scales.tools)
        return replace(found.script, rounds=gather(turns, rounds), grade_s=found.script.grade_s * self._scales.grade)

    def sandbox_s(self) -> Iterator[float]:
        return cycle([each.sandbox_s * self._scales.sandbox for each in self.episodes()])

    def episode_tokens(self) -> float:
        return float(np.mean([_length(e.turns) + g.prompt_tokens for g in self._groups for s in g.siblings for e in s]))

    def episodes(self) -> Iterator[Episode]:
        """Yield every attempt, in the order of training."""
        for step in self.steps():
            yield from step

    def steps(self) -> Iterator[list[Episode]]:
        """Yield the attempts of one step after the other."""
        for start in range(0, len(self._groups), self._groups_per_step):
            groups = self._groups[start : start + self._groups_per_step]
            yield [episode for group in groups for attempts in group.siblings for episode in attempts]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    prompt_tokens: int
    siblings: tuple[tuple[Episode, ...], ...]  # by index, then by attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """A run as it was read: what its episodes did, what its steps took, and under which settings."""

    config: Config
    cores: int
    workload: RecordedWorkload
    reports: tuple[StepReport, ...]
    live_tokens: float  # of the rows that were trained, context included, over all steps
    members: int  # episodes that were stored, over all steps

    @property
    def batch(self) -> BatchConfig:
        return self.config.batch

    def mean(self, name: str) -> float:
        """Return the mean of one of the step reports' times."""
        return float(np.mean([report.timing[name] for report in self.reports]))

    def settings(self) -> dict[str, Any]:
        """Return the plan that the run itself is, with speeds as a first guess; `calibrated` makes them right."""
        config = self.config
        step_s, token_s, call_s = engine_speed(self.workload, lockstep=config.rollout.lockstep)
        here = config.engine.device == "cpu"
        return {
            "workload": {"episode_s": config.limits.episode_s or Limits().episode_s},
            "engine": {
                "slots": config.engine.max_batch,
                "step_s": step_s,
                "token_s": token_s,
                "call_s": call_s,
                "read_share": READ_SHARE,
                "push_s": self.mean("push_s"),
            },
            "learner": {
                "tokens_per_s": self.live_tokens / max(1e-9, self.mean("train_s") * len(self.reports)),
                "store_s": self.mean("store_s") * len(self.reports) / max(1, self.members),
            },
            "machine": {"placement": "together" if here else "apart", "cores": float(self.cores)},
            "rollout": config.rollout.model_dump(),
            "staleness": sorted({0, 1, config.rollout.max_staleness}),
            "steps": len(self.reports),
            "warmup": 0,
            "seed": config.seed,
        }


def read_run(path: Path) -> RecordedRun:
    """Read the training steps of a run folder.

    Raises:
        ConfigError: it has no finished step from the start on.
        RunFolderError: it is none, or a file is damaged.
    """
    reader = RunReader(path)
    reports = tuple(reader.reports())
    rollouts = [reader.rollouts(report.step) for report in reports]
    if not reports or reports[0].step != 1:
        raise ConfigError(
            f"{path} has no finished step from step 1 on; a plan needs a run of a few steps. Start one with "
            "sanderling train --steps=4"
        )
    config = load_config([path / "config.toml"])
    live = sum(_live_tokens(each) for each in rollouts)
    if not live:
        raise ConfigError(f"{path}: no step had anything to learn, so nothing is known of the learner's speed")
    return RecordedRun(
        config=config,
        cores=int(reader.environment().get("cores") or os.cpu_count() or 1),
        workload=RecordedWorkload(_groups(rollouts, path), config.rollout.groups_per_step, Scales()),
        reports=reports,
        live_tokens=live,
        members=sum(len(group.members) for each in rollouts for group in each.groups),
    )


def _live_tokens(rollouts: Rollouts) -> float:
    total = 0
    for member in rollouts.members():
        advantages = rollouts.advantages.get(member.trajectory.id, ())
        if any(advantage for advantage in advantages):
            total += len(member.trajectory.token_ids())
    return float(total)


def _groups(rollouts: Sequence[Rollouts], path: Path) -> list[_Group]:
    """Put the attempts of all steps in order; with staleness, a step may hold a dropped attempt of a later group."""
    found: dict[int, dict[int, dict[int, list[Member]]]] = {}
    for member in (member for each in rollouts for member in each.members()):
        trajectory = member.trajectory
        number = int(trajectory.group_id.rpartition("-")[2])
        index = int(trajectory.id.partition("+")[0].rpartition("/")[2].partition(".")[0])
        attempts = found.setdefault(number, {}).setdefault(index, {})
        attempts.setdefault(trajectory.attempt, []).append(member)
    if sorted(found) != list(range(len(found))):
        raise ConfigError(
            f"{path} lacks groups: it has the numbers {sorted(found)[:5]}...; take a run with all its steps"
        )
    return [_group(found[number]) for number in range(len(found))]


def _group(siblings: Mapping[int, Mapping[int, list[Member]]]) -> _Group:
    played = tuple(
        tuple(_episode(attempts[number]) for number in sorted(attempts)) for _, attempts in sorted(siblings.items())
    )
    first = next(iter(siblings.values()))
    root = next(iter(first.values()))[0].trajectory
    return _Group(prompt_tokens=len(root.prompt_ids), siblings=played)


def _episode(rows: Sequence[Member]) -> Episode:
    root = rows[0].trajectory
    verdict = rows[0].verdict
    script = Script(
        rounds=(),
        stop=root.stop,
        reward=verdict.reward if isinstance(verdict, Graded) else 0.0,
        grade_s=root.timing.grade_s,
    )
    turns = _turns([row.trajectory for row in rows])
    return Episode(turns=turns, script=script, sandbox_s=root.timing.sandbox_s, sample_s=root.timing.sample_s)


def _turns(rows: Sequence[Trajectory]) -> Turns:
    """Return the turns of an episode, at least one; what its tools took beyond their commands is dealt out evenly."""
    turns = [turn for row in rows for turn in row.turns]
    if not turns:
        return Turns(np.ones(1, dtype=np.int64), np.zeros(1, dtype=np.int64), np.array([rows[0].timing.tools_s]))
    durations = np.array([turn.observation.duration_s for turn in turns])
    rest = max(0.0, rows[0].timing.tools_s - float(durations.sum()))
    return Turns(
        np.array([max(1, len(turn.action.token_ids)) for turn in turns], dtype=np.int64),
        np.array([len(turn.observation.token_ids) for turn in turns], dtype=np.int64),
        durations + rest / len(turns),
    )


def _length(turns: Turns) -> int:
    return int(turns.actions.sum() + turns.observations.sum())


def engine_speed(workload: RecordedWorkload, *, lockstep: bool) -> tuple[float, float, float]:
    """Return seconds of a decoding step, what each sequence in it adds, and those of a call beside it, as a first guess.

    In lockstep a round of m tokens at most and s tokens in all takes m * step_s + s * token_s + call_s, and each episode went
    through the rounds of its step up to its own last one: a linear model of its sampling time, once the waiting for the tools
    of siblings is taken off. At its own pace an episode says nothing of who was beside it, so there a step of 32
    sequences is taken to cost twice one of none.
    """
    episodes = list(workload.episodes())
    if not lockstep:
        per_token = sum(e.sample_s for e in episodes) / sum(float(e.turns.actions.sum()) for e in episodes)
        return per_token / 2, per_token / 64, 0.0
    features, waits = _lockstep_features(workload)
    times = np.maximum(0.0, np.array([e.sample_s for e in episodes]) - waits)
    for columns in (
        [0, 1, 2],
        [0, 1],
        [1, 2],
        [0, 2],
    ):  # a speed below 0 means nothing: then it goes without one of them
        fitted = np.zeros(3)
        fitted[columns] = np.linalg.lstsq(features[:, columns], times, rcond=None)[0]
        if (fitted >= 0).all():
            return float(fitted[0]), float(fitted[1]), float(fitted[2])
    return float(times.sum() / features[:, 0].sum()) / 2, float(times.sum() / features[:, 1].sum()) / 2, 0.0


def _lockstep_features(workload: RecordedWorkload) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return for each attempt the sums over its rounds of the longest action, of all actions, and of 1, (n, 3); and how
    long it waited for slower tools than its own, (n,)."""
    rows: list[NDArray[np.float64]] = []
    waits: list[float] = []
    for siblings in workload.steps():
        most = max(len(e.turns.actions) for e in siblings)
        longest, total, slowest = np.zeros(most), np.zeros(most), np.zeros(most)
        for episode in siblings:
            count = len(episode.turns.actions)
            longest[:count] = np.maximum(longest[:count], episode.turns.actions)
            total[:count] += episode.turns.actions + READ_SHARE * np.r_[0, episode.turns.observations[:-1]]
            slowest[:count] = np.maximum(slowest[:count], episode.turns.tools_s)
        for episode in siblings:
            count = len(episode.turns.actions)
            rows.append(np.array([longest[:count].sum(), total[:count].sum(), count]))
            waits.append(float((slowest[: count - 1] - episode.turns.tools_s[:-1]).sum()))
    return np.array(rows), np.array(waits)
