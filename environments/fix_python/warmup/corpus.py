"""Everything the policy is warmed up on, in the order in which it is learnt: repairs alone first, whole episodes later."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from random import Random

from fix_python.warmup.exercises import library_exercises, problem_exercises, program_exercises
from fix_python.warmup.teacher import Demonstration, Habits, demonstrate, repair_many

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusConfig:
    """How much of what. The defaults make about 7 million tokens in 5 CPU-minutes."""

    library: int = 8000  # functions of the standard library, at most
    programs: int = 6000  # random programs
    variants: int = 14  # of each training problem, with other names
    library_rounds: int = 1  # repairs demonstrated in each library function
    program_rounds: int = 2  # repairs and episodes demonstrated in each program
    problem_rounds: int = 3  # episodes demonstrated in each variant
    rehearsal: float = 0.125  # library repairs among the episodes, as a share of these
    habits: Habits = field(default_factory=Habits)


def demonstrations(config: CorpusConfig, seed: int) -> list[Demonstration]:
    """Return the whole corpus. Equal for equal arguments, interpreter and standard library."""
    rng = Random(seed)
    library = list(library_exercises(rng, config.library))
    log.info("%d functions of the standard library", len(library))
    programs = list(program_exercises(rng, config.programs))
    log.info("%d random programs", len(programs))
    problems = list(problem_exercises(rng, config.variants))
    log.info("%d variants of training problems", len(problems))
    repairs = [repair_many(e, rng) for e in library for _ in range(config.library_rounds)]
    repairs += [repair_many(e, rng) for e in programs for _ in range(config.program_rounds)]
    episodes = [demonstrate(e, rng, config.habits) for e in problems for _ in range(config.problem_rounds)]
    episodes += [demonstrate(e, rng, config.habits) for e in programs for _ in range(config.program_rounds)]
    rehearsed = rng.sample(library, min(len(library), int(config.rehearsal * len(episodes))))
    episodes += [repair_many(e, rng) for e in rehearsed]
    rng.shuffle(repairs)
    rng.shuffle(episodes)
    log.info("%d repairs, %d episodes", len(repairs), len(episodes))
    return repairs + episodes
