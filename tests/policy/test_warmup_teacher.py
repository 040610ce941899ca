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
from fix_python.warmup.teacher import Demonstration, Habits, Role, demonstrate, prompt_of
from fix_python.warmup.trial import visible_report

from sanderling.harness.line_edit import NO_SUCH_TEXT, AnswerToChange, LineEditHarness
from sanderling.sandbox.protocol import Command, ExecResult, SandboxSpec
from sanderling.testing.sandboxes import MemoryBackend, result
from sanderling.types import StopReason, Task

FAULTLESS = Habits(tests_first=0, repairs=1, passes_on=0, undoes=0, gives_up=0, shows=0, misses=0, looks_again=0)
RESTLESS = Habits(
    tests_first=0.5, repairs=0.2, passes_on=0.3, undoes=0.7, gives_up=0.1, shows=0.2, misses=0.3, looks_again=0.3
)
STAGE = Stage(
    budget=Budget(tokens=0),
    episodes=0.6,
    most_bugs=4,
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


def replayed(
    demonstration: Demonstration, exercise: Exercise, answer: AnswerToChange
) -> tuple[str, list[str], StopReason | None]:
    """Act as the demonstration does in the environment's own harness; return its prompt, its answers and the end."""
    head, *numbered = demonstration[0].text.splitlines()
    source = "".join(f"{line.partition(' ')[2]}\n" for line in numbered)
    harness = LineEditHarness(file=FILE, test_argv=fix_python.environment().harness.test_argv, answer=answer)
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


@pytest.mark.parametrize("answer", [AnswerToChange.TESTED, AnswerToChange.TRIED])
def test_the_environment_answers_what_the_demonstrations_show(answer: AnswerToChange) -> None:
    config = CorpusConfig()
    tried = answer is AnswerToChange.TRIED
    stage = replace(STAGE, most_bugs=1 if tried else 4, teachers=(replace(RESTLESS, answer=answer),))
    seen: set[str] = set()
    for number, exercise in enumerate(exercises()):
        alone = Exercises(library=[], programs=[], practice=[], problems=[exercise])
        for demonstration in islice(demonstrations(config, stage, alone, Random(number)), 4):
            prompt, answers, stop = replayed(demonstration, exercise, answer)
            assert prompt == demonstration[0].text
            assert answers[:-1] == [piece.text for piece in demonstration[2::2]]
            assert stop is StopReason.SUBMITTED
            seen |= {piece.text.split("|")[0].split(" ")[0] for piece in demonstration[1::2]}
            seen |= {NO_SUCH_TEXT} & {answer.partition("\n")[0] for answer in answers}
    assert seen == {"line", "sub", "test", "show", "submit", NO_SUCH_TEXT} | (set() if tried else {"undo"})


def test_the_last_stage_is_the_environment_s_own() -> None:
    last = CorpusConfig().stages[-1]
    assert {teacher.answer for teacher in last.teachers} == {fix_python.environment().harness.answer}
    assert last.most_bugs == 1  # several would never pass, and each change would be taken back


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


def test_a_careful_teacher_takes_back_each_change_that_did_not_pass() -> None:
    careful = replace(FAULTLESS, repairs=0.3, undoes=1)
    undone = 0
    for number, exercise in enumerate(exercises()):
        assert exercise.calls is not None
        passes = f"ok {len(exercise.calls.examples)} of {len(exercise.calls.examples)}"
        demonstration = demonstrate(exercise, Random(number), careful)
        acts, answers = demonstration[1::2], demonstration[2::2]
        for act, answer, after in zip(acts, answers, acts[1:], strict=False):
            if act.text.startswith("sub|"):
                assert after.text == ("submit" if answer.text == passes else "undo")
                undone += after.text == "undo"
    assert undone > 20


def test_most_episodes_fit_the_limits_of_the_tasks() -> None:
    """Turns as the environment counts them; tokens are measured with the packaged tokenizer elsewhere."""
    rng = Random(0)
    turns = [len(demonstrate(exercise, rng, Habits())[1::2]) for exercise in exercises() for _ in range(4)]
    assert sum(count <= LIMITS.max_turns for count in turns) / len(turns) > 0.9


def test_the_prompt_is_the_one_of_the_harness() -> None:
    source = "def f(x):\n    return x\n"
    task = Task(id="t", prompt="Fix the bug in f.", base={FILE: source.encode()})
    assert prompt_of("f", source) == LineEditHarness(file=FILE, test_argv=("true",)).prompt(task)
