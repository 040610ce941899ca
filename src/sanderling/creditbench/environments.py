"""The suite: small decision processes, each of which separates a pair of estimators.

| name | what it asks |
|---|---|
| null | nothing of the outcome can be seen before the end: finer credit than the outcome has nothing to work with |
| progress | the same, but what was achieved so far can be seen |
| nonce | the same as progress, with a nonce in every observation: no state is ever seen twice |
| revisits | rooms that are entered again and again, and a limit on turns |
| luck | half of the outcome is luck, revealed in the middle |
| alias | the state key forgets what the policy remembers |
| alias-once | the same, but the key shows the branch once |
| lengths | a short way that is worse and a long way that is better |
| truncation | trained with 6 turns, used with 24: careful play needs up to 10 |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from sanderling.creditbench.mdp import FiniteMdp, FloatArray, table


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One of the suite: its process, and the success of the policy at which estimators are compared."""

    make: Callable[[], FiniteMdp]
    success: float
    updates: int  # batches of 16 episodes that the table takes by default
    question: str

    def build(self) -> FiniteMdp:
        return self.make()


def two_keys(name: str, *, visible: bool, unique_keys: bool = False) -> FiniteMdp:
    """Return 12 turns with 3 actions; success is 0.9 if action 0 was taken in both of the first two turns, else 0.1.

    With `visible` the number of right actions so far is seen; otherwise only the number of turns.
    """
    turns, actions, keys = 12, 3, 2
    width = keys + 1
    states = turns * width
    goal, lost = states, states + 1
    transitions = np.zeros((states + 2, actions, states + 2))
    turn_rewards, scores = np.zeros((states + 2, actions)), np.full(states + 2, np.nan)
    for t in range(turns):
        for done in range(width):
            here = t * width + done
            scores[here] = done / keys
            for action in range(actions):
                right = t < keys and action == 0
                after = min(done + right, keys)
                if t < turns - 1:
                    transitions[here, action, (t + 1) * width + after] = 1.0
                else:
                    _split(transitions, here, action, goal, lost, 0.9 if after == keys else 0.1)
            turn_rewards[here, 0] = float(t < keys)
    _stay(transitions, goal, lost)

    def seen(state: int, _turn: int) -> int:
        state = min(state, states - 1)
        return state if visible else state // width

    process = _process(name, transitions, turns, seen, ends=(goal, lost))
    return replace(process, turn_rewards=turn_rewards, scores=scores, unique_keys=unique_keys)


def rooms(name: str = "revisits") -> FiniteMdp:
    """Return 7 rooms in a row and 16 turns: forward, stay or back, and 0.15 to slip back; behind the last is the goal.

    A step forward is what a turn reward pays (1/7), although going to and fro collects it without getting anywhere.
    """
    count, turns, slip = 7, 16, 0.15
    transitions = np.zeros((count + 1, 3, count + 1))
    for room in range(count):
        for action, target in enumerate((room + 1, room, max(room - 1, 0))):
            transitions[room, action, target] += 1.0 - slip
            transitions[room, action, max(room - 1, 0)] += slip
    turn_rewards = np.zeros((count + 1, 3))
    turn_rewards[:count, 0] = 1.0 / count
    _stay(transitions, count)
    process = _process(name, transitions, turns, lambda s, _t: s, ends=(count,))
    return replace(process, turn_rewards=turn_rewards, scores=np.arange(count + 1) / count)


