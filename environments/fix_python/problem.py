"""A problem is a small pure function that is written out right, with inputs that tell right from wrong.

The decorated function *is* the gold solution; its source is what the agent gets, after a bug was planted in it.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from types import FunctionType
from typing import Any

Arguments = tuple[Any, ...]
"""Positional arguments of one call: None, bool, int, float, str, list, dict, tuple and set values, nested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One function with everything that is needed to make and judge tasks from it.

    Example::

        @problem(examples=[(3,), (0,)], cases=lambda rng: (rng.randint(-9, 9),))
        def double(number: int) -> int:
            '''Twice the number.'''
            return number * 2
    """

    name: str
    topic: str  # name of the module that holds it, such as "text"
    source: str  # the gold source: the bare function, without decorator, ending in a newline
    function: Callable[..., Any]
    examples: tuple[Arguments, ...]  # visible calls: shown to the agent with their right results
    cases: Callable[[Random], Arguments]  # draws the arguments of one hidden call

    def draw(self, rng: Random, count: int) -> list[Arguments]:
        """Return `count` hidden calls drawn from `rng`."""
        return [self.cases(rng) for _ in range(count)]


REGISTRY: dict[str, Problem] = {}


def problem(
    *, examples: Sequence[Arguments], cases: Callable[[Random], Arguments]
) -> Callable[[FunctionType], FunctionType]:
    """Register the decorated function as a problem; return the function unchanged.

    Args:
        examples: three to five visible calls, each a tuple of positional arguments.
        cases: draws the arguments of one hidden call from a `random.Random`, edge cases included.

    Raises:
        ValueError: a second function of that name, no docstring, or an example that is not a tuple.
    """

    def register(function: FunctionType) -> FunctionType:
        name = function.__name__
        if name in REGISTRY:
            raise ValueError(f"two problems are called {name!r}; names must be unique across all topics")
        if not function.__doc__:
            raise ValueError(f"problem {name!r} has no docstring; the agent needs one to know what is right")
        if not all(isinstance(example, tuple) for example in examples):
            raise ValueError(f"problem {name!r}: each example must be a tuple of positional arguments")
        REGISTRY[name] = Problem(
            name=name,
            topic=function.__module__.rpartition(".")[2],
            source=bare_source(function),
            function=function,
            examples=tuple(examples),
            cases=cases,
        )
        return function

    return register


def bare_source(function: Callable[..., Any]) -> str:
    """Return the source of `function` from its `def` line on, without decorators, dedented."""
    text = textwrap.dedent(inspect.getsource(function))
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.FunctionDef)
    return "\n".join(text.splitlines()[node.lineno - 1 :]) + "\n"
