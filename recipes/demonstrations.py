"""Demonstrations for a recipe on HumanEvalPack: planted bugs, and a teacher that repairs them through the harness.

The teacher tries up to four wrong changes before the right one, and submits when the visible tests pass. What it says at the
right place counts fully, a wrong try less: it shows how to search and how to name what stands in a line, so that reinforcement
learning has something to choose from.
"""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from random import Random

import numpy as np
from fix_python.visible import decode
from fix_python.warmup.edits import change_call
from fix_python.warmup.exercises import Exercise, practice_exercises
from fix_python.warmup.library import HeldOut, practice_functions

from sanderling.assemble import check_backend, load_backend
from sanderling.config import Config
from sanderling.environment import Environment
from sanderling.harness.protocol import Codec
from sanderling.harness.tokenizer import FastTokenizer
from sanderling.sandbox.protocol import SandboxBackend
from sanderling.tasks.formats.humanevalpack import EXAMPLE, FILE, HumanEvalPackTasks
from sanderling.tasks.mutation import Mutant, mutants
from sanderling.types import Action, Task, TrainingRow

RIGHT, WRONG = 1.0, 0.3  # how much an action is imitated; wrong tries show, too, how a part of a line is named
ANOTHER_TRY = 0.6  # probability of a wrong try before the next one
MOST_TRIES = 4  # wrong ones
MOST_TOKENS = 448  # of a demonstration; most are shorter, and most of a long one is its prompt
PRACTICE_SHARE = 0.7  # of the tokens; practice functions are many and short, so that more than their text is learnt
LOST = {
    "missing_return": 0.2,
    "dropped_statement": 0.2,
}  # `pass` hints at nothing: how often, where other families are 1
AT_ONCE = 8  # sandboxes


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """A training task with another bug, and what the teacher knows about it."""

    task: Task
    line: int
    right: str  # the line without indentation
    planted: str  # the same line with the bug
    wrong: tuple[tuple[int, str, str], ...]  # line, what it reads, and what to try there


class Mutations:
    """The right functions of the training tasks with bugs planted in them."""

    def __init__(self, tasks: HumanEvalPackTasks) -> None:
        self._tasks = tasks

    @cached_property
    def _bugs(self) -> dict[str, list[Mutant]]:
        found = {task_id: mutants(self._tasks.row(task_id).gold) for task_id in self._tasks.ids("train")}
        return {task_id: planted for task_id, planted in found.items() if planted}

    def draw(self, rng: Random) -> Iterator[Bug]:
        """Yield bugs without end: every task as often as the others, every family in it alike but for lost lines."""
        while True:
            for task_id in rng.sample(sorted(self._bugs), len(self._bugs)):
                yield self._bug(task_id, rng)

    def _bug(self, task_id: str, rng: Random) -> Bug:
        row, bugs = self._tasks.row(task_id), self._bugs[task_id]
        own = row.buggy.splitlines()
        families = sorted({bug.family for bug in bugs})
        family = rng.choices(families, [LOST.get(name, 1.0) for name in families])[0]
        # The bug of the task itself is left to reinforcement learning.
        pool = [bug for bug in bugs if bug.family == family and bug.source.splitlines() != own]
        bug = rng.choice(pool or bugs)
        gold, lines = row.gold.splitlines(), bug.source.splitlines()
        others = rng.sample(bugs, min(len(bugs), 4 * MOST_TRIES))
        task = self._tasks.get(task_id)
        planted = replace(task, base={**task.base, FILE: bug.source.encode()})
        return _bug(planted, gold, lines, bug, others)


class Practice:
    """The practice functions of fix_python with bugs planted in them, as tasks of this environment.

    Functions that are near to one of a held-out task, by name or by what they do, are left out.
    """

    def __init__(self, tasks: HumanEvalPackTasks, rng: Random) -> None:
        self._like = tasks.get(tasks.ids("train")[0])
        held_out = [tasks.row(task_id) for task_id in tasks.ids("held-out")] if "held-out" in tasks.splits() else []
        golds = [
            ast.unparse(node)
            for row in held_out
            for node in ast.parse(row.gold).body
            if isinstance(node, ast.FunctionDef)
        ]
        apart, sources = HeldOut([row.entry_point for row in held_out], golds), practice_functions()
        self.sources = [source for source in rng.sample(sources, len(sources)) if not apart.near(source)]

    def draw(self, rng: Random) -> Iterator[Bug]:
        """Yield one bug of each function."""
        for exercise in practice_exercises(self.sources, rng, 1):
            test = _example_test(exercise)
            if not test or not exercise.bugs:
                continue
            bug = exercise.draw_bug(rng)
            gold, lines = exercise.source.splitlines(), bug.source.splitlines()
            others = rng.sample(exercise.bugs, min(len(exercise.bugs), 4 * MOST_TRIES))
            base = {**self._like.base, FILE: bug.source.encode(), EXAMPLE: test.encode()}
            yield _bug(
                replace(self._like, prompt=f"Fix the bug in {exercise.name}.", base=base), gold, lines, bug, others
            )


def _example_test(exercise: Exercise) -> str:
    """Return the exercise's calls as the rows of HumanEvalPack write them; "" where they can't be written."""
    asserted = []
    for example in exercise.calls.examples if exercise.calls else ():
        arguments, value = decode(example["call"]), decode(example["value"])
        if example["raised"] is None and _literal(arguments) and _literal(value):
            asserted.append(f"    assert {exercise.name}({', '.join(map(repr, arguments))}) == {value!r}\n")
    return f"def check({exercise.name}):\n{''.join(asserted)}check({exercise.name})\n" if asserted else ""


