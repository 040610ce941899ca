"""The accounts of a run: at every moment submitted = graded + ungraded + running (invariant 4).

With a log, they outlive the process: an attempt is counted by its name, once, however often the controller was killed
while it ran.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sanderling.errors import InvariantViolation
from sanderling.rollout.recall import Recall, attempt_of, group_of
from sanderling.store.episode_log import EpisodeLog, Standing
from sanderling.types import Member, Ungraded

_FLOWS = ("submitted", "graded", "ungraded", "retried")


class Reception(StrEnum):
    """What became of a result that was handed in."""

    ACCEPTED = "accepted"
    REFUSED = "refused"  # the attempt had ended before, or its group is trained: logged and otherwise ignored


class _State(StrEnum):
    RUNNING = "running"
    GRADED = "graded"
    UNGRADED = "ungraded"
    STORED = "stored"  # ungraded, and in the rollouts of a step already, which may come before that of its group

    @property
    def account(self) -> str:
        return "ungraded" if self is _State.STORED else self.value


@dataclass(slots=True)
class Ledger:
    """Counts attempts. It is the one mutable account of the rollout stage; everybody else reads `snapshot()`."""

    log: EpisodeLog | None = None  # None: accounts of this process only, as for an evaluation
    earlier: Recall = field(default_factory=Recall)  # what earlier processes of the run logged
    submitted: int = 0
    graded: int = 0
    ungraded: int = 0
    running: int = 0
    retried: int = 0
    refused: int = 0
    stops: Counter[str] = field(default_factory=Counter)
    _ahead: dict[str, dict[str, _State]] = field(default_factory=dict)  # attempts of groups not handed over, by group
    _mark: dict[str, int] = field(
        default_factory=dict
    )  # what the reports add up to: the accounts at the end of the last step

    def restore(self, standing: Standing) -> None:
        """Take over the accounts of earlier processes, as they were at the step from which the run goes on.

        Attempts of untrained groups that can't be recalled are taken out: they are submitted again. What ran and has no name
        in the log is ungraded: nobody knows any more what it was.
        """
        self._mark = dict(standing.reported)
        for name, value in standing.accounts.items():
            setattr(self, name, value)
        for name, state in standing.ahead.items():
            if self.earlier.has(name):
                self._ahead.setdefault(group_of(name), {})[name] = _State(state)
            else:
                self._count(name, _State(state), -1)
        named = sum(state is _State.RUNNING for attempts in self._ahead.values() for state in attempts.values())
        self.running, self.ungraded = named, self.ungraded + self.running - named
        self.check()

    def recall(self, name: str) -> tuple[Member, ...] | None:
        """Return the rows of an attempt that ended in an earlier process, counted like one that ran now; None: run it."""
        members = self.earlier.take(name)
        if members is None:
            for reason in self.earlier.unusable(name):
                self.refuse(name, reason)
            return None
        known = self._ahead.get(group_of(name), {}).get(name)
        if known in (None, _State.RUNNING):  # the others were counted before the step from which the run went on
            self._submit(name)
            self._end(name, members)
        if self.log is not None:
            self.log.recalled(name)
        return members

    def require_whole(self, group_ids: Sequence[str], size: int) -> None:
        """Recall all of these groups or none of them; see `Recall.keep_whole`."""
        for name in self.earlier.keep_whole(group_ids, size):
            for reason in self.earlier.unusable(name):
                self.refuse(name, reason)

    def start(self, name: str) -> None:
        """Count an attempt by its name, before anything of it exists."""
        self._submit(name)
        if self.log is not None:
            self.log.start(name)
        self.check()

    def finish(self, members: Sequence[Member]) -> Reception:
        """Count and log the end of an attempt: its rows, the root first.

        A second result of one attempt, or one that comes after its group was handed over, is refused and logged.
        """
        name = members[0].trajectory.id
        if self._ahead.get(group_of(name), {}).get(name) is not _State.RUNNING:
            self.refuse(name, "a late result: this attempt has ended, or its group was handed over")
            return Reception.REFUSED
        if self.log is not None:
            self.log.end(name, members, self.earlier.weights_of(members))
        self._end(name, members)
        return Reception.ACCEPTED

    def abandon(self, name: str) -> None:
        """Count an attempt that was cancelled before it had a record."""
        if self._ahead.get(group_of(name), {}).get(name) is _State.RUNNING:
            self._move(name, _State.UNGRADED)
            self.stops["cancelled"] += 1
        self.check()

    def refuse(self, name: str, reason: str) -> None:
        """Log that a result is not taken."""
        self.refused += 1
        if self.log is not None:
            self.log.refuse(name, reason)

    async def durable(self) -> None:
        """Wait until everything logged so far is on disk.

        Raises:
            RunFolderError: the disk fails.
        """
        if self.log is not None:
            await self.log.durable()

    def hand_over(self, group_id: str) -> None:
        """Note that a group goes to the trainer: no result of it is taken any more."""
        self._ahead.pop(group_id, None)

    def note_stored(self, name: str) -> None:
        """Note that a retried attempt goes into the rollouts of a step, before its group does."""
        if name in (attempts := self._ahead.get(group_of(name), {})):
            attempts[name] = _State.STORED

    def is_stored(self, name: str) -> bool:
        """Return whether an attempt is in the rollouts of a step that stands."""
        return self._ahead.get(group_of(name), {}).get(name) is _State.STORED

    def note_weights(self, version: int, fingerprint: str) -> None:
        """Note which weights the engine samples from since now."""
        known = self.earlier.weights | {version: fingerprint}
        oldest = version - 1 - (0 if self.log is None else self.log.behind)
        self.earlier.weights = {v: name for v, name in known.items() if v >= oldest}

    def close_step(self, step: int) -> dict[str, int]:
        """Return what the step added to the accounts (`running` is a level, not a flow) and begin the next step's."""
        now = self.snapshot()
        flow = {name: now[name] - self._mark.get(name, 0) for name in _FLOWS} | {"running": self.running}
        self._mark = now
        if self.log is not None:
            self.log.begin(self.standing(step))
        return flow

    def standing(self, step: int) -> Standing:
        """Return where the run stands, for the log."""
        ahead = {name: state.value for attempts in self._ahead.values() for name, state in attempts.items()}
        return Standing(
            step=step,
            weights=dict(self.earlier.weights),
            accounts=self.snapshot(),
            reported=dict(self._mark),
            ahead=ahead,
        )

    def check(self) -> None:
        """Raise InvariantViolation if the accounts do not add up."""
        if self.running < 0 or self.submitted != self.graded + self.ungraded + self.running:
            raise InvariantViolation(
                f"accounts do not add up: submitted {self.submitted} != graded {self.graded} + ungraded {self.ungraded} "
                f"+ running {self.running}"
            )

    def snapshot(self) -> dict[str, int]:
        return {
            "submitted": self.submitted,
            "graded": self.graded,
            "ungraded": self.ungraded,
            "running": self.running,
            "retried": self.retried,
        }

    def _submit(self, name: str) -> None:
        attempts = self._ahead.setdefault(group_of(name), {})
        if name not in attempts:
            attempts[name] = _State.RUNNING
            self._count(name, _State.RUNNING, 1)

    def _end(self, name: str, members: Sequence[Member]) -> None:
        ungraded = isinstance(members[0].verdict, Ungraded)
        self._move(name, _State.UNGRADED if ungraded else _State.GRADED)
        self.stops[members[0].trajectory.stop.value] += 1
        self.check()

    def _move(self, name: str, state: _State) -> None:
        self._ahead[group_of(name)][name] = state
        self.running -= 1
        setattr(self, state.value, getattr(self, state.value) + 1)

    def _count(self, name: str, state: _State, by: int) -> None:
        self.submitted += by
        self.retried += by * (attempt_of(name) > 0)
        setattr(self, state.account, getattr(self, state.account) + by)
