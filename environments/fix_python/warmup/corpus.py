"""Everything the policy is warmed up on: an endless stream of repairs alone and of whole episodes, in stages."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from fix_python.warmup.exercises import (
    Exercise,
    library_exercises,
    practice_exercises,
    problem_exercises,
    program_exercises,
    training_problems,
)
from fix_python.warmup.library import practice_functions
from fix_python.warmup.teacher import (
    GUESSING,
    SEARCHING,
    Demonstration,
    Habits,
    demonstrate,
    repair_many,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How long is trained, and how the learning rates end."""

    tokens: int
    falls: tuple[int, int] | None = None  # the tokens between which the learning rates fall linearly, to a fiftieth

    def rate(self, used: int) -> float:
        """Return the factor of the learning rates after so many tokens."""
        if self.falls is None:
            return 1.0
        start, end = self.falls
        return min(1.0, (end - used) / (end - start) + 0.02)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """How often a demonstration is about what, relative to each other."""

    library: float
    programs: float
    practice: float
    problems: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A part of the warm-up."""

    budget: Budget
    episodes: float  # share of whole episodes among the demonstrations; the others are repairs alone
    most_bugs: int  # in one function, of the repairs
    shares: Shares
    teachers: tuple[Habits, ...]  # of whole episodes; each shows as many as the others


MANY_BUGS = Stage(
    budget=Budget(tokens=9_000_000),
    episodes=0.2,
    most_bugs=8,
    shares=Shares(library=0.1, programs=0.2, practice=0.5, problems=0.2),
    teachers=GUESSING,
)
ONE_BUG = Stage(
    budget=Budget(tokens=5_617_092, falls=(3_000_000, 11_000_000)),
    episodes=0.6,
    most_bugs=1,
    shares=Shares(library=0.0, programs=0.1, practice=0.6, problems=0.3),
    teachers=GUESSING,
)
SEARCH = replace(ONE_BUG, budget=Budget(tokens=5_000_000, falls=(0, 5_000_000)), episodes=0.8, teachers=SEARCHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusConfig:
    """How much of what. Making the exercises takes 5 CPU-minutes, making 1,000 demonstrations of them 5 seconds."""

    library: int = 4000  # functions of the standard library, at most
    programs: int = 2500  # random programs
    practice: int = 3000  # practice functions, at most
    practice_variants: int = 3  # of each of them, with different calls
    problems: int = 1000  # training problems, at most
    problem_variants: int = 8  # of each of them, with different calls
    stages: tuple[Stage, ...] = (MANY_BUGS, ONE_BUG, SEARCH)
    other_names: float = 0.75  # share of demonstrations in which the function's names are changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercises:
    """The exercises by where they come from."""

    library: list[Exercise]
    programs: list[Exercise]
    practice: list[Exercise]
    problems: list[Exercise]


def make_exercises(config: CorpusConfig, rng: Random) -> Exercises:
    """Return all exercises. Equal for equal arguments, interpreter and standard library."""
    practice = practice_functions()[: config.practice]
    problems = training_problems()[: config.problems]
    exercises = Exercises(
        library=list(library_exercises(rng, config.library)),
        programs=list(program_exercises(rng, config.programs)),
        practice=list(practice_exercises(practice, rng, config.practice_variants)),
        problems=list(problem_exercises(problems, rng, config.problem_variants)),
    )
    log.info(
        "exercises: %d from the standard library, %d programs, %d practice functions, %d training problems",
        *map(len, (exercises.library, exercises.programs, exercises.practice, exercises.problems)),
    )
    return exercises


def demonstrations(config: CorpusConfig, stage: Stage, exercises: Exercises, rng: Random) -> Iterator[Demonstration]:
    """Yield demonstrations of a stage, without end."""
    shares = stage.shares
    pools = [
        (exercises.library, shares.library),
        (exercises.programs, shares.programs),
        (exercises.practice, shares.practice),
        (exercises.problems, shares.problems),
    ]
    filled = [(pool, weight) for pool, weight in pools if pool]
    while True:
        pool = rng.choices([pool for pool, _ in filled], [weight for _, weight in filled])[0]
        exercise = rng.choice(pool)
        if rng.random() < config.other_names:
            exercise = exercise.with_other_names(rng)
        if exercise.calls is not None and rng.random() < stage.episodes:
            yield demonstrate(exercise, rng, rng.choice(stage.teachers))
        else:
            yield repair_many(exercise, rng, stage.most_bugs)
