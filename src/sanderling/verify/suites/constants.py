"""Which expressions of a test file depend on the file and the standard library alone, never on the code under test.

Their values can be recorded once, on our side, and cut out of what the sandbox gets. The analysis is syntactic and errs on
one side: what it doesn't understand counts as depending on the code under test.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

Function = ast.FunctionDef | ast.AsyncFunctionDef
_PURE = {
    *(
        "abs",
        "bool",
        "bytes",
        "complex",
        "dict",
        "divmod",
        "enumerate",
        "float",
        "frozenset",
        "hex",
        "int",
        "len",
        "list",
    ),
    *("max", "min", "ord", "pow", "range", "repr", "reversed", "round", "set", "sorted", "str", "sum", "tuple", "zip"),
    "chr",
}
_CHANGING = {"add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "reverse", "sort"}
_CHANGING |= {"setdefault", "update", "__setitem__", "__delitem__", "send", "__next__", "write"}
_TRANSPARENT = (
    *(ast.List, ast.Tuple, ast.Set, ast.Dict, ast.UnaryOp, ast.BinOp, ast.JoinedStr, ast.FormattedValue),
    *(ast.Starred, ast.Subscript, ast.Slice),
)
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
# modules whose results depend on more than their arguments, or that lead back to the code under test
_IMPURE = {
    "builtins",
    "gc",
    "importlib",
    "inspect",
    "io",
    "os",
    "pathlib",
    "random",
    "secrets",
    "sys",
    "tempfile",
    "time",
}
_IMPURE |= {"types", "unittest", "uuid", "warnings", "weakref", "threading", "subprocess", "socket", "pickle", "copy"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One name that runs through a literal table: of `pytest.mark.parametrize`, or of a loop."""

    rows: tuple[ast.expr, ...]  # where a row has several names, a tuple or a call of pytest.param
    place: int | None  # index in the row; None where the row is the value

    def values(self) -> list[ast.expr]:
        return [row if self.place is None else row_items(row)[self.place] for row in self.rows]


Binding = ast.Assign | ast.AnnAssign | Column


def row_items(row: ast.expr) -> list[ast.expr]:
    """Return the values of a row of a table."""
    if isinstance(row, ast.Tuple | ast.List):
        return row.elts
    assert isinstance(row, ast.Call)
    return row.args


class Scope:
    """The names of a module or of one function in it, each with its binding where it has exactly one that is understood.

    Args:
        node: the module or function.
        outer: the module's scope, for a function.
    """

    def __init__(self, node: ast.Module | Function, outer: Scope | None = None) -> None:
        self.outer = outer
        bound = list(_bound_names(node))
        counts = Counter(bound)
        self.names = set(counts)
        changed = set(_changed_names(node))
        self.bindings: dict[str, Binding] = {
            name: binding for name, binding in _bindings(node) if counts[name] == 1 and name not in changed
        }
        self.modules = _standard_modules(node) if isinstance(node, ast.Module) else {}

    def find(self, name: str) -> Binding | None:
        if name in self.names:
            return self.bindings.get(name)
        return None if self.outer is None else self.outer.find(name)

    def is_free(self, name: str) -> bool:
        """Whether nothing here or outside binds a name, so that it means the built-in one."""
        return name not in self.names and (self.outer is None or self.outer.is_free(name))

    def is_standard(self, name: str) -> bool:
        """Whether a name is bound once, by an import from a pure part of the standard library."""
        if name in self.names:
            return name in self.modules
        return self.outer is not None and self.outer.is_standard(name)


