"""What each episode will do, known before it starts: drawn from distributions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sanderling.rollout.seeds import derive
from sanderling.simulation.config import WorkloadConfig
from sanderling.types import StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One or more turns, played as one: all their sampling, then all their tools."""

    turns: int
    action_tokens: int
    observation_tokens: int
    tools_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One episode. `stop` is reached after the last round; an infrastructure stop is the failure that ends it."""

    rounds: tuple[Round, ...]
    stop: StopReason
    reward: float
    grade_s: float

    @property
    def tokens(self) -> int:
        return sum(each.action_tokens + each.observation_tokens for each in self.rounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which episode: the group's number in the order of training, the sibling, and the attempt."""

    group: int
    index: int
    attempt: int


class Workload(Protocol):
    """Gives every episode its script. Equal places get equal scripts."""

    def prompt_tokens(self, group: int) -> int: ...

    def script(self, place: Place, rounds: int | None) -> Script:
        """Return the script of an episode in at most so many rounds; None: a round for each turn."""
        ...

    def sandbox_s(self) -> Iterator[float]:
        """Yield the seconds of one sandbox creation after the other, without an end."""
        ...

    def episode_tokens(self) -> float:
        """Return about how many tokens an episode has, prompt included."""
        ...


@dataclass(frozen=True, slots=True)
class Turns:
    """The turns of one episode, one number of each kind per turn, (T,)."""

    actions: NDArray[np.int64]
    observations: NDArray[np.int64]
    tools_s: NDArray[np.float64]

    def first(self, count: int) -> Turns:
        return Turns(self.actions[:count], self.observations[:count], self.tools_s[:count])


def gather(turns: Turns, rounds: int | None) -> tuple[Round, ...]:
    """Return the turns in at most `rounds` rounds of about as many turns each; what they add up to stays the same."""
    count = len(turns.actions)
    bounds = np.linspace(0, count, min(count, rounds or count) + 1).astype(np.int64)
    starts = bounds[:-1]
    sums = [np.add.reduceat(column, starts) for column in (turns.actions, turns.observations, turns.tools_s)]
    columns = zip(np.diff(bounds).tolist(), *(column.tolist() for column in sums), strict=True)
    return tuple(
        Round(turns=n, action_tokens=actions, observation_tokens=seen, tools_s=tools_s)
        for n, actions, seen, tools_s in columns
    )


class DrawnWorkload:
    """Implements `Workload` from distributions."""

    def __init__(self, config: WorkloadConfig, seed: int) -> None:
        self._config = config
        self._seed = seed

    def prompt_tokens(self, group: int) -> int:
        return max(1, int(self._config.prompt_tokens.draw(self._random("prompt", group), 1)[0]))

    def sandbox_s(self) -> Iterator[float]:
        random = self._random("sandboxes")
        while True:
            yield from self._config.sandbox_s.draw(random, 1024).tolist()

    def episode_tokens(self) -> float:
        work = self._config
        turns = min(work.turns.expectation(), work.max_turns)
        grown = turns * (work.action_tokens.expectation() + work.observation_tokens.expectation())
        return work.prompt_tokens.expectation() + min(grown, float(work.max_context_tokens))

    def script(self, place: Place, rounds: int | None) -> Script:
        work = self._config
        random = self._random("episode", place.group, place.index, place.attempt)
        factor, chance = self._task(place.group)
        wanted = max(1, round(float(work.turns.draw(random, 1)[0]) * factor))
        turns = self._turns(random, min(wanted, work.max_turns), factor)
        stop = StopReason.SUBMITTED if wanted <= work.max_turns else StopReason.MAX_TURNS
        length = self.prompt_tokens(place.group) + np.cumsum(turns.actions + turns.observations)
        if length[-1] > work.max_context_tokens:
            turns = turns.first(int(np.argmax(length > work.max_context_tokens)) + 1)
            stop = StopReason.MAX_TOKENS
        turns, stop = self._with_failures(random, turns, stop)
        if stop is StopReason.SUBMITTED and random.random() < work.verifier_error:
            stop = StopReason.VERIFIER_ERROR
        right = stop is StopReason.SUBMITTED and random.random() < chance
        return Script(
            rounds=gather(turns, rounds),
            stop=stop,
            reward=float(right),
            grade_s=float(work.grade_s.draw(random, 1)[0]),
        )

    def _turns(self, random: np.random.Generator, count: int, factor: float) -> Turns:
        work = self._config
        tools_s = work.tool_s.draw(random, count) * factor
        if work.tool_hangs:
            tools_s[random.random(count) < work.tool_hangs] = work.command_s
        return Turns(
            np.maximum(1, work.action_tokens.draw(random, count)).astype(np.int64),
            work.observation_tokens.draw(random, count).astype(np.int64),
            np.minimum(tools_s, work.command_s),
        )

    def _with_failures(self, random: np.random.Generator, turns: Turns, stop: StopReason) -> tuple[Turns, StopReason]:
        """Cut the episode where the first failure of ours strikes."""
        for chance, failure in (
            (self._config.sandbox_lost, StopReason.SANDBOX_LOST),
            (self._config.engine_error, StopReason.ENGINE_ERROR),
        ):
            if chance and (struck := int(random.geometric(chance))) <= len(turns.actions):
                turns, stop = turns.first(struck), failure
        return turns, stop

    def _task(self, group: int) -> tuple[float, float]:
        """Return the factor of turns and tool times, and the chance of success, that the siblings of a group share."""
        random, work = self._random("task", group), self._config
        width = float(np.sqrt(np.log1p(work.slow_tasks_cv**2)))
        factor = float(np.exp(width * random.standard_normal() - width**2 / 2))
        if work.success in (0.0, 1.0) or work.success_spread == 0.0:
            return factor, work.success
        # A beta distribution: the spread is the share of the variance that lies between tasks.
        total = (1 - work.success_spread) / work.success_spread
        return factor, float(random.beta(work.success * total, (1 - work.success) * total))

    def _random(self, *names: str | int) -> np.random.Generator:
        return np.random.default_rng(derive(self._seed, *names))
