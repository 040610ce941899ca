"""Do an estimator's turn advantages say what the turns were worth? Recorded episodes are forked to find out.

Each chosen episode of a run is walked again in a fresh sandbox and forked before each of its turns, as often as asked for. What
the continuations earn is the value of a state; differences of values are the turns' advantages by Monte Carlo, which are right
on average whatever the environment. All estimators that can act on the record are held against them.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from sanderling.assemble import limits_within, load_environment, load_policy_folder, open_stage
from sanderling.batch.rows import assign_credit
from sanderling.compute import set_threads
from sanderling.config import Config
from sanderling.credit.catalogue import ESTIMATORS, load_estimator
from sanderling.credit.fork_values import with_fork_values
from sanderling.credit.measurement import Agreement, FloatArray, agreement, ceiling
from sanderling.credit.protocol import Credit, check_needs, signals_in
from sanderling.credit.turn_gae import TurnGae
from sanderling.errors import ConfigError, MeasurementError, ReplayError, SandboxError, SanderlingError
from sanderling.learn.measure import fork_counts
from sanderling.rollout.config import ForkConfig
from sanderling.rollout.episode import Plan
from sanderling.rollout.forking import RolloutParts, check_forkable, start_forks
from sanderling.rollout.ledger import Ledger
from sanderling.rollout.replay import Recorded, recorded_episodes, replay
from sanderling.rollout.seeds import derive
from sanderling.rollout.task_stream import with_limits
from sanderling.store.reader import Rollouts, RunReader
from sanderling.types import Group, Member, Membership, Task

REFERENCE = TurnGae(lam=0.0, at_budget="terminal")  # A_k = r_k + V(s_{k+1}) - V(s_k)
FORKED = "vine"  # the estimator that reads values by forks


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to measure."""

    run: Path
    source: str | None = None  # rollout folder, such as "step=000001"; None: the first step, or the first evaluation
    episodes: int = 16
    continuations: int = (
        8  # of each turn; half of them make the estimator "vine", and what it is held against the other half
    )
    estimators: tuple[str, ...] = ()  # (): all that are built in
    policy: str | None = None  # None: the policy that sampled the record
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditMeasurement:
    """Agreement by estimator, and what it cost to know."""

    about: Mapping[str, Any]
    cost: Mapping[str, float]
    halves: Agreement  # of references from either half of the continuations
    found: Mapping[str, Agreement]
    auxiliary_turns: Mapping[
        str, int
    ]  # of the environment, beyond the recorded episodes, that the estimator's numbers took
    refused: Mapping[str, str]
    skipped: Mapping[str, int] = field(default_factory=dict)  # episodes that could not be walked again, by reason

    def as_json(self) -> dict[str, Any]:
        known = self.halves.correlation.value if self.halves.correlation else 0.0
        reference = {"halves": _as_json(self.halves), "ceiling": ceiling(known)}
        lines = {
            name: _as_json(one) | {"auxiliary_turns": self.auxiliary_turns[name]} for name, one in self.found.items()
        }
        return {
            **self.about,
            "cost": dict(self.cost),
            "reference": reference,
            "estimators": lines,
            "refused": dict(self.refused),
            "skipped": dict(self.skipped),
        }


def _as_json(one: Agreement) -> dict[str, Any]:
    return {
        "correlation": one.correlation.as_json() if one.correlation else None,
        "sign_agreement": one.signs.as_json() if one.signs else None,
        "turns": one.turns,
        "decided_turns": one.decided,
    }


@dataclass(slots=True, kw_only=True)
class _Measuring:
    """What was found so far."""

    groups: dict[str, Group]
    probes: dict[str, list[Member]] = field(default_factory=dict)  # by episode
    skipped: Counter[str] = field(default_factory=Counter)
    replayed_turns: int = 0


