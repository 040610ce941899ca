"""Functions to learn from: practice functions written for it, and those of the Python standard library that is installed.

None of them is near to a held-out problem, by the same measure and limit that divide the problems into splits.
"""

from __future__ import annotations

import ast
import re
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from random import Random

from fix_python.catalogue import problems
from fix_python.splits import HELD_OUT, NEAR, assign
from sanderling.tasks.similarity import Shingles, View, likeness, shingles

MIN_LINES, MAX_LINES = 3, 16
MAX_CHARACTERS = 600
MAX_LINE_LENGTH = 80
METHODS_SHARE = 0.3  # of the methods are taken
_LEFT_OUT = frozenset(
    {"site-packages", "test", "tests", "idlelib", "idle_test", "lib2to3", "__pycache__", "turtledemo"}
)
_PLAIN_QUOTES = re.compile(r"'([^'\"\\\n]*)'")


def practice_functions() -> list[str]:
    """Return the sources of the functions in the folder `practice`, each ending in a newline."""
    sources = []
    for file in sorted(Path(__file__).with_name("practice").glob("*.txt")):
        text = file.read_text("utf-8")
        nodes = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
        sources += ["\n".join(text.split("\n")[node.lineno - 1 : node.end_lineno]) + "\n" for node in nodes]
    return [source for source in sources if not near_held_out(source)]


class HeldOut:
    """Functions that nothing in a corpus may be near to, as `fix_python.splits` has it: by name, by words or by shape."""

    def __init__(self, names: Iterable[str], sources: Iterable[str]) -> None:
        self._names = frozenset(names)
        self._looks: list[tuple[View, Shingles]] = [
            (view, shingles(source, view)) for source in sources for view in View
        ]

    def near(self, source: str) -> bool:
        """Return whether a function (its source, beginning with `def`) is near to one of them."""
        if source[4 : source.index("(")] in self._names:
            return True
        own = {view: shingles(source, view) for view in View}
        return any(likeness(own[view], other) >= NEAR for view, other in self._looks)


@cache
def _held_out() -> HeldOut:
    split = assign(list(problems().values()))
    held_out = [problem for problem in problems().values() if split[problem.name] == HELD_OUT]
    return HeldOut([p.name for p in held_out], [p.source for p in held_out])


def near_held_out(source: str) -> bool:
    """Return whether a function has the name of a held-out problem or is near to one."""
    return _held_out().near(source)


def library_functions(rng: Random, count: int) -> list[str]:
    """Return up to `count` sources of functions of the standard library, each ending in a newline, all different.

    Methods are rare among them, because the policy will work on plain functions. The result depends on the interpreter's
    own library and on `rng`.
    """
    root = Path(sysconfig.get_paths()["stdlib"])
    files = [file for file in sorted(root.rglob("*.py")) if _LEFT_OUT.isdisjoint(file.relative_to(root).parts)]
    rng.shuffle(files)
    chosen: dict[str, None] = {}
    for file in files:
        for source in _functions_of(file):
            if ("self" not in source or rng.random() < METHODS_SHARE) and not near_held_out(source):
                chosen[source] = None
        if len(chosen) >= count:
            break
    sources = list(chosen)
    rng.shuffle(sources)
    return sources[:count]


def _functions_of(file: Path) -> Iterator[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(file.read_text("utf-8"))
    except (SyntaxError, UnicodeDecodeError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno < 3 * MAX_LINES:
            source = normalised(node)
            if source is not None:
                yield source


def normalised(node: ast.FunctionDef) -> str | None:
    """Return the function as plain source in the style of the problems, or None where it is too short, long or wide.

    Decorators go, a docstring keeps its first line, and texts stand in double quotes where that changes nothing.
    """
    node.decorator_list = []
    docstring = ast.get_docstring(node)
    if docstring is not None:
        first = docstring.strip().split("\n")[0][: MAX_LINE_LENGTH - 12]
        node.body = [ast.Expr(ast.Constant(first)), *node.body[1:]] if first.isascii() and first else node.body[1:]
    if not node.body:
        return None
    plain = ast.unparse(node) + "\n"
    quoted = _PLAIN_QUOTES.sub(r'"\1"', plain)
    try:
        same = ast.dump(ast.parse(quoted)) == ast.dump(ast.parse(plain))
    except SyntaxError:
        same = False
    source = quoted if same else plain
    lines = source.splitlines()
    fits = MIN_LINES <= len(lines) <= MAX_LINES and len(source) <= MAX_CHARACTERS and source.isascii()
    return source if fits and max(map(len, lines)) <= MAX_LINE_LENGTH else None
