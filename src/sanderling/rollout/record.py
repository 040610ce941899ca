"""The growing record of one episode, and the trajectories that it becomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sanderling.harness.protocol import Continuation, Transcript
from sanderling.rollout.checks import check_contexts
from sanderling.rollout.context import ContextBuffer
from sanderling.types import Action, Gradient, Int32Array, Observation, StopReason, Timing, Trajectory, Turn, Usage


@dataclass(slots=True)
class _Row:
    """A run of turns in which the context only grew."""

    prompt_ids: Int32Array
    context: ContextBuffer
    turns: list[Turn] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)  # digest of each context that went to the engine
    gradient: Gradient = Gradient.FULL

    @classmethod
    def begin(cls, prompt_ids: Int32Array) -> _Row:
        return cls(prompt_ids, ContextBuffer(prompt_ids))

    def usage(self, commands: int) -> Usage:
        return Usage(
            sampled_tokens=sum(len(turn.action.token_ids) for turn in self.turns),
            observation_tokens=sum(len(turn.observation.token_ids) for turn in self.turns),
            commands=commands,
            bad_calls=sum(len(turn.observation.bad_calls) for turn in self.turns),
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
    """Collects turns in rows. A new row begins where the codec changed what stands before the next action."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._rows = [_Row.begin(transcript.prompt_ids)]
        self.num_turns = 0
        self.bad_in_a_row = 0
        self.commands = 0
        self.sandbox_s = self.sample_s = self.tools_s = 0.0

    @property
    def length(self) -> int:
        """Tokens of the context."""
        return self._rows[-1].context.length

    def context(self) -> Int32Array:
        """Return the ids of everything up to here, (T,), read-only."""
        return self._rows[-1].context.view()

    def note_sent(self) -> None:
        """Keep the digest of the context, which goes to the engine now."""
        row = self._rows[-1]
        row.sent.append(row.context.digest())

    def continuation(self, action: Action, observations: Sequence[str]) -> Continuation:
        """Return what the codec puts between an action and the next one."""
        return self._transcript.extend(action, observations)

    def append(self, turn: Turn) -> None:
        row = self._rows[-1]
        row.turns.append(turn)
        row.context.append(turn.action.token_ids)
        row.context.append(turn.observation.token_ids)
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
        return frozenset(_row_id(name, k) for k, row in enumerate(self._kept()) if row.gradient is Gradient.NONE)

    def _kept(self) -> list[_Row]:
        """Return the rows that become trajectories: the first one, and every other that was acted in."""
        return [row for number, row in enumerate(self._rows) if number == 0 or row.turns]

    def trajectories(self, name: str, ending: Ending, total_s: float) -> tuple[Trajectory, ...]:
        """Return one trajectory per row, checked; the first is the root, which carries commands and timing of the episode.

        A row that was begun and never acted in is left out.

        Raises:
            InvariantViolation: ids that were sent are not those that are stored, or per-token lists disagree.
        """
        timing = Timing(sandbox_s=self.sandbox_s, sample_s=self.sample_s, tools_s=self.tools_s, total_s=total_s)
        made = []
        for number, row in enumerate(self._kept()):
            trajectory = Trajectory(
                id=_row_id(name, number),
                task_id=ending.task_id,
                group_id=ending.group_id,
                attempt=ending.attempt,
                prompt_ids=row.prompt_ids,
                turns=tuple(row.turns),
                stop=ending.stop,
                detail=ending.detail[:500],
                isolation=ending.isolation,
                parent_id=name if number else None,
                forked_at=0 if number else None,
                usage=row.usage(0 if number else self.commands),
                timing=Timing() if number else timing,
            )
            check_contexts(trajectory, row.sent, row.context.view())
            made.append(trajectory)
        return tuple(made)


def _row_id(name: str, number: int) -> str:
    return f"{name}+{number}" if number else name


def nothing() -> Observation:
    """Return the observation of an action after which nothing comes."""
    return Observation(token_ids=np.empty(0, dtype=np.int32), text="")