async def measure_credit(config: Config, request: Request) -> CreditMeasurement:
    """Fork recorded episodes and compare; `config` is that of the run, with overrides.

    Raises:
        ConfigError: the record's policy is gone, its tokens come from several policies, or the environment can't be forked.
        ReplayError: not one of the chosen episodes could be walked again; says why.
        RunFolderError, ModelError, SandboxUnavailable: a part can't be opened.
    """
    if request.continuations < 2 or request.episodes < 1:
        raise ConfigError(
            f"continuations = {request.continuations}, episodes = {request.episodes}: expected at least 2 continuations, which "
            "are halved to see how far the reference itself can be trusted, and at least 1 episode"
        )
    began = time.monotonic()
    rollouts = _record(config, request)
    version = _policy_version(rollouts)
    policy = load_policy_folder(request.policy or str(_policy_of(request.run, config, version)))
    environment = load_environment(config.environment, config.verifier, config.harness, config.environment_settings)
    chosen = _choose(rollouts, request)
    limits = limits_within(policy.window, config.limits, environment, config.split)
    tasks = {e.rows[0].task_id: with_limits(environment.tasks.get(e.rows[0].task_id), limits) for e in chosen}
    forks = ForkConfig(continuations=request.continuations, turns="every", use="value")
    rollout = config.rollout.model_copy(update={"forks": forks})
    set_threads(config)
    found = _Measuring(groups={group.id: group for group in rollouts.groups})
    async with open_stage(config, environment, policy, rollout) as stage:
        await check_forkable(stage, tasks[chosen[0].rows[0].task_id])
        parts = RolloutParts(stage=stage, config=rollout, ledger=Ledger(), on_dropped=lambda member: None)
        for episode in chosen:
            await _fork_episode(episode, tasks[episode.rows[0].task_id], parts, found, request)
    if not found.probes:
        raise ReplayError(f"none of {len(chosen)} episodes could be measured: {found.skipped.most_common(1)[0][0]}")
    about = {
        "run": str(request.run),
        "source": rollouts.source,
        "policy": policy.name,
        "policy_version": version,
        "episodes": len(found.probes),
        "tasks": len({e.rows[0].task_id for e in chosen if e.id in found.probes}),
        "continuations": request.continuations,
        "seed": request.seed,
    }
    return _compared(found, request, about, time.monotonic() - began)


def _record(config: Config, request: Request) -> Rollouts:
    reader = RunReader(request.run)
    sources = reader.sources()
    name = request.source or next(iter(sources), None)
    if name is None or name not in sources:
        raise ConfigError(
            f"{request.run} has no rollouts {request.source or ''!r}; it has {', '.join(sources) or 'none at all'}"
        )
    if name.rpartition("greedy")[1]:
        raise ConfigError(
            f"{name} was taken greedily: all continuations of a turn would be the same; name another source"
        )
    if config.control != "none" and name.startswith("step="):
        raise ConfigError(
            f"{request.run} is a negative control ({config.control}): its rewards belong to other episodes; measure another run"
        )
    return reader.read(name)


def _policy_version(rollouts: Rollouts) -> int:
    """Return the version of the weights that sampled all graded episodes: continuations must come from the same."""
    turns = [turn for group in rollouts.groups for m in group.graded() for turn in m.trajectory.turns]
    found = {int(v) for turn in turns for v in np.unique(turn.action.policy_versions)}
    if len(found) != 1:
        raise ConfigError(
            f"the graded episodes of {rollouts.source} were sampled by policy versions {sorted(found)}; expected exactly one, "
            "because continuations have to come from the policy that acted: measure a source of a synchronous run"
        )
    return found.pop()


def _policy_of(run: Path, config: Config, version: int) -> Path | str:
    """Return the policy that is version `version` of a run."""
    if version == 0:
        return config.policy
    kept = {}
    for state in sorted((run / "checkpoints").glob("*/state.json")):
        kept[json.loads(state.read_text("utf-8"))["run"]["policy_version"]] = state.parent
    if version not in kept:
        raise ConfigError(
            f"the record was sampled by version {version} of the policy, and {run} keeps {sorted(kept) or 'none of them'}; "
            "measure a source of version 0 (step=000001, eval=before), or name the policy with --policy"
        )
    return kept[version]


def _choose(rollouts: Rollouts, request: Request) -> list[Recorded]:
    """Draw episodes, the same ones for the same seed; graded ones with at least one turn."""
    graded = {m.trajectory.id for group in rollouts.groups for m in group.graded()}
    rows = [m.trajectory for m in rollouts.members()]
    fitting = [e for e in recorded_episodes(rows) if e.id in graded and e.rows[0].turns]
    if not fitting:
        raise ConfigError(f"{rollouts.source} has no graded episode with a turn; there is nothing to measure")
    return Random(derive(request.seed, "episodes")).sample(fitting, min(request.episodes, len(fitting)))