def is_constant(node: ast.expr, scope: Scope, inner: frozenset[str] = frozenset()) -> bool:
    """Whether an expression depends on trusted code alone. `inner` are names that a comprehension around it binds."""
    if isinstance(node, ast.Constant):
        return node.value is not Ellipsis
    if isinstance(node, ast.Name):
        return node.id in inner or _is_constant_name(node.id, scope)
    if isinstance(node, ast.Attribute):
        root = node.value
        return isinstance(root, ast.Name) and scope.is_standard(root.id) and not node.attr.startswith("_")
    if isinstance(node, ast.Call):
        parts = [*node.args, *(keyword.value for keyword in node.keywords)]
        return _is_pure_function(node.func, scope, inner) and all(is_constant(part, scope, inner) for part in parts)
    if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
        return _is_constant_comprehension(node, scope, inner)
    if isinstance(node, _TRANSPARENT):
        return all(is_constant(part, scope, inner) for part in _children(node))
    return False


def used_names(node: ast.AST) -> set[str]:
    """Return the names that an expression reads."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}


def _children(node: ast.AST) -> Iterator[ast.expr]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield child


def _is_constant_name(name: str, scope: Scope) -> bool:
    binding = scope.find(name)
    if binding is None:
        return False
    where = scope if name in scope.names else scope.outer
    assert where is not None
    values = binding.values() if isinstance(binding, Column) else [binding.value]
    return all(value is not None and name not in used_names(value) and is_constant(value, where) for value in values)


def _is_pure_function(node: ast.expr, scope: Scope, inner: frozenset[str]) -> bool:
    if isinstance(node, ast.Name):
        return (node.id in _PURE and scope.is_free(node.id)) or scope.is_standard(node.id)
    if isinstance(node, ast.Attribute) and not node.attr.startswith("_"):
        root = node.value
        if isinstance(root, ast.Name) and scope.is_standard(root.id):
            return True
        # a method of a text, such as "a b".split() or "\n".join(...)
        return isinstance(root, ast.Constant | ast.JoinedStr) and is_constant(root, scope, inner)
    return False


def _is_constant_comprehension(
    node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, scope: Scope, inner: frozenset[str]
) -> bool:
    for generator in node.generators:
        if generator.is_async or not is_constant(generator.iter, scope, inner):
            return False
        targets = {part.id for part in ast.walk(generator.target) if isinstance(part, ast.Name)}
        inner = inner | targets
        if not all(is_constant(test, scope, inner) for test in generator.ifs):
            return False
    parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    return all(is_constant(part, scope, inner) for part in parts)


def walk_scope(node: ast.AST) -> Iterator[ast.AST]:
    """Return what stands in a scope itself: the bodies of functions and classes inside it are left out."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, _SCOPES):
            yield from walk_scope(child)


def _bound_names(node: ast.Module | Function) -> Iterator[str]:
    """Return every name that a scope binds, once per binding."""
    if not isinstance(node, ast.Module):
        arguments = node.args
        plain = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        yield from (argument.arg for argument in plain if argument is not None)
    for part in walk_scope(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store | ast.Del):
            yield part.id
        elif isinstance(part, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in part.names)
        elif isinstance(part, _NAMED) and part.name:
            yield part.name
        elif isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Name):
            yield part.target.id  # a second time: its value is no longer that of its assignment
    for part in ast.walk(node):
        if isinstance(part, ast.Global | ast.Nonlocal):
            for name in part.names:
                yield from (name, name)  # bound from elsewhere


def _changed_names(node: ast.AST) -> Iterator[str]:
    """Return the names whose values are changed in place anywhere below: by a method, an item or an attribute."""
    for part in ast.walk(node):
        target = None
        if (isinstance(part, ast.Attribute) and part.attr in _CHANGING) or (
            isinstance(part, ast.Subscript | ast.Attribute) and isinstance(part.ctx, ast.Store | ast.Del)
        ):
            target = part.value
        if isinstance(target, ast.Name):
            yield target.id


