"""Arguments for calls: values of named kinds, and which kinds a function seems to expect."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable
from random import Random
from typing import Any

from fix_python.warmup.trial import recorded_calls
from sanderling.verify.values import text_of

WORDS = ("ann", "bob", "cy", "pen", "ink", "cup", "Red", "blue", "oak", "a", "to", "Tin", "map", "sea", "apple")


Draw = Callable[[Random], tuple[Any, ...]]  # the arguments of one call


def _list(rng: Random, low: int, high: int, longest: int = 6) -> list[int]:
    return [rng.randint(low, high) for _ in range(rng.randint(0, longest))]


def _words(rng: Random) -> list[str]:
    return [rng.choice(WORDS) for _ in range(rng.randint(0, 5))]


def _stock(rng: Random) -> dict[str, int]:
    return {name: rng.randint(0, 6) for name in rng.sample(WORDS, rng.randint(0, 4))}


def _grid(rng: Random) -> list[list[int]]:
    width = rng.randint(1, 4)
    return [[rng.randint(0, 9) for _ in range(width)] for _ in range(rng.randint(1, 4))]


DRAW: dict[str, Callable[[Random], Any]] = {
    "ints": lambda rng: _list(rng, *rng.choice([(0, 9), (-5, 5), (0, 3), (-20, 99)])),
    "int": lambda rng: rng.randint(-3, 9),
    "small": lambda rng: rng.randint(1, 5),
    "index": lambda rng: rng.randint(0, 3),
    "count": lambda rng: rng.choice([0, 1, 5, 10, 12, 20, 50, rng.randint(2, 150), rng.randint(2, 60)]),
    "bool": lambda rng: rng.random() < 0.5,
    "text": lambda rng: " ".join(_words(rng)) + rng.choice(["", "", "7", "ee", "A1 x"]),
    "letter": lambda rng: rng.choice("aeo n-"),
    "pairstext": lambda rng: ",".join(
        rng.choice(["a=1", "b=2", "a=7", "c", "", "d=10"]) for _ in range(rng.randint(0, 4))
    ),
    "words": _words,
    "name": lambda rng: rng.choice(WORDS),
    "stock": _stock,
    "named": lambda rng: [(rng.choice(WORDS[:5]), rng.randint(-2, 9)) for _ in range(rng.randint(0, 5))],
    "pairs": lambda rng: [(rng.randint(-2, 6), rng.randint(0, 9)) for _ in range(rng.randint(0, 4))],
    "moves": lambda rng: "".join(rng.choice("UDLRNSWE") for _ in range(rng.randint(0, 6))),
    "grid": _grid,
    "ops": lambda rng: [rng.choice(["1", "2", "7", "+", "*", "d", "x"]) for _ in range(rng.randint(0, 6))],
    "nested": lambda rng: [_list(rng, 0, 9, 4) for _ in range(rng.randint(0, 4))],
    "maybe": lambda rng: rng.choice([None, None, [], [1]]),
    "brackets": lambda rng: "".join(rng.choice("(()) )(a") for _ in range(rng.randint(0, 7))),
    "float": lambda rng: rng.choice([0.5, 2.0, 2.5, 10.0, float(rng.randint(-3, 20))]),
    "pair": lambda rng: (rng.randint(0, 6), rng.randint(0, 9)),
    "triple": lambda rng: (rng.randint(1, 9), rng.randint(1, 9), rng.randint(1, 9)),
    "digits": lambda rng: str(rng.randint(0, 99999)),
    "listed": lambda rng: {w: _list(rng, 0, 9, 3) for w in rng.sample(WORDS, rng.randint(0, 3))},
    "links": lambda rng: {w: rng.sample(WORDS[:5], rng.randint(0, 3)) for w in WORDS[:5]},
    "records": lambda rng: [
        {"name": rng.choice(WORDS), "price": rng.randint(1, 9), "amount": rng.randint(0, 5)}
        for _ in range(rng.randint(0, 4))
    ],
    "lines": lambda rng: "\n".join(" ".join(_words(rng)) for _ in range(rng.randint(0, 3))),
    "clock": lambda rng: f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}",
    "year": lambda rng: rng.choice([2000, 1900, 2024, 2023, rng.randint(1800, 2100)]),
}
ANNOTATION = {
    **dict.fromkeys(["int", "small", "index", "count", "year"], "int"),
    **dict.fromkeys(["text", "letter", "pairstext", "name", "moves", "brackets", "digits", "lines", "clock"], "str"),
    **dict.fromkeys(["ints", "words", "named", "pairs", "grid", "ops", "nested", "records"], "list"),
    "bool": "bool",
    "float": "float",
    "pair": "tuple",
    "triple": "tuple",
    **dict.fromkeys(["stock", "listed", "links"], "dict"),
    "maybe": "list | None",
}
_TRIES = 40
_CALLS = 6


def guessed_draw(source: str, name: str, rng: Random) -> Draw | None:
    """Return a source of arguments that the function takes, found by trying kinds that fit its annotations.

    None where every kind leads to exceptions in more than a third of the calls, or always to the same result.
    """
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    annotations = [ast.unparse(a.annotation) if a.annotation else "" for a in function.args.args]
    fitting = [_fitting(annotation) for annotation in annotations]
    if not all(fitting):
        return None
    every = list(itertools.islice(itertools.product(*fitting), 400))
    best, best_score = None, 0.0
    for kinds in rng.sample(every, min(_TRIES, len(every))):
        draw = _drawing(kinds)
        score = _score(source, name, [draw(rng) for _ in range(_CALLS)])
        if score > best_score:
            best, best_score = draw, score
    return best


def _fitting(annotation: str) -> list[str]:
    plain = annotation.partition("[")[0].partition(" |")[0]
    return [kind for kind, other in ANNOTATION.items() if other.partition(" |")[0] == plain]


def _drawing(kinds: tuple[str, ...]) -> Draw:
    return lambda rng: tuple(DRAW[kind](rng) for kind in kinds)


def _score(source: str, name: str, arguments: list[tuple[Any, ...]]) -> float:
    """Return how well the arguments suit: the share of calls that return, plus a little for different results."""
    calls = recorded_calls(source, name, arguments)
    if calls is None:
        return 0.0
    returned = [example for example in calls.examples if example["raised"] is None]
    results = {text_of([example["value"], example["arguments"], example["printed"]]) for example in returned}
    values = {text_of(example["value"]) for example in returned}
    if len(returned) < 2 * _CALLS / 3 or len(results) < 2:
        return 0.0
    return len(returned) + len(values) / 2