async def _fork_episode(
    episode: Recorded, task: Task, parts: RolloutParts, found: _Measuring, request: Request
) -> None:
    """Measure the value before each turn of one episode; one that can't be walked again is counted with its reason."""
    row = episode.rows[0]
    count = sum(len(r.turns) for r in episode.rows)
    plan = Plan(task=task, group_id=row.group_id, index=0, attempt=0, seed=derive(request.seed, episode.id))
    try:
        snapshots = await replay(episode, task, parts.stage, range(count))
    except (ReplayError, SandboxError) as error:
        found.skipped[str(error).replace(episode.id, "...")] += 1
        return
    found.replayed_turns += count - 1
    running = []
    try:
        for snapshot in snapshots.values():  # all at once, so that a lockstep engine makes the same rounds every time
            running += start_forks(plan, snapshot, request.continuations, parts)
        found.probes[episode.id] = [member for rows in await asyncio.gather(*running) for member in rows]
    finally:
        for task_of_fork in running:
            task_of_fork.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for snapshot in snapshots.values():
            await snapshot.close()


def _compared(found: _Measuring, request: Request, about: Mapping[str, Any], wall_s: float) -> CreditMeasurement:
    groups = list(found.groups.values())
    whole, first, second = (_reference(found, half) for half in (None, 0, 1))
    turns = _turns(found, whole)

    def against(credit: Credit, reference: Credit) -> Agreement:
        left, right = (_per_turn(found, turns, one) for one in (credit, reference))
        return agreement([task for task, _, _ in turns], left, right, seed=request.seed)

    costs = fork_counts([replace(groups[0], members=tuple(m for probes in found.probes.values() for m in probes))])
    shown: dict[str, Agreement] = {}
    extra: dict[str, int] = {}
    refused: dict[str, str] = {}
    for name in request.estimators or tuple(ESTIMATORS):
        if name == FORKED:
            shown[name], extra[name] = against(first, second), costs["fork_turns"] // 2
            continue
        try:
            estimator = load_estimator(name)
            check_needs(name, estimator, signals_in(groups))
            shown[name], extra[name] = against(assign_credit(groups, estimator), whole), 0
        except SanderlingError as error:
            if name not in ESTIMATORS:
                raise
            refused[name] = str(error)
    if not shown:
        raise MeasurementError(f"none of the estimators can act on this record: {next(iter(refused.values()))}")
    return CreditMeasurement(
        about=about,
        cost=costs | {"measured_turns": len(turns), "replayed_turns": found.replayed_turns, "wall_s": round(wall_s, 1)},
        halves=against(first, second),
        found=shown,
        auxiliary_turns=extra,
        refused=refused,
        skipped=found.skipped,
    )


def _reference(found: _Measuring, half: int | None) -> Credit:
    """Return advantages by Monte Carlo of the measured episodes, from all continuations or from every other one."""
    credit: dict[str, FloatArray] = {}
    for group in found.groups.values():
        measured = [m for m in group.members if _episode_of(m) in found.probes]
        if not measured:
            continue
        probes = [m for name, some in found.probes.items() if _in(group, name) for m in some if _is_of(m, half)]
        with_values = with_fork_values(replace(group, members=(*measured, *probes)))
        credit.update(REFERENCE(with_values))
    return credit


def _episode_of(member: Member) -> str:
    row = member.trajectory
    return row.id if row.begins_episode else row.parent_id or row.id


def _in(group: Group, episode: str) -> bool:
    return any(m.trajectory.id == episode for m in group.members)


def _is_of(probe: Member, half: int | None) -> bool:
    """Return whether a probe belongs to a half: "<episode>~<turn>.<number>.<attempt>", by its number."""
    if half is None:
        return True
    number = probe.trajectory.id.rpartition("~")[2].split(".")[1]
    return int(number) % 2 == half


def _turns(found: _Measuring, reference: Credit) -> list[tuple[str, str, int]]:
    """Return (task, trajectory, turn) of every turn that was measured."""
    return [
        (m.trajectory.task_id, m.trajectory.id, number)
        for group in found.groups.values()
        for m in group.members
        if m.trajectory.id in reference and m.disposition.membership is Membership.MEMBER
        for number in range(m.trajectory.forked_at or 0, len(m.trajectory.turns))
    ]


def _per_turn(found: _Measuring, turns: Sequence[tuple[str, str, int]], credit: Credit) -> FloatArray:
    """Return the advantages of the measured turns, (n,); where an estimator gives one per token, the mean of the turn."""
    by_turn: dict[str, FloatArray] = {}
    for row in (m.trajectory for group in found.groups.values() for m in group.members):
        if (given := credit.get(row.id)) is None:
            continue
        lengths = [len(turn.action.token_ids) for turn in row.turns]
        if len(given) != len(lengths):
            given = np.array([part.mean() if len(part) else 0.0 for part in np.split(given, np.cumsum(lengths)[:-1])])
        by_turn[row.id] = given
    return np.array([by_turn[name][number] for _, name, number in turns], dtype=np.float64)