def luck(name: str = "luck") -> FiniteMdp:
    """Return 6 turns with 3 actions. After the first a coin adds 0.7 to the chance; each later action 0 adds 0.05."""
    turns, actions, counts = 6, 3, 6
    states = turns * 2 * counts
    goal, lost = states, states + 1

    def at(t: int, lucky: int, count: int) -> int:
        return (t * 2 + lucky) * counts + count

    transitions = np.zeros((states + 2, actions, states + 2))
    for t in range(turns):
        for lucky in (0, 1):
            for count in range(counts):
                here = at(t, lucky, count)
                for action in range(actions):
                    after = min(count + (action == 0 and t > 0), counts - 1)
                    if t == 0:
                        transitions[here, action, [at(1, 0, 0), at(1, 1, 0)]] = 0.5
                    elif t < turns - 1:
                        transitions[here, action, at(t + 1, lucky, after)] = 1.0
                    else:
                        _split(transitions, here, action, goal, lost, 0.7 * lucky + 0.05 * after)
    _stay(transitions, goal, lost)

    def seen(state: int, turn: int) -> int:
        return turn * 2 + (state // counts % 2 if state < states else 0)

    return _process(name, transitions, turns, seen, ends=(goal, lost))


def alias(name: str = "alias", *, shown_at: int | None = None) -> FiniteMdp:
    """Return 10 turns with 3 actions; the first picks a branch, and the right last action depends on it.

    The policy remembers the branch. The key is the number of turns; at turn `shown_at` it shows the branch as well.
    """
    turns, branches = 10, 3
    states = turns * branches
    goal, lost = states, states + 1
    right, wrong = (0.9, 0.5, 0.1), (0.6, 0.2, 0.0)
    transitions = np.zeros((states + 2, branches, states + 2))
    for t in range(turns):
        for branch in range(branches):
            here = t * branches + branch
            for action in range(branches):
                if t == 0:
                    transitions[here, action, branches + action] = 1.0
                elif t < turns - 1:
                    transitions[here, action, here + branches] = 1.0
                else:
                    chance = (right if action == branch else wrong)[branch]
                    _split(transitions, here, action, goal, lost, chance)
    _stay(transitions, goal, lost)

    def branch_of(state: int) -> int:
        return state % branches if state < states else 0

    def seen(state: int, turn: int) -> int:
        return min(turn, turns - 1) * branches + branch_of(state)

    def key(state: int, turn: int) -> int:
        return turn + (100 * (1 + branch_of(state)) if turn == shown_at else 0)

    return _process(name, transitions, turns, seen, key=key, ends=(goal, lost))


def two_ways(name: str = "lengths", *, short: float = 0.55, long: float = 0.75) -> FiniteMdp:
    """Return a choice of ways: action 0 leads to the end in 2 more turns with chance `short`, 1 and 2 in 12 with `long`."""
    actions, long_turns = 3, 12
    states = 3 + long_turns
    goal, lost = states, states + 1
    transitions = np.zeros((states + 2, actions, states + 2))
    transitions[0, 0, 1] = 1.0
    transitions[0, 1:, 3] = 1.0
    transitions[1, :, 2] = 1.0
    for state in range(3, states - 1):
        transitions[state, :, state + 1] = 1.0
    for action in range(actions):
        _split(transitions, 2, action, goal, lost, short)
        _split(transitions, states - 1, action, goal, lost, long)
    _stay(transitions, goal, lost)
    return _process(name, transitions, long_turns + 2, lambda s, _t: min(s, states - 1), ends=(goal, lost))


def careful_or_gamble(name: str, *, max_turns: int) -> FiniteMdp:
    """Return 10 rooms and 8 tasks that start in the first 8; `max_turns` while sampling, 24 in the objective.

    Careful play goes one room on (0.98) and needs up to 10 turns; a gamble wins at once with 0.25 and loses otherwise.
    """
    count = 10
    goal, lost = count, count + 1
    transitions = np.zeros((count + 2, 2, count + 2))
    transitions[:count, 0, lost] = 0.02
    transitions[np.arange(count), 0, np.arange(count) + 1] = 0.98
    transitions[:count, 1, goal] = 0.25
    transitions[:count, 1, lost] = 0.75
    _stay(transitions, goal, lost)
    return FiniteMdp(
        name=name,
        transitions=transitions,
        goal=goal,
        terminal=np.arange(count + 2) >= goal,
        max_turns=max_turns,
        eval_turns=24,
        views=table(count + 2, 24, lambda s, _t: s),
        keys=table(count + 2, 24, lambda s, _t: s),
        starts=tuple(range(8)),
    )


ENVIRONMENTS: Mapping[str, Environment] = {
    "null": Environment(
        make=lambda: two_keys("null", visible=False),
        success=0.5,
        updates=1000,
        question="the outcome shows only at the end",
    ),
    "progress": Environment(
        make=lambda: two_keys("progress", visible=True),
        success=0.5,
        updates=1000,
        question="what was achieved so far is visible",
    ),
    "nonce": Environment(
        make=lambda: two_keys("nonce", visible=True, unique_keys=True),
        success=0.5,
        updates=1000,
        question="progress, with a nonce in every observation",
    ),
    "revisits": Environment(make=rooms, success=0.5, updates=1000, question="rooms are entered again; 16 turns"),
    "luck": Environment(make=luck, success=0.5, updates=4000, question="half of the outcome is luck, shown half-way"),
    "alias": Environment(make=alias, success=0.5, updates=1000, question="the key forgets what the policy remembers"),
    "alias-once": Environment(
        make=lambda: alias("alias-once", shown_at=7),
        success=0.5,
        updates=1000,
        question="alias, with the branch in the key of one turn",
    ),
    "lengths": Environment(make=two_ways, success=0.7, updates=4000, question="short and worse, or long and better"),
    "truncation": Environment(
        make=lambda: careful_or_gamble("truncation", max_turns=6),
        success=0.5,
        updates=1000,
        question="sampled with 6 turns, used with 24",
    ),
}
"""The environments of the table by name. Stale samplers and losses of infrastructure are conditions on some of them."""


def _process(
    name: str,
    transitions: FloatArray,
    turns: int,
    seen: Callable[[int, int], int],
    *,
    ends: tuple[int, ...],
    key: Callable[[int, int], int] | None = None,
) -> FiniteMdp:
    states = len(transitions)
    return FiniteMdp(
        name=name,
        transitions=transitions,
        goal=ends[0],
        terminal=np.isin(np.arange(states), ends),
        max_turns=turns,
        eval_turns=turns,
        views=table(states, turns, seen),
        keys=table(states, turns, key or seen),
    )


def _split(transitions: FloatArray, here: int, action: int, goal: int, lost: int, chance: float) -> None:
    transitions[here, action, goal] = chance
    transitions[here, action, lost] = 1.0 - chance


def _stay(transitions: FloatArray, *ends: int) -> None:
    for end in ends:
        transitions[end, :, end] = 1.0
