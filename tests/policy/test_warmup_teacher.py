"""The teacher: what it shows is what the environment answers, so that the warm-up can't drift from it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random

import fix_python
import pytest
from fix_python.tasks import FILE, LIMITS
from fix_python.warmup.corpus import Budget, CorpusConfig, Exercises, Shares, Stage, demonstrations
from fix_python.warmup.exercises import (
    Exercise,
    practice_exercises,
    problem_exercises,
    program_exercises,
    training_problems,
)
from fix_python.warmup.library import practice_functions
from fix_python.warmup.teacher import Demonstration, Habits, Order, Role, demonstrate, prompt_of
from fix_python.warmup.trial import visible_report

from sanderling.harness.line_edit import NO_SUCH_TEXT, LineEditHarness
from sanderling.sandbox.protocol import Command, ExecResult, SandboxSpec
from sanderling.testing.sandboxes import MemoryBackend, result
from sanderling.types import StopReason, Task

FAULTLESS = Habits(tests_first=0, repairs=1, passes_on=0, gives_up=0, shows=0, misses=0, looks_again=0)
RESTLESS = Habits(tests_first=0.5, repairs=0.2, passes_on=0.3, gives_up=0.1, shows=0.2, misses=0.3, looks_again=0.3)
STAGE = Stage(
    budget=Budget(tokens=0),
    episodes=0.6,
    most_bugs=1,
    teachers=(RESTLESS,),
    shares=Shares(library=0, programs=0, practice=0, problems=1),
)


@cache
def exercises() -> list[Exercise]:
    """Exercises of all kinds that run."""
    rng = Random(0)
    programs = program_exercises(rng, 8)
    practice = practice_exercises(practice_functions()[::100], rng, 1)
    drawn = [*programs, *practice, *problem_exercises(training_problems()[::8], rng, 1)]
    return [exercise for exercise in drawn if exercise.calls is not None]


def replayed(demonstration: Demonstration, exercise: Exercise) -> tuple[str, list[str], StopReason | None]:
    """Act as the demonstration does in the environment's own harness; return its prompt, its answers and the end."""
    head, *numbered = demonstration[0].text.splitlines()
    source = "".join(f"{line.partition(' ')[2]}\n" for line in numbered)
    harness = fix_python.environment().harness
    task = Task(id="t", prompt=head, base={FILE: source.encode()})

    def tests(command: Command, files: dict[str, bytes]) -> ExecResult:
        assert command.argv == harness.test_argv
        assert exercise.calls is not None
        report, passed = visible_report(files[FILE].decode(), exercise.calls)
        return result(report + "\n", exit_code=0 if passed else 1)

    async def act() -> tuple[list[str], StopReason | None]:
        sandbox = await MemoryBackend(commands=tests).create(SandboxSpec(files=task.base))
        conversation = harness.start(task, sandbox)
        replies = [await conversation.act(piece.text) for piece in demonstration[1::2]]
        assert not any(reply.bad_calls for reply in replies)
        assert all(reply.stop is None for reply in replies[:-1])
        return [reply.text for reply in replies], replies[-1].stop

    return (harness.prompt(task), *asyncio.run(act()))


@pytest.mark.slow
def test_the_environment_answers_what_the_demonstrations_show() -> None:
    config = CorpusConfig()
    seen: set[str] = set()
    for number, exercise in enumerate(exercises()):
        alone = Exercises(library=[], programs=[], practice=[], problems=[exercise])
        for demonstration in islice(demonstrations(config, STAGE, alone, Random(number)), 4):
            prompt, answers, stop = replayed(demonstration, exercise)
            assert prompt == demonstration[0].text
            assert answers[:-1] == [piece.text for piece in demonstration[2::2]]
            assert stop is StopReason.SUBMITTED
            seen |= {piece.text.split("|")[0].split(" ")[0] for piece in demonstration[1::2]}
            seen |= {NO_SUCH_TEXT} & {answer.partition("\n")[0] for answer in answers}
    assert seen == {"line", "sub", "test", "show", "submit", NO_SUCH_TEXT}


def test_the_last_stage_is_the_environment_s_own() -> None:
    assert CorpusConfig().stages[-1].most_bugs == 1  # several would never pass, and each change would be taken back


def test_the_report_is_that_of_the_agent_s_own_test_program(tmp_path: Path) -> None:
    program = Path(fix_python.__file__).with_name("visible.py")
    rng = Random(1)
    for exercise in exercises()[::2]:
        assert exercise.calls is not None
        source = exercise.draw_bug(rng).source
        examples = {"function": exercise.calls.name, "calls": list(exercise.calls.examples)}
        (tmp_path / FILE).write_text(source, "utf-8")
        (tmp_path / "examples.json").write_text(json.dumps(examples, ensure_ascii=False), "utf-8")
        command = [sys.executable, "-I", "-S", str(program)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=30, check=False)
        assert (done.stdout.decode().strip(), done.returncode == 0) == visible_report(source, exercise.calls)


def test_a_teacher_that_never_errs_solves_every_bug() -> None:
    for exercise in exercises():
        assert exercise.calls is not None
        demonstration = demonstrate(exercise, Random(4), FAULTLESS)
        acts = demonstration[1::2]
        assert [piece.text.split("|")[0].split(" ")[0] for piece in acts] == ["line", "sub", "submit"]
        assert {piece.role for piece in acts} == {Role.ACTION}
        assert demonstration[-2].text == f"ok {len(exercise.calls.examples)} of {len(exercise.calls.examples)}"


def test_a_change_that_does_not_pass_is_taken_back() -> None:
    """So the line that a later change finds is the one that was there at first, until a change passes."""
    again = 0
    for number, exercise in enumerate(exercises()):
        demonstration = demonstrate(exercise, Random(number), replace(FAULTLESS, repairs=0.2, looks_again=1))
        first = demonstration[0].text.splitlines()
        acts, answers = demonstration[1::2], demonstration[2::2]
        for act, answer in zip(acts, answers, strict=False):
            if act.text.startswith("line "):
                line = int(act.text.removeprefix("line "))
                assert answer.text == first[line].partition(" ")[2].strip()
                again += 1
    assert again > 40


def test_a_searching_teacher_looks_at_no_line_twice_and_never_passes_the_bug_by() -> None:
    searching = replace(FAULTLESS, passes_on=0.8, order=Order.NEW)
    seen = 0
    for number, exercise in enumerate(exercises()):
        acts = demonstrate(exercise, Random(number), searching)[1::2]
        *passed, last = [piece for piece in acts if piece.text.startswith("line ")]
        lines = [piece.text for piece in passed]
        assert len(set(lines)) == len(lines)
        assert last.text not in lines
        assert {piece.role for piece in passed} <= {Role.MISTAKE}
        assert last.role is Role.ACTION
        seen += len(lines)
    assert seen > 60


def test_most_episodes_fit_the_limits_of_the_tasks() -> None:
    """Turns as the environment counts them; tokens are measured with the packaged tokenizer elsewhere."""
    rng = Random(0)
    turns = [len(demonstrate(exercise, rng, Habits())[1::2]) for exercise in exercises() for _ in range(4)]
    assert sum(count <= LIMITS.max_turns for count in turns) / len(turns) > 0.9


def test_the_prompt_is_the_one_of_the_harness() -> None:
    source = "def f(x):\n    return x\n"
    task = Task(id="t", prompt="Fix the bug in f.", base={FILE: source.encode()})
    assert prompt_of("f", source) == LineEditHarness(file=FILE, test_argv=("true",)).prompt(task)