def _bindings(node: ast.Module | Function) -> Iterator[tuple[str, Binding]]:
    for part in walk_scope(node):
        if isinstance(part, ast.Assign) and len(part.targets) == 1 and isinstance(part.targets[0], ast.Name):
            yield part.targets[0].id, part
        elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and part.value is not None:
            yield part.target.id, part
        elif isinstance(part, ast.For) and isinstance(part.iter, ast.List | ast.Tuple):
            yield from _columns(_target_names(part.target), part.iter.elts)
    if not isinstance(node, ast.Module):
        for decorator in node.decorator_list:
            yield from _parametrized(decorator)


def _target_names(target: ast.expr) -> list[str] | None:
    if isinstance(target, ast.Name):
        return [target.id]
    if isinstance(target, ast.Tuple) and all(isinstance(item, ast.Name) for item in target.elts):
        return [item.id for item in target.elts if isinstance(item, ast.Name)]
    return None


def _parametrized(decorator: ast.expr) -> Iterator[tuple[str, Binding]]:
    table = parametrize_table(decorator)
    if table is not None:
        names, rows = table
        yield from _columns(names, rows)


def parametrize_table(decorator: ast.expr) -> tuple[list[str], list[ast.expr]] | None:
    """Return the names and rows of `@pytest.mark.parametrize("a, b", [...])` where both are literal, else None."""
    if not (isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Attribute) and len(decorator.args) == 2):
        return None
    named, table = decorator.args
    indirect = any(keyword.arg not in ("ids",) for keyword in decorator.keywords)
    if decorator.func.attr != "parametrize" or indirect or not isinstance(table, ast.List | ast.Tuple):
        return None
    if isinstance(named, ast.Constant) and isinstance(named.value, str):
        names = [name.strip() for name in named.value.split(",") if name.strip()]
    elif isinstance(named, ast.List | ast.Tuple) and all(isinstance(item, ast.Constant) for item in named.elts):
        names = [str(item.value) for item in named.elts if isinstance(item, ast.Constant)]
    else:
        return None
    return names, table.elts


def _columns(names: list[str] | None, rows: list[ast.expr]) -> Iterator[tuple[str, Binding]]:
    if not names or not rows:
        return
    if len(names) == 1:
        if not any(isinstance(row, ast.Starred) or _is_param(row) for row in rows):
            yield names[0], Column(rows=tuple(rows), place=None)
        return
    if all(_is_row(row, len(names)) for row in rows):
        for place, name in enumerate(names):
            yield name, Column(rows=tuple(rows), place=place)


def _is_param(row: ast.expr) -> bool:
    """Whether a row is a plain `pytest.param(...)`: one with marks can't be understood here."""
    if not isinstance(row, ast.Call):
        return False
    name = row.func.attr if isinstance(row.func, ast.Attribute) else getattr(row.func, "id", "")
    return name == "param" and all(keyword.arg == "id" for keyword in row.keywords)


def _is_row(row: ast.expr, width: int) -> bool:
    if not (isinstance(row, ast.Tuple | ast.List) or _is_param(row)):
        return False
    items = row_items(row)
    return len(items) == width and not any(isinstance(item, ast.Starred) for item in items)


def _standard_modules(module: ast.Module) -> dict[str, str]:
    """Return the names that imports at the top of a module bind to pure parts of the standard library."""
    found = {}
    for part in module.body:
        if isinstance(part, ast.Import):
            pairs = [(alias.asname or alias.name, alias.name) for alias in part.names]
        elif isinstance(part, ast.ImportFrom) and part.level == 0 and part.module:
            pairs = [(alias.asname or alias.name, part.module) for alias in part.names]
        else:
            continue
        for name, source in pairs:
            root = source.partition(".")[0]
            if "." not in name and root in sys.stdlib_module_names and root not in _IMPURE:
                found[name] = source
    counts = Counter(_bound_names(module))
    return {name: source for name, source in found.items() if counts[name] == 1}


def is_builtin_type(node: ast.expr, scope: Scope) -> bool:
    """Whether an expression names a built-in class that nothing in the file rebinds."""
    return isinstance(node, ast.Name) and isinstance(getattr(builtins, node.id, None), type) and scope.is_free(node.id)
