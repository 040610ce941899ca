"""Demonstrations of a scripted teacher that knows the bug but behaves like a learner: it errs, retries and gives up early.

What it does is random on purpose. A policy that imitates it can do everything that solves a task (test, look at a line, try a
repair, try another, submit when the tests pass), and as often does it badly, so that reinforcement learning has something to
choose from. Only what helps is imitated at full weight; mistakes hardly are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from random import Random

from fix_python.warmup.edits import change_call, missing_call
from fix_python.warmup.exercises import Exercise
from fix_python.warmup.trial import visible_report
from sanderling.harness.line_edit import NO_SUCH_TEXT, number_lines
from sanderling.tasks.mutation import Mutant

TESTED = 0.5  # share of the repairs on running code that begin with the visible tests
UNTESTED = "ok 0 of 4"  # the answer to a change in code that can't run here


class Role(Enum):
    """What a piece of a demonstration is, which decides how much it is imitated."""

    PROMPT = "prompt"
    ACTION = "action"
    MISTAKE = "mistake"  # an action of the right form that doesn't help
    MISS = "miss"  # an action that fails; what follows it is to be learnt, not itself
    OBSERVATION = "observation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    role: Role
    text: str


ACTIONS = frozenset({Role.ACTION, Role.MISTAKE, Role.MISS})


Demonstration = tuple[Piece, ...]
"""PROMPT, then one of ACTIONS and OBSERVATION in turn; it ends with an action."""


class Order(Enum):
    """At which lines a teacher looks before it passes on."""

    ANY = "any"  # at some line, again and again
    NEW = "new"  # at lines that it has not looked at; never at that of the bug


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """Probabilities of what a teacher does when it has the choice."""

    tests_first: float = 0.6
    repairs: float = 0.25  # an edit is the right one
    passes_on: float = 0.2  # looks at a line and leaves it as it is, before an edit
    order: Order = Order.ANY  # of the lines that it passes on at
    gives_up: float = 0.3  # submits although the tests fail
    shows: float = 0.002
    misses: float = 0.1  # tries to replace what is not in the line, before an edit
    looks_again: float = 0.1  # names the line that is current already
    most_edits: int = 14


HASTY = Habits(repairs=0.4, passes_on=0.1, misses=0.0, gives_up=0.6)
STEADY = Habits()
STUBBORN = Habits(repairs=0.1, passes_on=0.4, misses=0.3, gives_up=0.03)
GUESSING = (HASTY, STEADY, STUBBORN)
SEARCHING = (
    replace(HASTY, passes_on=0.4, order=Order.NEW),
    replace(STEADY, passes_on=0.65, order=Order.NEW, misses=0.03),
    replace(STUBBORN, repairs=0.2, passes_on=0.7, order=Order.NEW, misses=0.06),
)


def prompt_of(name: str, source: str) -> str:
    """Return the prompt as the environment's tasks and its harness write it."""
    return f"Fix the bug in {name}.\n{number_lines(source)}\n"


class _Workspace:
    """One file, edited as the line editor does it."""

    def __init__(self, source: str) -> None:
        self.lines = source.splitlines()

    @property
    def source(self) -> str:
        return "\n".join(self.lines) + "\n"

    def line(self, number: int) -> str:
        return self.lines[number - 1].strip()

    def set(self, number: int, text: str) -> None:
        old = self.lines[number - 1]
        new = old[: len(old) - len(old.lstrip())] + text.strip()
        self.lines = [*self.lines[: number - 1], new, *self.lines[number:]]


