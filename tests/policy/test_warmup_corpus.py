"""The warm-up corpus: executable, valid protocol, free of held-out problems, and a function of its seed."""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import islice
from random import Random

import pytest
from fix_python.catalogue import problems
from fix_python.splits import HELD_OUT, NEAR, TRAIN, assign
from fix_python.warmup.corpus import (
    MANY_BUGS,
    ONE_BUG,
    Budget,
    CorpusConfig,
    Exercises,
    Shares,
    Stage,
    demonstrations,
    make_exercises,
)
from fix_python.warmup.exercises import Exercise, library_exercises, program_exercises, training_problems
from fix_python.warmup.library import library_functions, near_held_out, practice_functions
from fix_python.warmup.programs import random_program, shapes
from fix_python.warmup.rename import new_names, renamed
from fix_python.warmup.teacher import ACTIONS, STEADY, Demonstration, Role
from fix_python.warmup.trial import recorded_calls, visible_report

from sanderling.harness.line_edit import Call, parse_call
from sanderling.tasks.similarity import View, likeness, shingles

SMALL = CorpusConfig(library=12, programs=8, practice=6, practice_variants=2, problems=6, problem_variants=2)


@cache
def small_exercises() -> Exercises:
    return make_exercises(SMALL, Random(0))


def every(exercises: Exercises) -> list[Exercise]:
    return [*exercises.library, *exercises.programs, *exercises.practice, *exercises.problems]


@cache
def small_corpus() -> list[Demonstration]:
    """The beginnings of both stages."""
    rng = Random(0)
    streams = [demonstrations(SMALL, stage, small_exercises(), rng) for stage in (MANY_BUGS, ONE_BUG)]
    return [demonstration for stream in streams for demonstration in islice(stream, 150)]


def actions(demonstration: Demonstration) -> list[str]:
    return [piece.text for piece in demonstration if piece.role in ACTIONS]


def test_every_shape_makes_different_functions_that_run() -> None:
    rng = Random(0)
    sources = {random_program(rng).source for _ in range(400)}
    assert len(sources) > 380
    assert len(shapes()) > 80
    for _ in range(100):
        program = random_program(rng)
        calls = recorded_calls(program.source, program.name, [program.draw(rng) for _ in range(3)])
        assert calls is not None
        assert visible_report(program.source, calls)[1]


def test_most_bugs_of_programs_show_in_their_visible_tests() -> None:
    rng = Random(1)
    shown = [
        not visible_report(bug.source, exercise.calls)[1]
        for exercise in program_exercises(rng, 12)
        for bug in exercise.bugs
        if exercise.calls is not None
    ]
    assert sum(shown) / len(shown) > 0.5


def test_renaming_keeps_what_a_function_does() -> None:
    pool = (
        "alpha",
        "beta",
        "gamma",
        "delta",
        "eps",
        "zeta",
        "eta",
        "theta",
        "iota",
        "kappa",
        "mu",
        "nu",
        "xi",
        "rho",
        "tau",
    )
    for problem in training_problems()[::4]:
        names = new_names(problem.source, pool, Random(problem.name), 1.0)
        source = renamed(problem.source, names)
        if source is not None:
            calls = recorded_calls(problem.source, problem.name, problem.examples)
            assert names
            assert calls is not None
            assert visible_report(source, calls)[1]


@pytest.mark.slow
def test_held_out_problems_are_nowhere_in_the_corpus() -> None:
    split = assign(list(problems().values()))
    held_out = [p for p in problems().values() if split[p.name] == HELD_OUT]
    assert all(split[p.name] == TRAIN for p in training_problems())
    text = "\n".join(piece.text for demonstration in small_corpus() for piece in demonstration)
    for problem in held_out:
        assert not re.search(rf"\b{problem.name}\b", text)
        docstring = ast.get_docstring(ast.parse(problem.source).body[0])  # type: ignore[arg-type]
        assert docstring is not None
        assert docstring not in text


def test_nothing_in_the_corpus_is_near_a_held_out_problem() -> None:
    split = assign(list(problems().values()))
    held_out = [p for p in problems().values() if split[p.name] == HELD_OUT]
    looks = [(view, shingles(p.source, view)) for p in held_out for view in View]
    for source in [*practice_functions(), *(exercise.source for exercise in every(small_exercises()))]:
        own = {view: shingles(source, view) for view in View}
        assert max(likeness(own[view], other) for view, other in looks) < NEAR, source


def test_a_held_out_problem_under_other_names_is_noticed() -> None:
    split = assign(list(problems().values()))
    for problem in problems().values():
        names = new_names(problem.source, tuple(f"name_{i}" for i in range(20)), Random(0), 1.0)
        copy = (renamed(problem.source, names) or problem.source).replace(f"def {problem.name}(", "def other(")
        if split[problem.name] == HELD_OUT:
            assert near_held_out(copy)


def test_demonstrations_are_valid_calls_that_end_with_a_submission() -> None:
    for demonstration in small_corpus():
        assert demonstration[0].role is Role.PROMPT
        for text in actions(demonstration):
            assert isinstance(parse_call(text), Call), text
        assert actions(demonstration)[-1] == "submit"
        roles = [piece.role for piece in demonstration[1:]]
        assert all(role is Role.OBSERVATION for role in roles[1::2])
        assert all(role in ACTIONS for role in roles[::2])


def test_the_kinds_of_demonstrations_come_as_often_as_the_stage_says() -> None:
    """Whole episodes and repairs of one source only; a repair holds no mistake and at most so many bugs."""
    only_problems = Shares(library=0, programs=0, practice=0, problems=1)
    names = {exercise.name for exercise in small_exercises().problems}
    for episodes in (0.0, 1.0):
        stage = Stage(budget=Budget(tokens=0), episodes=episodes, most_bugs=2, teachers=(STEADY,), shares=only_problems)
        drawn = list(islice(demonstrations(SMALL, stage, small_exercises(), Random(2)), 40))
        assert {demonstration[0].text.split(".")[0].split()[-1] for demonstration in drawn} == names
        mistaken = [any(piece.role is Role.MISTAKE for piece in demonstration) for demonstration in drawn]
        repaired = [sum(text.startswith("sub|") for text in actions(demonstration)) for demonstration in drawn]
        if episodes:
            assert sum(mistaken) > 20
        else:
            assert not any(mistaken)
            assert set(repaired) == {1, 2}


@pytest.mark.slow
def test_the_corpus_is_a_function_of_its_seed() -> None:
    drawn = []
    for seed in (5, 5, 6):
        rng = Random(seed)
        programs = list(program_exercises(rng, 6))
        exercises = Exercises(library=list(library_exercises(rng, 4)), programs=programs, practice=[], problems=[])
        drawn.append(list(islice(demonstrations(SMALL, MANY_BUGS, exercises, rng), 80)))
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]


def test_library_functions_are_short_plain_functions() -> None:
    for source in library_functions(Random(0), 200):
        node = ast.parse(source).body[0]
        assert isinstance(node, ast.FunctionDef)
        assert not node.decorator_list
        assert 3 <= len(source.splitlines()) <= 16
