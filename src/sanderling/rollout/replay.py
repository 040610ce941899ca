"""Episodes from a run folder, walked again: the recorded actions in a fresh sandbox, until something can go on from there.

Nothing is sampled. The context of a fork is made of the recorded ids, so it is what the policy saw, to the token. That the
world is the same is checked by the state keys of all turns up to the fork: they cover the workspace and what was read, without
clock times and the like (`sanderling.state_identity`). What no key can see, such as files in /tmp or a random seed that a
command drew, is not checked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sanderling.errors import ReplayError, SandboxLost
from sanderling.rollout.clock import now
from sanderling.rollout.episode import Stage
from sanderling.rollout.forking import Snapshot, take_snapshot
from sanderling.rollout.opening import Scene, Stopped, destroy
from sanderling.state_identity import form_of
from sanderling.types import Int32Array, Task, Trajectory, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One episode as it was stored: its rows in the order in which they were acted in."""

    rows: tuple[Trajectory, ...]

    @property
    def id(self) -> str:
        return self.rows[0].id

    def turns(self) -> Iterator[tuple[Turn, Int32Array | None]]:
        """Yield each turn with the prompt of the row that begins behind it; None where the row goes on."""
        for row, following in zip(self.rows, [*self.rows[1:], None], strict=True):
            for number, turn in enumerate(row.turns, 1):
                last = number == len(row.turns) and following is not None
                yield turn, following.prompt_ids if last and following is not None else None


async def replay(recorded: Recorded, task: Task, stage: Stage, at: Collection[int]) -> dict[int, Snapshot]:
    """Walk an episode again and return a snapshot before each turn in `at` (from 0); the caller closes them.

    The episode's first row must begin at the task's start.

    Raises:
        ReplayError: the prompt or a state differs from the record, or the record can't be checked.
        SandboxLost: there was no sandbox. ConfigError: the environment can't be forked.
    """
    turns = list(recorded.turns())
    if not at or max(at) >= len(turns) or min(at) < 0:
        raise ReplayError(
            f"episode {recorded.id} has {len(turns)} turns and is to be forked before {sorted(at)}; give at least one of 0 to "
            f"{len(turns) - 1}"
        )
    opening = stage.from_start(task)
    record = opening.record()
    _check_prompt(recorded, record.context())
    async with contextlib.AsyncExitStack() as stack:
        try:
            sandbox = await opening.sandbox(record)
        except Stopped as error:
            raise SandboxLost(f"no sandbox to walk episode {recorded.id} again: {error.detail}") from error
        stack.push_async_callback(destroy, sandbox)
        scene = Scene(sandbox=sandbox, conversation=opening.conversation(sandbox), record=record)
        snapshots: dict[int, Snapshot] = {}
        async with contextlib.AsyncExitStack() as failed:
            for number, (turn, new_prompt) in enumerate(turns[: max(at) + 1]):
                await _check_state(recorded.id, number, turn, scene)
                if number in at:
                    snapshots[number] = await take_snapshot(scene, recorded.id, task.limits)
                    failed.push_async_callback(snapshots[number].close)
                if number < max(at):
                    await _walk(scene, turn, new_prompt)
            failed.pop_all()
    return snapshots


async def _walk(scene: Scene, turn: Turn, new_prompt: Int32Array | None) -> None:
    """Carry out one recorded action; the record gets the turn as it was stored."""
    began = now()
    reply = await scene.conversation.act(turn.action.text)
    scene.record.tools_s += now() - began
    scene.record.note_sent()
    if reply.stop is None:  # the transcript reads what was answered, so that it goes on as it did
        scene.record.continuation(turn.action, reply.parts or (reply.text,))
    bad_calls = tuple(kind.value for kind in reply.bad_calls)  # not stored, and they count towards a limit
    stored = replace(turn, observation=replace(turn.observation, bad_calls=bad_calls))
    scene.record.append(stored, observed=reply.text)  # the state is what is read now, the context what was read then
    if new_prompt is not None:
        scene.record.begin_row(new_prompt)


def _check_prompt(recorded: Recorded, prompt_ids: Int32Array) -> None:
    stored = recorded.rows[0].prompt_ids
    if not np.array_equal(stored, prompt_ids):
        raise ReplayError(
            f"episode {recorded.id} began with {len(stored)} prompt tokens that differ from the {len(prompt_ids)} of its task "
            "now: environment, harness or tokenizer are other ones; use those of the run"
        )


async def _check_state(episode: str, number: int, turn: Turn, scene: Scene) -> None:
    found, stored = scene.record.state_key(await scene.sandbox.state_key()), turn.state_key
    if stored is None:
        raise ReplayError(
            f"turn {number} of episode {episode} has no state key, so nothing shows that the state is the same"
        )
    if form_of(found) != form_of(stored):
        raise ReplayError(
            f"turn {number} of episode {episode} has a state key of the form {form_of(stored) or 'of a bare workspace'!r}, "
            f"this environment makes {form_of(found)!r}: they can't be compared; record the episode again"
        )
    if found != stored:
        raise ReplayError(
            f"episode {episode} came to another state before turn {number}: {found}, recorded {stored}; its tools answer "
            "differently from run to run, or something that they use was changed"
        )


def recorded_episodes(rows: Sequence[Trajectory]) -> list[Recorded]:
    """Gather stored trajectories by episode, in their order. Forks are left out: they don't begin at the task's start."""
    found: dict[str, list[Trajectory]] = {}
    for row in rows:
        if row.parent_id is None:
            found[row.id] = [row]
        elif not row.begins_episode and row.parent_id in found:
            found[row.parent_id].append(row)
    return [Recorded(rows=tuple(episode)) for episode in found.values()]
