"""Random small functions that run: drawn from the shapes in shapes.txt, with random names, constants and arguments.

A shape is a template; its own description stands at the head of shapes.txt. One shape gives dozens to thousands of
different functions, so that the policy learns how such code hangs together and not one text by heart.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from fix_python.warmup.arguments import ANNOTATION, DRAW

_VERBS = "count find make get pick sum_of list_of show check next_of total all_of first last best join split fill"
_NOUNS = "items parts marks words cells pairs steps names points values rows codes tags bits runs gaps links jobs"
_POOLS = {
    "xs": "values items numbers data scores amounts sizes entries prices levels readings row steps marks",
    "ys": "others second weights limits right targets extra more known costs changes",
    "x": "value item number score amount size entry price level current element part cell x v",
    "y": "other second_value weight limit right_value target y cost w before",
    "k": "limit k bound factor width step count threshold size most amount key group",
    "n": "number n count amount length total_size seconds size left rest width",
    "acc": "total result amount found number_found score points answer sum_so_far tally hits",
    "best": "best top winner longest chosen record peak found_at choice",
    "out": "result output found parts collected answer chosen made lines kept",
    "i": "index i position place spot start here at",
    "j": "other_index j end last second_index stop there",
    "s": "text word line string name sentence code message",
    "t": "other second_text pattern letters allowed word2 old",
    "c": "letter char sign mark symbol c ch",
    "w": "word name part item key token label",
    "words": "words names parts tokens items labels fields keys",
    "d": "counts stock table seen amounts groups index_of digit mapping prices",
    "e": "other extra changes delivery more_stock second",
    "ps": "pairs records entries sales spans points rows intervals",
    "p": "pair record entry row",
    "a": "first a left start low_end begin top",
    "b": "second b right end high_end finish bottom",
    "low": "low smallest minimum lower left first",
    "high": "high largest maximum upper right last",
    "g": "grid rows table board matrix cells",
    "row": "row line values",
    "last": "before previous last earlier",
    "moves": "moves path steps walk",
    "ops": "commands tokens steps program",
    "stack": "stack numbers values",
    "queue": "queue window recent held",
    "h": "hours hour h",
    "m": "minutes minute m",
}
_NAME = re.compile(r"\$([a-z]+)")
_BRACED_NAME = re.compile(r"\{(\$[a-z]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A function that is right by definition, with a source of arguments for calls to it."""

    name: str
    source: str
    draw: Callable[[Random], tuple[Any, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One block of shapes.txt."""

    parameters: tuple[tuple[str, str], ...]  # name in the template, kind of values
    docstring: str
    body: tuple[str, ...]


@cache
def shapes() -> tuple[Shape, ...]:
    """Return the shapes of shapes.txt."""
    text = Path(__file__).with_name("shapes.txt").read_text("utf-8")
    blocks = [[line for line in block.split("\n") if not line.startswith("#")] for block in text.split("\n\n")]
    found = []
    for block in blocks:
        lines = [line for line in block if line.strip()]
        if lines:
            parameters = tuple((part.partition(":")[0], part.partition(":")[2]) for part in lines[0].split())
            found.append(Shape(parameters=parameters, docstring=lines[1], body=tuple(lines[2:])))
    return tuple(found)


def random_program(rng: Random) -> Program:
    """Draw a program: shape, alternatives, names. It compiles; calls of it end soon but may raise an exception."""
    shape = rng.choice(shapes())
    filling = _Filling(rng)
    name = filling.function_name()
    body = [line for line in (filling.line(line) for line in shape.body) if line is not None]
    lines = [f"def {name}({filling.parameters(shape)}):"]
    docstring = filling.text(_BRACED_NAME.sub(r"\1", shape.docstring))
    if rng.random() < 0.9:
        lines.append(f'    """{docstring}"""')
    source = "\n".join([*lines, *body]) + "\n"
    ast.parse(source)
    kinds = [kind for _, kind in shape.parameters]
    return Program(name=name, source=source, draw=lambda draw: tuple(DRAW[kind](draw) for kind in kinds))


class _Filling:
    """The choices made for one program: an alternative per key, a name per placeholder."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._choices: dict[str, int] = {}
        self._names: dict[str, str] = {}

    def function_name(self) -> str:
        return f"{self._rng.choice(_VERBS.split())}_{self._rng.choice(_NOUNS.split())}"

    def parameters(self, shape: Shape) -> str:
        annotated = self._rng.random() < 0.8
        parts = []
        for name, kind in shape.parameters:
            default = " = None" if kind == "maybe" and annotated else "=None" if kind == "maybe" else ""
            parts.append(self.text(f"${name}") + (f": {ANNOTATION[kind]}" if annotated else "") + default)
        return ", ".join(parts)

    def line(self, line: str) -> str | None:
        """Return a filled line of the body, or None where it is left out."""
        optional = re.match(r"( *)\?([a-z]) (.*)", line)
        if optional is not None:
            indentation, key, line = optional.groups()
            if self._choice(key, 2) == 0:
                return None
            line = indentation + line
        filled = self.text(line)
        return filled if filled.strip() else None

    def text(self, template: str) -> str:
        return _NAME.sub(lambda match: self._name(match[1]), self._alternatives(template))

    def _alternatives(self, text: str) -> str:
        """Replace the outermost groups by one of their alternatives, then what is inside of that."""
        result, at = "", 0
        while (start := text.find("{", at)) >= 0:
            end, bars = _group(text, start)
            key, first = _key(text, start, bars)
            cuts = [first - 1, *bars, end]
            if not bars:  # braces of the program itself
                result += text[at : start + 1] + self._alternatives(text[start + 1 : end]) + "}"
            else:
                chosen = self._choice(key, len(bars) + 1) % (len(bars) + 1)
                result += text[at:start] + self._alternatives(text[cuts[chosen] + 1 : cuts[chosen + 1]])
            at = end + 1
        return result + text[at:]

    def _choice(self, key: str | None, count: int) -> int:
        if key is None:
            return self._rng.randrange(count)
        return self._choices.setdefault(key, self._rng.randrange(count))

    def _name(self, placeholder: str) -> str:
        if placeholder not in self._names:
            free = [name for name in _POOLS[placeholder].split() if name not in self._names.values()]
            self._names[placeholder] = self._rng.choice(free)
        return self._names[placeholder]


def _group(text: str, start: int) -> tuple[int, list[int]]:
    """Return where the group that opens at `start` closes, and where its own bars are."""
    depth, bars = 0, []
    for at in range(start, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 1 and text[at] == "|":
            bars.append(at)
        if depth == 0:
            return at, bars
    raise ValueError(f"a group never closes: {text[start:]!r}")


def _key(text: str, start: int, bars: list[int]) -> tuple[str | None, int]:
    if bars and text[start + 1].isalpha() and text[start + 2] == ":":
        return text[start + 1], start + 3
    return None, start + 1


def name_pool() -> tuple[str, ...]:
    """Return all names that programs may give to their variables."""
    return tuple(dict.fromkeys(name for names in _POOLS.values() for name in names.split()))
