"""Everything the policy is warmed up on, in the order in which it is learnt: repairs alone, then whole episodes."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
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
from fix_python.warmup.teacher import Demonstration, Habits, demonstrate, repair_many

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """How many demonstrations are made of each exercise, by where it comes from."""

    library: int
    programs: int
    practice: int
    problems: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusConfig:
    """How much of what. The defaults make about 6 million tokens in 5 CPU-minutes."""

    library: int = 3000  # functions of the standard library, at most
    programs: int = 2500  # random programs
    practice: int = 1000  # practice functions, at most
    practice_variants: int = 3  # of each of them, with different calls
    problems: int = 1000  # training problems, at most
    problem_variants: int = 4  # of each of them, with different calls
    repairs: Rounds = Rounds(library=1, programs=1, practice=2, problems=4)
    episodes: Rounds = Rounds(library=0, programs=2, practice=3, problems=8)
    other_names: float = 0.75  # share of demonstrations in which the function's names are changed
    rehearsal: float = 0.1  # repairs among the episodes, as a share of these
    habits: Habits = field(default_factory=Habits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercises:
    """The exercises by where they come from."""

    library: list[Exercise]
    programs: list[Exercise]
    practice: list[Exercise]
    problems: list[Exercise]

    def every(self) -> list[Exercise]:
        return [*self.library, *self.programs, *self.practice, *self.problems]

    def repeated(self, rounds: Rounds) -> list[Exercise]:
        return [
            *self.library * rounds.library,
            *self.programs * rounds.programs,
            *self.practice * rounds.practice,
            *self.problems * rounds.problems,
        ]


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


def make_demonstrations(config: CorpusConfig, exercises: Exercises, rng: Random) -> list[Demonstration]:
    """Return the demonstrations in the order of training."""

    def varied(exercise: Exercise) -> Exercise:
        return exercise.with_other_names(rng) if rng.random() < config.other_names else exercise

    every = exercises.every()
    repairs = [repair_many(varied(e), rng) for e in exercises.repeated(config.repairs)]
    running = [e for e in exercises.repeated(config.episodes) if e.calls is not None]
    episodes = [demonstrate(varied(e), rng, config.habits) for e in running]
    episodes += [repair_many(varied(e), rng) for e in rng.choices(every, k=int(config.rehearsal * len(episodes)))]
    rng.shuffle(repairs)
    rng.shuffle(episodes)
    parts = (repairs, episodes)
    log.info("demonstrations: %d repairs, %d episodes", *map(len, parts))
    return [demonstration for part in parts for demonstration in part]