def _literal(value: object) -> bool:
    try:
        return ast.literal_eval(repr(value)) == value
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False


def _bug(task: Task, gold: Sequence[str], lines: Sequence[str], bug: Mutant, others: Sequence[Mutant]) -> Bug:
    """Return what the teacher knows of a planted bug; `others` are bugs that may be tried in place of the repair."""
    wrong = [(o.line, lines[o.line - 1].strip(), o.text.strip()) for o in others]
    return Bug(
        task=task,
        line=bug.line,
        right=gold[bug.line - 1].strip(),
        planted=bug.text.strip(),
        wrong=tuple(w for w in wrong if w[1] != w[2] and w[2] != gold[w[0] - 1].strip()),
    )


class Demonstration:
    """One episode of the teacher, token by token as the engine would have had it."""

    def __init__(self, codec: Codec, tokenizer: FastTokenizer, prompt: str) -> None:
        self._codec, self._tokenizer = codec, tokenizer
        self._transcript = codec.open(prompt)
        self._ids = self._transcript.prompt_ids.tolist()
        self._weights = [0.0] * len(self._ids)

    def say(self, text: str, weight: float) -> Action:
        """Add an action."""
        ids = [*self._tokenizer.encode(text), self._codec.stop_token_ids[0]]
        self._ids += ids
        self._weights += [weight] * len(ids)
        nothing = np.zeros(len(ids), dtype=np.float32)
        return Action(
            token_ids=np.array(ids, dtype=np.int32),
            rollout_logprobs=nothing,
            policy_versions=nothing.astype(np.int32),
            text=text,
            finish_reason="stop",
        )

    def hear(self, action: Action, text: str) -> None:
        """Add what the action was answered with."""
        ids = self._transcript.extend(action, (text,)).token_ids.tolist()
        self._ids += ids
        self._weights += [0.0] * len(ids)

    def row(self, name: str) -> TrainingRow:
        """Return the tokens with their weights."""
        weights = np.array(self._weights, dtype=np.float32)
        size = len(weights)
        return TrainingRow(
            trajectory_id=name,
            token_ids=np.array(self._ids, dtype=np.int32),
            loss_mask=weights > 0,
            turn_of_token=np.zeros(size, dtype=np.int32),
            rollout_logprobs=np.zeros(size, dtype=np.float32),
            policy_versions=np.zeros(size, dtype=np.int32),
            advantages=(weights > 0).astype(np.float32),
            weights=weights,
        )


class Teacher:
    """Repairs bugs in the sandbox of the environment, through its harness."""

    def __init__(self, environment: Environment, backend: SandboxBackend, tokenizer: FastTokenizer) -> None:
        self._environment, self._backend, self._tokenizer = environment, backend, tokenizer
        self._codec = environment.harness.codec(tokenizer)

    async def demonstrate(self, bug: Bug, rng: Random) -> TrainingRow | None:
        """Return one episode; None where the visible tests don't show the bug, or the repair can't be written."""
        sandbox = await self._backend.create(self._environment.sandbox_spec(bug.task))
        try:
            conversation = self._environment.harness.start(bug.task, sandbox)
            if (await conversation.act("test")).exit_code == 0:
                return None
            told = Demonstration(self._codec, self._tokenizer, self._environment.harness.prompt(bug.task))
            for line, call, weight in self._plan(bug, rng):
                for text in (f"line {line}", call):
                    action = told.say(text, weight)
                    reply = await conversation.act(text)
                    told.hear(action, reply.text)
                if reply.exit_code == 0:
                    told.say("submit", RIGHT)
                    return told.row(bug.task.id)
            return None
        finally:
            await sandbox.destroy()

    def _plan(self, bug: Bug, rng: Random) -> Iterator[tuple[int, str, float]]:
        """Yield lines to look at, what to change there, and how much that is imitated."""
        for line, before, after in bug.wrong[:MOST_TRIES]:
            if rng.random() >= ANOTHER_TRY:
                break
            if line != bug.line:
                yield line, change_call(before, after), WRONG
        yield bug.line, change_call(bug.planted, bug.right), RIGHT


async def demonstrations(
    config: Config, environment: Environment, tokenizer: FastTokenizer, tokens: int
) -> list[TrainingRow]:
    """Return episodes of the teacher of about so many tokens, on practice functions first; equal for equal seeds."""
    tasks, rng = environment.tasks, Random(config.seed)
    assert isinstance(tasks, HumanEvalPackTasks)
    backend = load_backend(config.sandbox.backend, config.sandbox.image)
    try:
        check_backend(backend)
        teacher = Teacher(environment, backend, tokenizer)
        first = await _shown(teacher, Practice(tasks, rng).draw(rng), int(PRACTICE_SHARE * tokens), rng)
        return first + await _shown(teacher, Mutations(tasks).draw(rng), tokens - _size(first), rng)
    finally:
        await backend.close()


async def _shown(teacher: Teacher, bugs: Iterator[Bug], tokens: int, rng: Random) -> list[TrainingRow]:
    """Return episodes in random order, as many as make up so many tokens or as there are bugs."""
    rows: list[TrainingRow] = []
    while _size(rows) < tokens and (drawn := list(islice(bugs, AT_ONCE))):
        played = await asyncio.gather(*(teacher.demonstrate(bug, Random(rng.random())) for bug in drawn))
        rows += [row for row in played if row is not None and len(row.token_ids) <= MOST_TOKENS]
    return rng.sample(rows, len(rows))


def _size(rows: Sequence[TrainingRow]) -> int:
    return sum(len(row.token_ids) for row in rows)
