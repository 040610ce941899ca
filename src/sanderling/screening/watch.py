"""What follows from findings for groups, tasks and the run.

    proven       the episode earned 0 (`Panel.decide`); counted here
    suspected    excluded: neither compared with its siblings nor trained, since no evidence is good enough to punish by
    a task       with many of either: quarantined, not drawn any more; what still runs of it is excluded. It comes back
                 only by name (`readmitted`)
    the run      stops itself when proofs are too frequent, after its state was saved

A proof that earns 0 makes cheating unprofitable only where it is found more often than 1 - (mean reward of the group); where a
screen sees less, dropping and stopping are what is left. So the stop doesn't rely on the reward.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sanderling.errors import ConfigError, RunStopped
from sanderling.screening.config import ScreeningConfig
from sanderling.screening.findings import worst_by_episode
from sanderling.screening.panel import FAILED
from sanderling.store.estimators import wilson
from sanderling.types import Disposition, Graded, Gradient, Group, JsonValue, Member, Membership, Severity

SUSPECTED, QUARANTINED = "hack_suspected", "task_quarantined"  # reasons of a disposition


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """A task that isn't trained on any more, since which step, and why."""

    task_id: str
    step: int
    reason: str


@dataclass(slots=True)
class _Tally:
    """Episodes of one task."""

    graded: int = 0
    proven: int = 0
    suspected: int = 0


@dataclass(frozen=True, slots=True)
class _Step:
    step: int
    graded: int
    proven: int


