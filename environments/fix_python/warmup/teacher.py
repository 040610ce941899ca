"""Demonstrations of a scripted teacher that knows the bug but behaves like a learner: it errs, retries and gives up early.

What it does is random on purpose. A policy that imitates it can do everything that solves a task (test first, repair,
test again, take back a wrong repair, try another, submit when the tests pass), and as often does it badly, so that
reinforcement learning has something to choose from. Only repairs are imitated at full weight, mistakes hardly: what is
right about a repair is learnt from the repairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from random import Random

from fix_python.warmup.exercises import Exercise
from fix_python.warmup.trial import visible_report
from sanderling.harness.line_edit import number_lines
from sanderling.tasks.mutation import Mutant


class Role(Enum):
    """What a piece of a demonstration is, which decides how much it is imitated."""

    PROMPT = "prompt"
    ACTION = "action"
    LINE = "line"  # an edit in a line that nothing but chance chose: its text is imitated, the choice is not
    MISTAKE = "mistake"  # an action that is not imitated, except for what a wrong edit leaves as it was
    OBSERVATION = "observation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    role: Role
    text: str
    before: str = ""  # of a wrong edit: the call that would leave the line as it was


ACTIONS = frozenset({Role.ACTION, Role.LINE, Role.MISTAKE})


Demonstration = tuple[Piece, ...]
"""PROMPT, then ACTION or MISTAKE and OBSERVATION in turn; it ends with an action."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """Probabilities of what the teacher does when it has the choice."""

    tests_first: float = 0.5
    repairs: float = 0.5  # an edit is the right one
    tests_edit: float = 0.6  # after an edit; otherwise it submits untested
    gives_up: float = 0.35  # submits although the tests fail
    undoes: float = 0.8  # takes a wrong edit back before the next one
    shows: float = 0.03
    most_edits: int = 4


def prompt_of(name: str, source: str) -> str:
    """Return the prompt as the environment's tasks and its harness write it."""
    return f"Fix the bug in {name}.\n{number_lines(source)}\n"


class _Workspace:
    """One file, edited as the line editor does it."""

    def __init__(self, source: str) -> None:
        self.lines = source.splitlines()
        self._undo: list[list[str]] = []

    @property
    def source(self) -> str:
        return "\n".join(self.lines) + "\n"

    def set(self, line: int, text: str) -> None:
        self._undo.append(list(self.lines))
        old = self.lines[line - 1]
        self.lines[line - 1] = old[: len(old) - len(old.lstrip())] + text.strip()

    def undo(self) -> None:
        self.lines = self._undo.pop()


def proofread(exercise: Exercise, rng: Random, most: int) -> Demonstration:
    """Demonstrate copying and repairing: every line is set to what is right, in random order; up to `most` were wrong."""
    workspace = _planted(exercise, _bugs_in_different_lines(exercise, rng, rng.randint(0, most)))
    pieces = [Piece(role=Role.PROMPT, text=prompt_of(exercise.name, workspace.source))]
    lines = [(number, text.strip()) for number, text in enumerate(exercise.source.splitlines(), 1) if text.strip()]
    for number, text in rng.sample(lines, len(lines)):
        pieces.append(Piece(role=Role.LINE, text=f"set {number} | {text}"))
        pieces.append(Piece(role=Role.OBSERVATION, text="ok"))
    return (*pieces, Piece(role=Role.MISTAKE, text="submit"))


def repair_many(exercise: Exercise, rng: Random, most: int = 4) -> Demonstration:
    """Demonstrate repairs alone: up to `most` bugs in different lines, repaired in random order, nothing run."""
    bugs = _bugs_in_different_lines(exercise, rng, rng.randint(1, most))
    workspace = _planted(exercise, bugs)
    gold = exercise.source.splitlines()
    pieces = [Piece(role=Role.PROMPT, text=prompt_of(exercise.name, workspace.source))]
    for bug in bugs:
        pieces.append(Piece(role=Role.ACTION, text=f"set {bug.line} | {gold[bug.line - 1].strip()}"))
        pieces.append(Piece(role=Role.OBSERVATION, text="ok"))
    return (*pieces, Piece(role=Role.MISTAKE, text="submit"))


