"""The growing record of one episode, and the trajectories that it becomes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from sanderling.errors import ConfigError
from sanderling.harness.protocol import Continuation, Transcript
from sanderling.rollout.checks import check_contexts
from sanderling.rollout.context import ContextBuffer
from sanderling.state_identity import StateIdentity
from sanderling.types import (
    Action,
    Branching,
    Gradient,
    Int32Array,
    Observation,
    StopReason,
    Timing,
    Trajectory,
    Turn,
    Usage,
)

Part = TypeVar("Part")


@dataclass(slots=True)
class _Row:
    """A run of turns in which the context only grew. The first `shared` of them are those of the parent of a fork."""

    prompt_ids: Int32Array
    context: ContextBuffer
    turns: list[Turn] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)  # digest of each context that went to the engine
    gradient: Gradient = Gradient.FULL
    shared: int = 0

    @classmethod
    def begin(cls, prompt_ids: Int32Array) -> _Row:
        return cls(prompt_ids, ContextBuffer(prompt_ids))

    def copy(self) -> _Row:
        return replace(self, context=self.context.copy(), turns=list(self.turns), sent=list(self.sent))

    def usage(self, commands: int) -> Usage:
        own = self.turns[self.shared :]
        return Usage(
            sampled_tokens=sum(len(turn.action.token_ids) for turn in own),
            observation_tokens=sum(len(turn.observation.token_ids) for turn in own),
            commands=commands,
            bad_calls=sum(len(turn.observation.bad_calls) for turn in own),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What all trajectories of an episode share, known when it is over."""

    task_id: str
    group_id: str
    attempt: int
    stop: StopReason
    detail: str
    isolation: str


