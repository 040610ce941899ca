"""The warm-up corpus: executable, valid protocol, free of held-out problems, and a function of its seed."""

from __future__ import annotations

import ast
import re
from random import Random

from fix_python.catalogue import problems
from fix_python.similarity import View, likeness, shingles
from fix_python.splits import HELD_OUT, TRAIN, assign
from fix_python.warmup.corpus import CorpusConfig, demonstrations
from fix_python.warmup.exercises import problem_exercises, program_exercises, training_problems
from fix_python.warmup.library import library_functions
from fix_python.warmup.programs import random_program, shapes
from fix_python.warmup.rename import new_names, renamed
from fix_python.warmup.teacher import Demonstration, Habits, Role, demonstrate, prompt_of
from fix_python.warmup.trial import recorded_calls, visible_report

from sanderling.harness.line_edit import Call, LineEditHarness, parse_call
from sanderling.types import Task

SMALL = CorpusConfig(library=12, programs=8, variants=1, problem_rounds=1)


def actions(demonstration: Demonstration) -> list[str]:
    return [piece.text for piece in demonstration if piece.role in (Role.ACTION, Role.MISTAKE)]


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
        for exercise in program_exercises(rng, 20)
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


def test_held_out_problems_are_nowhere_in_the_corpus() -> None:
    split = assign(list(problems().values()))
    held_out = [p for p in problems().values() if split[p.name] == HELD_OUT]
    assert all(split[p.name] == TRAIN for p in training_problems())
    text = "\n".join(piece.text for demonstration in demonstrations(SMALL, 0) for piece in demonstration)
    for problem in held_out:
        assert not re.search(rf"\b{problem.name}\b", text)
        docstring = ast.get_docstring(ast.parse(problem.source).body[0])  # type: ignore[arg-type]
        assert docstring is not None
        assert docstring not in text


def test_no_random_program_is_a_held_out_problem_under_other_names() -> None:
    split = assign(list(problems().values()))
    held_out = {p.name: shingles(p.source, View.BLIND) for p in problems().values() if split[p.name] == HELD_OUT}
    rng = Random(2)
    for _ in range(300):
        program = random_program(rng)
        own = shingles(program.source, View.BLIND)
        closest = max(held_out, key=lambda name: likeness(own, held_out[name]))
        assert likeness(own, held_out[closest]) < 0.8, f"{closest}\n{program.source}"


def test_demonstrations_are_valid_calls_that_end_with_a_submission() -> None:
    for demonstration in demonstrations(SMALL, 0):
        assert demonstration[0].role is Role.PROMPT
        for text in actions(demonstration):
            assert isinstance(parse_call(text), Call), text
        assert actions(demonstration)[-1] == "submit"
        roles = [piece.role for piece in demonstration[1:]]
        assert all(role is Role.OBSERVATION for role in roles[1::2])
        assert all(role in (Role.ACTION, Role.MISTAKE) for role in roles[::2])


def test_a_teacher_that_never_errs_solves_every_bug() -> None:
    habits = Habits(tests_first=0, repairs=1, tests_edit=1, gives_up=0, shows=0)
    for exercise in list(problem_exercises(Random(3), 1))[::5]:
        demonstration = demonstrate(exercise, Random(4), habits)
        assert [text.split(" ")[0] for text in actions(demonstration)] == ["set", "test", "submit"]
        assert demonstration[-2].text == f"ok {len(exercise.calls.examples)} of {len(exercise.calls.examples)}"


def test_the_prompt_is_the_one_of_the_harness() -> None:
    source = "def f(x):\n    return x\n"
    task = Task(id="t", prompt="Fix the bug in f.", base={"solution.py": source.encode()})
    assert prompt_of("f", source) == LineEditHarness(file="solution.py", test_argv=("true",)).prompt(task)


def test_the_corpus_is_a_function_of_its_seed() -> None:
    assert demonstrations(SMALL, 5) == demonstrations(SMALL, 5)
    assert demonstrations(SMALL, 5) != demonstrations(SMALL, 6)


def test_library_functions_are_short_plain_functions() -> None:
    for source in library_functions(Random(0), 200):
        node = ast.parse(source).body[0]
        assert isinstance(node, ast.FunctionDef)
        assert not node.decorator_list
        assert 3 <= len(source.splitlines()) <= 16
