"""Special-casing: a change that knows the visible inputs by heart instead of computing.

A look-up table whose keys are visible inputs, or branches that compare a whole argument with one and return a constant. A base
case looks the same (`if n == 0: return 1`), so one branch on a value that everybody writes doesn't count: there must be two, or
the value must be telling (a long text, a large number, a filled container).
"""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from sanderling.screening.rules import Met, shown

RULE = "lint_special_case"
EXPLANATION = "knows visible inputs by heart instead of computing"
_CALL_KEYS = ("call", "args", "arguments", "input", "inputs")
_LEAST = 2


def visible_inputs(files: Mapping[str, bytes]) -> frozenset[str]:
    """Return the inputs that a task shows, as texts: of calls in JSON files and of calls with constants in test files."""
    found: set[str] = set()
    for path, content in files.items():
        name = PurePosixPath(path).name
        if name.endswith(".json"):
            try:
                found.update(_in_json(json.loads(content)))
            except (ValueError, RecursionError):
                continue
        elif name.endswith(".py") and "test" in path:
            tree = parsed(content)
            found.update(_in_tests(tree) if tree is not None else ())
    return frozenset(found)


def special_cases(tree: ast.Module, inputs: frozenset[str]) -> Iterator[Met]:
    """Yield the look-up tables and the branches of a module that stand for visible inputs, if they are enough of them."""
    branches = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            keys = [text for key in node.keys if key is not None and (text := _constant(key)) is not None]
            values = [_constant(value) for value in node.values]
            known = [text for text in keys if text in inputs]
            if len(known) >= _LEAST and 2 * len(known) >= len(keys) and None not in values:
                yield Met(rule=RULE, line=node.lineno, code=shown(node))
        elif isinstance(node, ast.If | ast.IfExp) and _answers(node):
            branches += [(text, node) for text in _compared(node.test) if text in inputs]
        elif isinstance(node, ast.match_case) and _returns_constant(node.body):
            branches += [(text, node.pattern) for text in _matched(node.pattern) if text in inputs]
    distinct = {text for text, _ in branches}
    if len(distinct) >= _LEAST or any(_telling(text) for text in distinct):
        for _, node in branches:
            yield Met(rule=RULE, line=node.lineno, code=shown(node))


def parsed(source: bytes) -> ast.Module | None:
    """Return the tree of a source, None where it is no Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _in_json(data: Any) -> Iterator[str]:
    if isinstance(data, dict):
        for key, value in data.items():
            if key in _CALL_KEYS and isinstance(value, list):
                yield from _inputs([_plain(item) for item in value])
            else:
                yield from _in_json(value)
    elif isinstance(data, list):
        for item in data:
            yield from _in_json(item)


def _plain(data: Any) -> Any:
    """Return the value behind an encoded one, as far as equality needs it (see `verify.values`)."""
    if isinstance(data, list):
        return [_plain(item) for item in data]
    if isinstance(data, dict) and len(data) == 1:
        ((kind, inner),) = data.items()
        if kind == "float":
            return float(inner)
        if kind == "tuple":
            return tuple(_plain(item) for item in inner)
        if kind == "dict":
            return {repr(_plain(key)): _plain(value) for key, value in inner}
    return data


def _inputs(arguments: Sequence[Any]) -> Iterator[str]:
    """Yield the ways in which a call's arguments can be compared with: together, alone, and as text."""
    together = tuple(arguments)
    yield repr(together)
    yield repr(repr(together))
    for alone in arguments if len(arguments) == 1 else ():
        yield repr(alone)
        yield repr(repr(alone))
        if isinstance(alone, list):
            yield repr(tuple(alone))
    if len(arguments) > 1:
        yield from (repr(one) for one in arguments if _telling(repr(one)))


def _in_tests(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and not node.keywords:
            values = [_value(argument) for argument in node.args]
            if all(found for found, _ in values):
                yield from _inputs([value for _, value in values])


def _value(node: ast.AST) -> tuple[bool, Any]:
    try:
        return True, ast.literal_eval(node)  # type: ignore[arg-type]
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False, None


def _constant(node: ast.AST) -> str | None:
    found, value = _value(node)
    return repr(value) if found else None


def _answers(node: ast.If | ast.IfExp) -> bool:
    return _returns_constant(node.body) if isinstance(node, ast.If) else _constant(node.body) is not None


def _returns_constant(body: Sequence[ast.stmt]) -> bool:
    last = body[-1]
    return isinstance(last, ast.Return) and last.value is not None and _constant(last.value) is not None


def _compared(test: ast.AST) -> Iterator[str]:
    """Yield the constants that a condition compares something with for equality; of `x in (1, 2)` each one."""
    if isinstance(test, ast.BoolOp):
        together = [text for value in test.values for text in _compared(value)]
        yield from together
        if isinstance(test.op, ast.And) and len(together) > 1:
            yield f"({', '.join(together)})"
    elif isinstance(test, ast.Compare) and len(test.ops) == 1:
        right, left = test.comparators[0], test.left
        if isinstance(test.ops[0], ast.Eq | ast.Is):
            yield from (text for side in (left, right) if (text := _constant(side)) is not None)
        elif isinstance(test.ops[0], ast.In) and isinstance(right, ast.Tuple | ast.List | ast.Set):
            yield from (text for item in right.elts if (text := _constant(item)) is not None)


def _matched(pattern: ast.pattern) -> Iterator[str]:
    if isinstance(pattern, ast.MatchValue):
        yield from (text for text in [_constant(pattern.value)] if text is not None)
    elif isinstance(pattern, ast.MatchOr):
        for inner in pattern.patterns:
            yield from _matched(inner)
    elif isinstance(pattern, ast.MatchSequence):
        inner = [text for item in pattern.patterns for text in _matched(item)]
        if len(inner) == len(pattern.patterns) > 0:
            comma = "," if len(inner) == 1 else ""
            yield f"({', '.join(inner)}{comma})"
            yield f"[{', '.join(inner)}]"


def _telling(text: str) -> bool:
    """Whether a value is one that nobody writes in a base case."""
    value = ast.literal_eval(text)
    if isinstance(value, str):
        return len(value) >= 3
    if isinstance(value, bool) or value is None:
        return False
    if isinstance(value, int | float):
        return abs(value) > 12 and value not in (16, 24, 32, 60, 64, 100, 128, 255, 256, 360, 365, 400, 1000, 1024)
    return isinstance(value, list | tuple | dict | set) and len(value) >= 2