def repair_many(exercise: Exercise, rng: Random, most: int = 5) -> Demonstration:
    """Demonstrate repairs alone: up to `most` bugs in different lines, repaired one after the other in random order."""
    bugs = _bugs_in_different_lines(exercise, rng, rng.randint(1, most))
    gold = exercise.source.splitlines()
    workspace = _Workspace(exercise.source)
    for bug in bugs:
        workspace.set(bug.line, bug.text)
    pieces = [Piece(role=Role.PROMPT, text=prompt_of(exercise.name, workspace.source))]
    if exercise.calls is not None and rng.random() < TESTED:
        pieces.append(Piece(role=Role.ACTION, text="test"))
        pieces.append(Piece(role=Role.OBSERVATION, text=visible_report(workspace.source, exercise.calls)[0]))
    for bug in bugs:
        right = gold[bug.line - 1].strip()
        pieces.append(Piece(role=Role.ACTION, text=f"line {bug.line}"))
        pieces.append(Piece(role=Role.OBSERVATION, text=workspace.line(bug.line)))
        pieces.append(Piece(role=Role.ACTION, text=change_call(workspace.line(bug.line), right)))
        workspace.set(bug.line, right)
        answer = UNTESTED if exercise.calls is None else first_line(visible_report(workspace.source, exercise.calls)[0])
        pieces.append(Piece(role=Role.OBSERVATION, text=answer))
    return (*pieces, Piece(role=Role.ACTION, text="submit"))


def first_line(report: str) -> str:
    """Return what a change is answered with."""
    return report.partition("\n")[0]


def _bugs_in_different_lines(exercise: Exercise, rng: Random, most: int) -> list[Mutant]:
    return list({bug.line: bug for bug in [exercise.draw_bug(rng) for _ in range(2 * most)]}.values())[:most]


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
        self._gold = exercise.source.splitlines()
        self._current = 0
        self._tried: set[tuple[int, str]] = {(bug.line, bug.text.strip())}
        self._seen: set[int] = {bug.line}
        self._pieces = [Piece(role=Role.PROMPT, text=prompt_of(exercise.name, bug.source))]

    def play(self) -> Demonstration:
        if self._chance(self._habits.tests_first):
            self._say(Role.ACTION, "test", visible_report(self._workspace.source, self._calls)[0])
        for _ in range(self._habits.most_edits):
            while self._chance(self._habits.passes_on):
                self._pass_on()
            if self._edit(*self._choose_edit()) or self._chance(self._habits.gives_up):
                break
        return (*self._pieces, Piece(role=Role.ACTION, text="submit"))

    def _chance(self, probability: float) -> bool:
        return self._rng.random() < probability

    def _say(self, role: Role, action: str, observation: str) -> None:
        self._pieces += [Piece(role=role, text=action), Piece(role=Role.OBSERVATION, text=observation)]

    def _pass_on(self) -> None:
        lines = [bug.line for bug in self._exercise.bugs]
        if self._habits.order is Order.NEW:
            lines = [line for line in lines if line not in self._seen]
        if lines:
            self._look_at(self._rng.choice(lines), Role.MISTAKE)

    def _look_at(self, line: int, role: Role) -> None:
        self._current = line
        self._seen.add(line)
        self._say(role, f"line {line}", self._workspace.line(line))

    def _choose_edit(self) -> tuple[int, str]:
        wrong = [] if self._chance(self._habits.repairs) else self._wrong_edits()
        return self._rng.choice(wrong) if wrong else (self._bug.line, self._gold[self._bug.line - 1].strip())

    def _wrong_edits(self) -> list[tuple[int, str]]:
        same_line = [bug for bug in self._exercise.bugs if bug.line == self._bug.line]
        pool = same_line if same_line and self._rng.random() < 0.3 else self._exercise.bugs
        edits = [(bug.line, bug.text.strip()) for bug in pool]
        return [edit for edit in edits if edit not in self._tried and edit[1] != self._workspace.line(edit[0])]

    def _edit(self, line: int, text: str) -> bool:
        """Make an edit; return whether all visible tests pass now."""
        right = text == self._gold[line - 1].strip()
        self._tried.add((line, text))
        role = Role.ACTION if right else Role.MISTAKE
        if line != self._current or self._chance(self._habits.looks_again):
            self._look_at(line, role)
        now = self._workspace.line(line)
        while self._chance(self._habits.misses):
            self._say(Role.MISS, missing_call(self._workspace.source, now, self._rng), f"{NO_SUCH_TEXT}\n{now}")
        call = change_call(now, text)
        before = self._workspace.lines
        self._workspace.set(line, text)
        report, passed = visible_report(self._workspace.source, self._calls)
        self._say(role, call, first_line(report))
        if not passed:
            self._workspace.lines = before
        if self._chance(self._habits.shows):
            self._say(Role.ACTION, "show", number_lines(self._workspace.source))
        return passed