class Recorder:
    """Collects turns in rows. A new row begins where the codec changed what stands before the next action.

    `num_turns`, `bad_in_a_row` and `tools_s` count from the beginning of the episode, also in a fork: limits hold for the
    whole of it. Everything else counts what this record added itself.
    """

    def __init__(self, transcript: Transcript, states: StateIdentity | None = None) -> None:
        self._transcript = transcript
        self._states = states or StateIdentity()
        self._observed: list[bytes] = []
        self._rows = [_Row.begin(transcript.prompt_ids)]
        self._parent_id: str | None = None
        self._parent_tools_s = 0.0
        self.num_turns = 0
        self.bad_in_a_row = 0
        self.commands = 0
        self.sandbox_s = self.sample_s = self.tools_s = 0.0

    @property
    def length(self) -> int:
        """Tokens of the context."""
        return self._rows[-1].context.length

    def copy(self) -> Recorder:
        """Return an independent record of the same.

        Raises:
            ConfigError: the codec's transcripts can't be forked.
        """
        twin = copy.copy(self)
        twin._transcript = forked(self._transcript, "the codec's transcript")
        twin._observed = list(self._observed)
        twin._rows = [row.copy() for row in self._rows]
        return twin

    def fork(self, name: str) -> Recorder:
        """Return the record of an episode that goes on from here; `name` is the id of the episode recorded so far.

        Raises:
            ConfigError: the codec's transcripts can't be forked.
        """
        twin = self.copy()
        twin._parent_id = _row_name(name, len(self._rows) - 1)
        twin._rows = twin._rows[-1:]
        twin._rows[0].shared = len(twin._rows[0].turns)
        twin._parent_tools_s = self.tools_s
        twin.commands = 0
        twin.sandbox_s = twin.sample_s = 0.0
        return twin

    def context(self) -> Int32Array:
        """Return the ids of everything up to here, (T,), read-only."""
        return self._rows[-1].context.view()

    def state_key(self, workspace: str) -> str:
        """Return the key of the state that the episode is in; `workspace` is the sandbox's own digest."""
        return self._states.key(workspace, self._observed)

    def note_sent(self) -> None:
        """Keep the digest of the context, which goes to the engine now."""
        row = self._rows[-1]
        row.sent.append(row.context.digest())

    def continuation(self, action: Action, observations: Sequence[str]) -> Continuation:
        """Return what the codec puts between an action and the next one."""
        return self._transcript.extend(action, observations)

    def append(self, turn: Turn, *, observed: str | None = None) -> None:
        """Add a turn. `observed` is what was answered now, where the turn itself comes from an older record."""
        row = self._rows[-1]
        row.turns.append(turn)
        row.context.append(turn.action.token_ids)
        row.context.append(turn.observation.token_ids)
        self._observed.append(self._states.observation(turn.observation.text if observed is None else observed))
        self.num_turns += 1
        self.bad_in_a_row = self.bad_in_a_row + 1 if turn.observation.bad_calls else 0

    def begin_row(self, prompt_ids: Int32Array) -> None:
        """Go on with another context; the turns so far stay in their own row."""
        self._rows.append(_Row.begin(prompt_ids))

    def fold(self, turn: Turn, transcript: Transcript, gradient: Gradient) -> None:
        """End the row with the turn that wrote a summary, and go on with the context that begins with it.

        With gradient NONE the turn gets a row of its own, which begins with all that stood before it and isn't trained.
        """
        if gradient is Gradient.NONE:
            before = self._rows[-1]
            self.begin_row(before.context.view())
            self._rows[-1].sent.append(before.sent.pop())
            self._rows[-1].gradient = gradient
        self.append(turn)
        self._transcript = transcript
        self.begin_row(transcript.prompt_ids)

    def untrained(self, name: str) -> frozenset[str]:
        """Return the ids of the trajectories that are never trained."""
        return frozenset(_row_name(name, k) for k, row in enumerate(self._kept()) if row.gradient is Gradient.NONE)

    def _kept(self) -> list[_Row]:
        """Return the rows that become trajectories: the first one, and every other that was acted in."""
        return [row for number, row in enumerate(self._rows) if number == 0 or row.turns]

    def trajectories(self, name: str, ending: Ending, total_s: float) -> tuple[Trajectory, ...]:
        """Return one trajectory per row, checked; the first is the root, which carries commands and timing of the episode.

        A row that was begun and never acted in is left out.

        Raises:
            InvariantViolation: ids that were sent are not those that are stored, or per-token lists disagree.
        """
        tools_s = self.tools_s - self._parent_tools_s
        timing = Timing(sandbox_s=self.sandbox_s, sample_s=self.sample_s, tools_s=tools_s, total_s=total_s)
        made = []
        for number, row in enumerate(self._kept()):
            fork = number == 0 and self._parent_id is not None
            trajectory = Trajectory(
                id=_row_name(name, number),
                task_id=ending.task_id,
                group_id=ending.group_id,
                attempt=ending.attempt,
                prompt_ids=row.prompt_ids,
                turns=tuple(row.turns),
                stop=ending.stop,
                detail=ending.detail[:500],
                isolation=ending.isolation,
                parent_id=self._parent_id if fork else name if number else None,
                forked_at=row.shared if fork or number else None,
                branching=Branching.FORK if fork else Branching.ROW,
                usage=row.usage(0 if number else self.commands),
                timing=Timing() if number else timing,
            )
            check_contexts(trajectory, row.sent, row.context.view())
            made.append(trajectory)
        return tuple(made)


def forked(part: Part, what: str, *arguments: object) -> Part:
    """Return `part.fork(*arguments)`.

    Raises:
        ConfigError: it has no such method.
    """
    fork = getattr(part, "fork", None)
    if fork is None:
        raise ConfigError(
            f"this environment can't be forked: {what}, a {type(part).__name__}, has no method fork (see "
            "sanderling.harness.protocol); give it one, or set rollout.forks.continuations = 0"
        )
    return fork(*arguments)


def nothing() -> Observation:
    """Return the observation of an action after which nothing comes."""
    return Observation(token_ids=np.empty(0, dtype=np.int32), text="")


def _row_name(episode: str, number: int) -> str:
    return f"{episode}+{number}" if number else episode
