"""How alike two functions or classes are, with and without their names."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from enum import StrEnum

SHINGLE = 5  # tokens in a row that are compared as one

Shingles = frozenset[tuple[str, ...]]


class View(StrEnum):
    """What of a function is compared."""

    NAMED = "named"  # names and constants as they are
    BLIND = "blind"  # every own name is alike, every constant is its type: finds a renamed copy


def shingles(source: str, view: View) -> Shingles:
    """Return the runs of `SHINGLE` tokens of a definition's syntax tree in preorder, without docstring and annotations.

    Args:
        source: a function or class and nothing else.
    """
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    if ast.get_docstring(function) is not None:
        function.body = function.body[1:]
    tokens = [token for statement in function.body for token in _tokens(statement, view)]
    return frozenset(tuple(tokens[i : i + SHINGLE]) for i in range(max(1, len(tokens) - SHINGLE + 1)))


def _tokens(node: ast.AST, view: View) -> Iterator[str]:
    if isinstance(node, ast.expr_context):
        return
    if isinstance(node, ast.Name):
        yield node.id if view is View.NAMED or hasattr(builtins, node.id) else "name"
    elif isinstance(node, ast.Constant):
        yield repr(node.value) if view is View.NAMED else type(node.value).__name__
    elif isinstance(node, ast.Attribute):
        yield f".{node.attr}"
    else:
        yield type(node).__name__
    for child in ast.iter_child_nodes(node):
        yield from _tokens(child, view)


def likeness(first: Shingles, second: Shingles) -> float:
    """Return the Jaccard index of two sets of shingles: 0 for nothing in common, 1 for equal."""
    return len(first & second) / len(first | second)
