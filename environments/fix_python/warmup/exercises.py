"""Exercises: a right function, bugs that one line repairs, and, where it can run, calls with their right results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from fix_python.catalogue import problems
from fix_python.problem import Problem
from fix_python.selection import RECALLED
from fix_python.splits import TRAIN, assign
from fix_python.warmup.arguments import Draw, guessed_draw
from fix_python.warmup.library import library_functions, near_held_out
from fix_python.warmup.programs import name_pool, random_program
from fix_python.warmup.rename import invented_name, new_names, renamed
from fix_python.warmup.trial import Calls, recorded_calls
from sanderling.errors import TaskError
from sanderling.tasks.mutation import FAMILIES, Family, Mutant, Replacement, Site, mutants

CALLS = (3, 5)
BUGS_RENAMED = 12
RECALLED_WEIGHT = 0.25
_MANY = {"wrong_variable": 0.05, "constant": 0.2, "boundary": 0.35, "dropped_statement": 0.3}
_FEW = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """A right function with bugs that may be planted in it."""

    name: str
    source: str
    bugs: tuple[Mutant, ...]
    calls: Calls | None  # None: the function can't run here, so nothing of a test can be shown

    def draw_bug(self, rng: Random) -> Mutant:
        """Draw a bug, every family that the function has with the same probability, but `RECALLED` ones rarely."""
        families = sorted({bug.family for bug in self.bugs})
        family = rng.choices(families, [RECALLED_WEIGHT if name in RECALLED else 1.0 for name in families])[0]
        return rng.choice([bug for bug in self.bugs if bug.family == family])

    def with_other_names(self, rng: Random) -> Exercise:
        """Return the exercise with other names and at most `BUGS_RENAMED` of its bugs; itself if that is impossible."""
        pool = name_pool() if rng.random() < 0.5 else tuple(invented_name(rng) for _ in range(40))
        names = new_names(self.source, pool, rng, rng.choice([0.4, 0.8, 1.0]))
        source = renamed(self.source, names)
        drawn = {id(bug): bug for bug in [self.draw_bug(rng) for _ in range(BUGS_RENAMED)]}.values()
        bugs = [replace(bug, source=text) for bug in drawn if (text := renamed(bug.source, names)) is not None]
        if source is None or not bugs:
            return self
        return replace(self, source=source, bugs=tuple(bugs))


def some_mutants(source: str, rng: Random) -> tuple[Mutant, ...]:
    """Return a random few of the mutants of `source`, rare kinds of bugs about as often as common ones."""
    thinned = [_thinned(family, _MANY.get(family.name, _FEW), rng) for family in FAMILIES]
    try:
        return tuple(mutants(source, thinned))
    except (TaskError, RecursionError):
        return ()


def _thinned(family: Family, share: float, rng: Random) -> Family:
    def propose(site: Site) -> Iterator[Replacement]:
        return (node for node in family.propose(site) if rng.random() < share)

    return Family(name=family.name, propose=propose)


def library_exercises(rng: Random, count: int) -> Iterator[Exercise]:
    """Yield exercises from the standard library's functions; they never run."""
    for source in library_functions(rng, count):
        bugs = some_mutants(source, rng)
        if bugs:
            yield Exercise(name=source[4 : source.index("(")], source=source, bugs=bugs, calls=None)


def program_exercises(rng: Random, count: int) -> Iterator[Exercise]:
    """Yield `count` exercises from random programs, with calls that mostly succeed."""
    made = 0
    while made < count:
        program = random_program(rng)
        calls = recorded_calls(program.source, program.name, _several(program.draw, rng))
        if calls is None or near_held_out(program.source):
            continue
        bugs = some_mutants(program.source, rng)
        if bugs:
            made += 1
            yield Exercise(name=program.name, source=program.source, bugs=bugs, calls=calls)


def practice_exercises(sources: Sequence[str], rng: Random, variants: int) -> Iterator[Exercise]:
    """Yield `variants` exercises for each practice function, with different calls where it runs."""
    for source in sources:
        name = source[4 : source.index("(")]
        draw = guessed_draw(source, name, rng)
        calls = None if draw is None else recorded_calls(source, name, _several(draw, rng))
        exercise = Exercise(name=name, source=source, bugs=tuple(mutants(source)), calls=calls)
        yield from _variants(exercise, draw, variants, rng)


def problem_exercises(chosen: Sequence[Problem], rng: Random, variants: int) -> Iterator[Exercise]:
    """Yield `variants` exercises for each problem: the first with its examples, the others with other calls."""
    for problem in chosen:
        bugs = tuple(mutants(problem.source))
        calls = recorded_calls(problem.source, problem.name, problem.examples)
        exercise = Exercise(name=problem.name, source=problem.source, bugs=bugs, calls=calls)
        yield from _variants(exercise, problem.cases, variants, rng)


def training_problems() -> list[Problem]:
    """Return the problems of the train split; the held-out ones are never looked at in this package."""
    split = assign(list(problems().values()))
    return [problem for problem in problems().values() if split[problem.name] == TRAIN]


def _several(draw: Draw, rng: Random) -> list[tuple[Any, ...]]:
    return [draw(rng) for _ in range(rng.randint(*CALLS))]


def _variants(exercise: Exercise, draw: Draw | None, count: int, rng: Random) -> Iterator[Exercise]:
    """Yield the exercise, then `count` - 1 times with other calls."""
    yield exercise
    if draw is not None:
        for _ in range(count - 1):
            calls = recorded_calls(exercise.source, exercise.name, _several(draw, rng))
            if calls is not None:
                yield replace(exercise, calls=calls)