class Watch:
    """Keeps count over a run. Its state goes into checkpoints, so that a resumed run counts on."""

    def __init__(self, config: ScreeningConfig) -> None:
        self._config = config
        self._window: deque[_Step] = deque()
        self._tallies: dict[str, _Tally] = {}
        self._readmitted: dict[str, int] = {}  # what was taken back so far, as in the settings
        self.quarantined: dict[str, Quarantine] = {}  # by task id; the task stream reads its keys

    def settle(self, groups: Sequence[Group]) -> list[Group]:
        """Return the groups with suspected episodes and those of quarantined tasks excluded."""
        return list(groups) if self._config.mode != "act" else [self._settled(group) for group in groups]

    def count(self, step: int, groups: Sequence[Group]) -> tuple[Quarantine, ...]:
        """Take the episodes of a step into account; return the tasks that are quarantined by it."""
        graded, proven, touched = 0, 0, []
        for group in groups:
            severities = [severity for _, severity in _graded(group)]
            tally = self._tallies.setdefault(group.task_id, _Tally())
            tally.graded += len(severities)
            tally.proven += severities.count("proven")
            tally.suspected += severities.count("suspected")
            graded, proven = graded + len(severities), proven + severities.count("proven")
            touched.append(group.task_id)
        self._window.append(_Step(step, graded, proven))
        while sum(one.graded for one in self._window) - self._window[0].graded >= self._config.stop_window:
            self._window.popleft()
        if self._config.mode != "act":
            return ()
        reasons = {task: why for task in dict.fromkeys(touched) if (why := self._reason(task))}
        fresh = {task: Quarantine(task_id=task, step=step, reason=why) for task, why in reasons.items()}
        self.quarantined.update(fresh)
        return tuple(fresh.values())

    def metrics(self) -> dict[str, float]:
        """Return the share of proven hacks in the window, its interval, and the number of quarantined tasks."""
        proven, graded = self._share()
        low, high = wilson(proven, graded)
        return {
            "hack_rate": proven / graded if graded else 0.0,
            "hack_rate_low": low,
            "hack_rate_high": high,
            "tasks_quarantined": float(len(self.quarantined)),
        }

    def check(self) -> None:
        """Stop the run where proofs are too frequent.

        Raises:
            RunStopped: they are, in episodes after `accepted_through`.
        """
        proven, graded = self._share()
        low, _ = wilson(proven, graded)
        if self._config.mode != "act" or low <= self._config.stop_rate:
            return
        last = self._window[-1].step
        raise RunStopped(
            f"the run stopped itself after step {last}: {proven} of the last {graded} episodes are proven hacks, at least "
            f"{low:.2%} (95 % Wilson); screening.stop_rate is {self._config.stop_rate:.2%}. Its state is saved. Look at them "
            f"in rollouts/step=*/findings.parquet, repair the environment, or, if this is what you want to train on, resume "
            f"with --screening.accepted_through={last}"
        )

    def state(self) -> JsonValue:
        """Return what a resumed run needs, as JSON."""
        return {
            "window": [[one.step, one.graded, one.proven] for one in self._window],
            "tasks": {name: [t.graded, t.proven, t.suspected] for name, t in self._tallies.items()},
            "quarantined": {name: [one.step, one.reason] for name, one in self.quarantined.items()},
            "readmitted": dict(self._readmitted),
        }

    def load(self, state: JsonValue) -> tuple[Quarantine, ...]:
        """Go on from `state()` (None: from nothing) and return the tasks that the settings take back.

        Raises:
            ConfigError: `readmitted` names a task that isn't quarantined, or was at another step.
        """
        if state is not None:
            self._window = deque(_Step(*one) for one in state["window"])
            self._tallies = {name: _Tally(*counts) for name, counts in state["tasks"].items()}
            self._readmitted = dict(state["readmitted"])
            self.quarantined.clear()
            for name, (step, reason) in state["quarantined"].items():
                self.quarantined[name] = Quarantine(task_id=name, step=step, reason=reason)
        return tuple(back for name, step in self._config.readmitted.items() if (back := self._readmit(name, step)))

    def proven(self) -> tuple[str, ...]:
        """Return the ids of all tasks with proven hacks, those with the most first."""
        tallies = {name: tally for name, tally in self._tallies.items() if tally.proven}
        return tuple(sorted(tallies, key=lambda name: -tallies[name].proven))

    def _readmit(self, task: str, step: int) -> Quarantine | None:
        """Take a task back; None: it was before."""
        if self._readmitted.get(task, -1) >= step:
            return None
        known = self.quarantined.get(task)
        if known is None or known.step != step:
            since = f"was quarantined at step {known.step}" if known else "isn't quarantined"
            raise ConfigError(
                f"screening.readmitted takes back {task!r} as of step {step}, but it {since}; name a quarantined task with "
                "its step, as the event `quarantined` has them"
            )
        self._readmitted[task] = step
        del self.quarantined[task], self._tallies[task]
        return known

    def _share(self) -> tuple[int, int]:
        """Return (proven, graded) of the window's steps that nobody has accepted yet."""
        counted = [one for one in self._window if one.step > self._config.accepted_through]
        return sum(one.proven for one in counted), sum(one.graded for one in counted)

    def _reason(self, task: str) -> str:
        """Return why a task is to be quarantined now; empty: it isn't."""
        tally = self._tallies[task]
        if task in self.quarantined:
            return ""
        if tally.proven >= self._config.quarantine_proven:
            return f"{tally.proven} proven hacks in {tally.graded} episodes"
        low, _ = wilson(tally.suspected, tally.graded)
        if low > self._config.quarantine_suspected:
            return f"{tally.suspected} suspected of {tally.graded} episodes, at least {low:.1%}"
        return ""

    def _settled(self, group: Group) -> Group:
        severities = worst_by_episode(group)

        def settled(member: Member) -> Member:
            record = member.trajectory
            if group.task_id in self.quarantined:
                return _excluded(member, QUARANTINED)
            suspected = severities[record.parent_id or record.id] == "suspected"
            return _excluded(member, SUSPECTED) if suspected else member

        return replace(group, members=tuple(settled(member) for member in group.members))


def screening_counts(groups: Sequence[Group]) -> dict[str, int]:
    """Return what was found in the episodes of a step; all of it is 0 where nothing was."""
    found = [finding for group in groups for member in group.members for finding in member.findings]
    episodes = [severity for group in groups for _, severity in _graded(group)]
    by_severity = Counter(one.severity for one in found)
    return {
        "hacks_proven": episodes.count("proven"),
        "hacks_suspected": episodes.count("suspected"),
        "screens_failed": sum(one.screen == FAILED for one in found),
        **{f"findings_{severity}": by_severity[severity] for severity in ("info", "suspected", "proven")},
    }


def _graded(group: Group) -> list[tuple[Member, Severity | None]]:
    severities = worst_by_episode(group)
    roots = [root for root in group.roots() if isinstance(root.verdict, Graded)]
    return [(root, severities[root.trajectory.id]) for root in roots]


def _excluded(member: Member, reason: str) -> Member:
    if member.disposition.membership is Membership.EXCLUDED:
        return member
    fate = Disposition(
        membership=Membership.EXCLUDED, reward=member.disposition.reward, gradient=Gradient.NONE, reason=reason
    )
    return replace(member, disposition=fate)