def _bugs_in_different_lines(exercise: Exercise, rng: Random, most: int) -> list[Mutant]:
    return list({bug.line: bug for bug in [exercise.draw_bug(rng) for _ in range(2 * most)]}.values())[:most]


def _planted(exercise: Exercise, bugs: list[Mutant]) -> _Workspace:
    workspace = _Workspace(exercise.source)
    for bug in bugs:
        workspace.set(bug.line, bug.text)
    return workspace


def demonstrate(exercise: Exercise, rng: Random, habits: Habits) -> Demonstration:
    """Demonstrate a whole episode on one bug, with what the visible tests really print."""
    bug = exercise.draw_bug(rng)
    return _Episode(exercise, bug, rng, habits).play()


class _Episode:
    """One episode of the teacher."""

    def __init__(self, exercise: Exercise, bug: Mutant, rng: Random, habits: Habits) -> None:
        assert exercise.calls is not None
        self._exercise, self._calls, self._bug, self._rng, self._habits = exercise, exercise.calls, bug, rng, habits
        self._workspace = _Workspace(bug.source)
        self._right = exercise.source.splitlines()[bug.line - 1].strip()
        self._tried: set[tuple[int, str]] = {(bug.line, bug.text.strip())}
        self._pieces = [Piece(role=Role.PROMPT, text=prompt_of(exercise.name, bug.source))]

    def play(self) -> Demonstration:
        if self._chance(self._habits.tests_first):
            self._test()
        wrong_line: int | None = None
        for attempt in range(self._habits.most_edits):
            line, text = self._choose_edit()
            if (
                wrong_line is not None
                and (wrong_line != line or self._chance(0.3))
                and self._chance(self._habits.undoes)
            ):
                self._workspace.undo()
                self._say(Role.ACTION, "undo", "ok")
            self._edit(line, text)
            if not self._chance(self._habits.tests_edit):
                break
            if self._test() or attempt + 1 == self._habits.most_edits or self._chance(self._habits.gives_up):
                break
            wrong_line = line
        return (*self._pieces, Piece(role=Role.ACTION, text="submit"))

    def _chance(self, probability: float) -> bool:
        return self._rng.random() < probability

    def _say(self, role: Role, action: str, observation: str, before: str = "") -> None:
        self._pieces += [Piece(role=role, text=action, before=before), Piece(role=Role.OBSERVATION, text=observation)]

    def _choose_edit(self) -> tuple[int, str]:
        wrong = self._wrong_edits()
        if not wrong or self._chance(self._habits.repairs):
            return self._bug.line, self._right
        return self._rng.choice(wrong)

    def _wrong_edits(self) -> list[tuple[int, str]]:
        same_line = [bug for bug in self._exercise.bugs if bug.line == self._bug.line]
        pool = same_line if same_line and self._rng.random() < 0.4 else self._exercise.bugs
        return [edit for bug in pool if (edit := (bug.line, bug.text.strip())) not in self._tried]

    def _edit(self, line: int, text: str) -> None:
        right = (line, text) == (self._bug.line, self._right)
        self._tried.add((line, text))
        before = "" if right else f"set {line} | {self._workspace.lines[line - 1].strip()}"
        self._workspace.set(line, text)
        self._say(Role.ACTION if right else Role.MISTAKE, f"set {line} | {text}", "ok", before)
        if self._chance(self._habits.shows):
            self._say(Role.ACTION, "show", number_lines(self._workspace.source))

    def _test(self) -> bool:
        text, passed = visible_report(self._workspace.source, self._calls)
        self._say(Role.ACTION, "test", text)
        return passed
