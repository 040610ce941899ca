"""Everything the policy is warmed up on, in the order in which it is learnt: copying, repairs alone, whole episodes."""

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
)
from fix_python.warmup.teacher import Demonstration, Habits, copy_lines, demonstrate, repair_many

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusConfig:
    """How much of what. The defaults make about 6 million tokens in 5 CPU-minutes."""

    library: int = 3000  # functions of the standard library, at most
    programs: int = 2500  # random programs
    practice_variants: int = 8  # of each practice function, with other names
    problem_variants: int = 14  # of each training problem, with other names
    copies: int = 1200  # demonstrations of copying
    repair_rounds: int = 2  # repairs demonstrated in each exercise
    episode_rounds: int = 2  # episodes demonstrated in each exercise that runs
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


def make_exercises(config: CorpusConfig, rng: Random) -> Exercises:
    """Return all exercises. Equal for equal arguments, interpreter and standard library."""
    exercises = Exercises(
        library=list(library_exercises(rng, config.library)),
        programs=list(program_exercises(rng, config.programs)),
        practice=list(practice_exercises(rng, config.practice_variants)),
        problems=list(problem_exercises(rng, config.problem_variants)),
    )
    log.info(
        "exercises: %d from the standard library, %d programs, %d practice functions, %d training problems",
        *map(len, (exercises.library, exercises.programs, exercises.practice, exercises.problems)),
    )
    return exercises


def make_demonstrations(config: CorpusConfig, exercises: Exercises, rng: Random) -> list[Demonstration]:
    """Return the demonstrations in the order of training."""
    every = exercises.every()
    running = [exercise for exercise in every if exercise.calls is not None]
    copies = [copy_lines(e, rng) for e in rng.sample(every, min(config.copies, len(every)))]
    repairs = [repair_many(e, rng) for e in every for _ in range(config.repair_rounds)]
    episodes = [demonstrate(e, rng, config.habits) for e in running for _ in range(config.episode_rounds)]
    episodes += [repair_many(e, rng) for e in rng.choices(every, k=int(config.rehearsal * len(episodes)))]
    rng.shuffle(repairs)
    rng.shuffle(episodes)
    log.info("demonstrations: %d copies, %d repairs, %d episodes", len(copies), len(repairs), len(episodes))
    return copies + repairs + episodes
