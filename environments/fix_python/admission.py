"""Which mutants become tasks: the right function passes, the bug is noticed often enough, and nothing depends on chance."""

from __future__ import annotations

import random
import resource
import signal
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import FrameType

from fix_python.catalogue import digest
from fix_python.problem import Problem
from sanderling.errors import TaskError
from sanderling.tasks.mutation import Mutant, mutants
from sanderling.types import JsonValue
from sanderling.verify.recording import RecordedFunction
from sanderling.verify.values import encode

DRAWS = 128
"""Hidden calls on which a mutant is tried."""
LEAST_FAILING = 0.15
"""Smallest share of hidden calls that must tell a bug from the right function. A grading draws 48 fresh calls, so doing
nothing is paid with a probability of at most (1 - 0.15) ** 48 = 0.0004."""
CALL_CPU_S = 0.02  # a call of a right function takes about 0.00001
MEMORY_BYTES = 512 << 20  # that the calls may add to this process: one wrong `[x] * n` can ask for any amount
MOST_CUT_OFF = 2
"""A mutant is given up after so many calls that had to be cut off; its share is then that of the calls made."""


class Rejection(StrEnum):
    """Why a mutant is no task."""

    EQUIVALENT = "equivalent"  # no hidden call and no example tells it from the right function
    TOO_QUIET = "too quiet"  # fewer than LEAST_FAILING of the hidden calls fail
    NOT_LOADED = "not loaded"  # the module fails at its top level, before any call
    UNSTABLE = "unstable"  # two processes with different hash seeds saw different things


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What came of running one mutant against the right function."""

    mutant: Mutant
    executed: int  # hidden calls made
    failed: int  # of them, calls on which the mutant differs from the right function
    cut_off: int  # of those, calls that did not end in CALL_CPU_S of processor time
    visible_failed: int  # examples on which it differs, counted up to the first that had to be cut off
    seen: str  # digest of everything observed
    rejection: Rejection | None


class CallCutOff(BaseException):
    """A call took too long. Not an Exception, so that no `except Exception` of a mutant catches it."""


def _cut_off(signum: int, frame: FrameType | None) -> None:
    raise CallCutOff


def hidden_arguments(problem: Problem, seed: int, count: int) -> list[JsonValue]:
    """Return encoded arguments of `count` hidden calls."""
    rng = random.Random(f"{problem.name} {seed}")
    return [encode(list(arguments)) for arguments in problem.draw(rng, count)]


def example_arguments(problem: Problem) -> list[JsonValue]:
    """Return encoded arguments of the visible calls."""
    return [encode(list(arguments)) for arguments in problem.examples]


def check_gold(problem: Problem, examples: list[JsonValue], hidden: list[JsonValue]) -> list[str]:
    """Return the right function's observations on the examples and the hidden calls, examples first.

    Raises:
        TaskError: it is not deterministic, does not end, or shows a value of an unknown type.
    """
    calls = examples + hidden
    first, cut_off = _observe(problem.source, problem.name, calls, 1)
    if cut_off:
        raise TaskError(f"the right {problem.name!r} does not end in {CALL_CPU_S} s on {calls[len(first) - 1]}")
    again, _ = _observe(problem.source, problem.name, calls, 1)
    backward, _ = _observe(problem.source, problem.name, calls[::-1], 1)
    if first != again or first != backward[::-1]:
        raise TaskError(f"the right {problem.name!r} answers differently when asked again; it must be deterministic")
    unknown = [calls[i] for i, key in enumerate(first) if key is None]
    if unknown:
        raise TaskError(f"the right {problem.name!r} shows a value of an unknown type on {unknown[0]}")
    return [str(key) for key in first]


def _observe(source: str, name: str, calls: Sequence[JsonValue], most_cut_off: int) -> tuple[list[str | None], int]:
    """Return the key of each observation until `most_cut_off` calls were cut off, and the number of those."""
    keys: list[str | None] = []
    cut_off = 0
    with _limited():
        function = RecordedFunction(source, name)
        for arguments in calls:
            try:
                # again and again: an exception that happens to be raised in a collector's callback is lost
                signal.setitimer(signal.ITIMER_PROF, CALL_CPU_S, CALL_CPU_S)
                key = function(arguments).key()
                signal.setitimer(signal.ITIMER_PROF, 0)
            except CallCutOff:
                signal.setitimer(signal.ITIMER_PROF, 0)
                key = "cut off"
                cut_off += 1
            keys.append(key)
            if cut_off >= most_cut_off:
                break
    return keys, cut_off


@contextmanager
def _limited() -> Generator[None]:
    """Make SIGPROF raise CallCutOff, and bound this process's memory, until the end of the block."""
    previous = signal.signal(signal.SIGPROF, _cut_off)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, hard))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        # In a process with threads a last signal may still be on its way, and the default action would end the process.
        signal.signal(signal.SIGPROF, signal.SIG_IGN if previous in (signal.SIG_DFL, None) else previous)


def try_mutant(
    name: str, mutant: Mutant, examples: list[JsonValue], hidden: list[JsonValue], gold: Sequence[str]
) -> Trial:
    """Run a mutant on the calls whose right observations are `gold` (from `check_gold` on the same calls)."""
    try:
        hidden_keys, cut_off = _observe(mutant.source, name, hidden, MOST_CUT_OFF)
        visible_keys, _ = _observe(mutant.source, name, examples, 1)
    except Exception:
        return Trial(
            mutant=mutant, executed=0, failed=0, cut_off=0, visible_failed=0, seen="", rejection=Rejection.NOT_LOADED
        )
    failed = sum(key != right for key, right in zip(hidden_keys, gold[len(examples) :], strict=False))
    visible_failed = sum(key != right for key, right in zip(visible_keys, gold, strict=False))
    rejection = None
    if failed == 0 and visible_failed == 0:
        rejection = Rejection.EQUIVALENT
    elif failed < LEAST_FAILING * len(hidden_keys):
        rejection = Rejection.TOO_QUIET
    return Trial(
        mutant=mutant,
        executed=len(hidden_keys),
        failed=failed,
        cut_off=cut_off,
        visible_failed=visible_failed,
        seen=digest(repr((hidden_keys, visible_keys))),
        rejection=rejection,
    )


def trials(problem: Problem, seed: int) -> list[Trial]:
    """Plant every bug in a function and try it. Main thread only: it uses SIGPROF and limits memory."""
    examples, hidden = example_arguments(problem), hidden_arguments(problem, seed, DRAWS)
    gold = check_gold(problem, examples, hidden)
    return [try_mutant(problem.name, mutant, examples, hidden, gold) for mutant in mutants(problem.source)]
