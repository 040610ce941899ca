"""The right solution written otherwise: rewrites of Python source that change nothing about what it does.

A verifier that refuses one of them tests how the work is written, not what it does. Each rewrite is a function of the syntax
tree; one that doesn't apply gives back an equal tree and is left out.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Mapping

Rewrite = Callable[[ast.Module], ast.Module]


def rewritten(source: str) -> dict[str, str]:
    """Return the rewrites of a module by name; only those that differ from it in more than formatting, and `reformatted`.

    Raises:
        SyntaxError: `source` is no Python.
    """
    plain = ast.unparse(ast.parse(source)) + "\n"
    found = {"reformatted": plain} if plain != source else {}
    for name, rewrite in REWRITES.items():
        text = ast.unparse(ast.fix_missing_locations(rewrite(ast.parse(source)))) + "\n"
        if text != plain:
            found[name] = text
    return found


class _Renamed(ast.NodeTransformer):
    """Gives local names of the outermost functions another name. Functions that look at their own names are left alone."""

    def __init__(self) -> None:
        self._names: Mapping[str, str] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if self._names:
            return self.generic_visit(node)
        self._names = {name: f"{name}_" for name in _locals_of(node)}
        self.generic_visit(node)
        self._names = {}
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.copy_location(ast.Name(id=self._names.get(node.id, node.id), ctx=node.ctx), node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        self.generic_visit(node)
        node.name = self._names.get(node.name, node.name) if node.name else None
        return node


def _locals_of(function: ast.FunctionDef) -> set[str]:
    """Return the names that are bound in a function and mean the same in all of it."""
    inner = [node for node in ast.walk(function) if node is not function]
    unsafe = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.Global, ast.Nonlocal, ast.Match)
    looks = {"locals", "vars", "eval", "exec", "dir", "globals"}
    if any(isinstance(node, unsafe) or (isinstance(node, ast.Name) and node.id in looks) for node in inner):
        return set()
    imported = {
        alias.asname or alias.name
        for node in inner
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    bound = {node.id for node in inner if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    bound |= {node.name for node in inner if isinstance(node, ast.ExceptHandler) and node.name}
    arguments = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    return {name for name in bound - arguments - imported if f"{name}_" not in bound and name not in vars(builtins)}


class _ThroughName(ast.NodeTransformer):
    """`return x + 1` becomes `outcome = x + 1; return outcome`."""

    def visit_Return(self, node: ast.Return) -> ast.AST | list[ast.stmt]:
        if node.value is None or isinstance(node.value, ast.Name | ast.Constant):
            return node
        store = ast.Assign(targets=[ast.Name(id="outcome_", ctx=ast.Store())], value=node.value)
        return [store, ast.Return(value=ast.Name(id="outcome_", ctx=ast.Load()))]

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node


class _Inverted(ast.NodeTransformer):
    """`if a: X else: Y` becomes `if not a: Y else: X`."""

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        if not node.orelse or (len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If)):
            return node
        return ast.If(test=ast.UnaryOp(op=ast.Not(), operand=node.test), body=node.orelse, orelse=node.body)


class _Chosen(ast.NodeTransformer):
    """`a if test else b` in a return becomes an if statement with two returns."""

    def visit_Return(self, node: ast.Return) -> ast.AST:
        if not isinstance(node.value, ast.IfExp):
            return node
        chosen = node.value
        return ast.If(test=chosen.test, body=[ast.Return(value=chosen.body)], orelse=[ast.Return(value=chosen.orelse)])


class _Unannotated(ast.NodeTransformer):
    """Drops docstrings. Annotations stay: a dataclass or a tool may read them."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return node


class _Padded(ast.NodeTransformer):
    """Adds a statement without effect at the start of each function body, below its docstring."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        first = 1 if ast.get_docstring(node, clean=False) is not None else 0
        node.body.insert(first, ast.Pass())
        return node


REWRITES: Mapping[str, Rewrite] = {
    "renamed locals": lambda tree: _Renamed().visit(tree),
    "returns through a name": lambda tree: _ThroughName().visit(tree),
    "inverted conditions": lambda tree: _Inverted().visit(tree),
    "conditional returns written out": lambda tree: _Chosen().visit(tree),
    "without docstrings": lambda tree: _Unannotated().visit(tree),
    "padded": lambda tree: _Padded().visit(tree),
}
