"""Test files as the sandbox gets them: checks report their operands, and what we hold is cut out.

Three editions of a file: `RECORD` reports both sides of every check (run with the right solution only). `OBSERVED` holds the
checks that we decide alone, with the held sides cut out; every other assertion is dropped, so that none tells the code
under test what another one expects. `IN_PROCESS` holds the tests that have such other assertions. Each runs in a process of
its own, and a test has to pass in both where it stands in both.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from sanderling.verify.suites.constants import Column, Function, Scope, parametrize_table, row_items
from sanderling.verify.suites.sites import KEPT, RAISES, SEE, Basis, Finder, Site

_ASSERTING = ("assert", "fail", "check", "verify", "expect", "raises", "warns", "deprecated_call", "compare")


class Edition(StrEnum):
    RECORD = "record"
    OBSERVED = "observed"
    IN_PROCESS = "in_process"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """One edition of a test file."""

    source: bytes
    sites: Mapping[int, Site]
    definitions: Mapping[str, bool]  # "Class.test": whether it may decide something in a way that is no site
    sites_of: Mapping[str, tuple[int, ...]]  # by definition


def compile_tests(
    source: bytes,
    edition: Edition,
    bases: Mapping[int, Basis] | None = None,
    without: Collection[str] = (),
) -> Compiled:
    """Compile a test file.

    Args:
        bases: what was decided about each site; without it, what the syntax allows.
        without: test definitions ("Class.test" or "test") that are left out.

    Raises:
        SyntaxError, ValueError, RecursionError: the file can't be parsed or is too deep.
    """
    module = ast.parse(source)
    finder = Finder(module)
    tests = dict(_test_definitions(module))
    definitions = {name: _decides_otherwise(node, finder) for name, node in tests.items()}
    sites_of = {
        name: tuple(site.number for part in ast.walk(node) for site in finder.of.get(id(part), ()))
        for name, node in tests.items()
    }
    decided = {number: site.basis for number, site in finder.sites.items()} | dict(bases or {})
    for body, index in reversed(list(_places(module, set(without)))):
        del body[index]
        if not body:
            body.append(ast.Pass())
    _Rewriter(finder, decided, edition).visit(module)
    if edition is not Edition.RECORD:
        _prune(module, finder)
    ast.fix_missing_locations(module)
    text = ast.unparse(module) + "\n"
    return Compiled(source=text.encode(), sites=finder.sites, definitions=definitions, sites_of=sites_of)


class _Rewriter(ast.NodeTransformer):
    """Puts reports in the place of checks."""

    def __init__(self, finder: Finder, bases: Mapping[int, Basis], edition: Edition) -> None:
        self._finder = finder
        self._bases = bases
        self._edition = edition

    def visit(self, node: ast.AST) -> ast.AST | list[ast.stmt]:
        sites = self._finder.of.get(id(node), [])
        self.generic_visit(node)
        if not sites:
            dropped = self._edition is Edition.OBSERVED and isinstance(node, ast.Expr) and _is_asserting(node)
            return ast.Pass() if dropped else node
        if isinstance(node, ast.With):
            return self._with(node, sites[0])
        assert isinstance(node, ast.stmt)
        if self._edition is Edition.OBSERVED:
            sites = [site for site in sites if self._bases[site.number] is Basis.RECORDED]
            if not sites:
                return ast.Pass()
        if isinstance(node, ast.Expr) and self._bases[sites[0].number] is Basis.KEPT:
            return [*self._marker(sites[0]), node]
        return [statement for site in sites for statement in self._statements(site)]

    def _statements(self, site: Site) -> list[ast.stmt]:
        if self._bases[site.number] is Basis.KEPT:
            assert site.original is not None
            return [*self._marker(site), ast.Assert(test=site.original)]
        if site.operator == "raises":
            body = ast.Expr(ast.Call(func=site.call[0], args=list(site.call[1:]), keywords=[]))
            return [ast.With(items=[ast.withitem(context_expr=_raises(site))], body=[body])]
        return [ast.Expr(self._report(site))]

    def _report(self, site: Site) -> ast.Call:
        """A call that reports the operands: all of them while recording, those that aren't held otherwise."""
        assert site.left is not None
        operands = [side for side in (site.left, site.right) if side is not None]
        if self._edition is not Edition.RECORD and self._bases[site.number] is Basis.RECORDED and site.held:
            operands = [site.left] if site.held == "right" else operands[1:]
        form = ast.Constant("types" if site.operator == "isinstance" else "values")
        return ast.Call(func=_name(SEE), args=[ast.Constant(site.number), form, *operands], keywords=[])

    def _with(self, node: ast.With, site: Site) -> ast.AST | list[ast.stmt]:
        if self._bases[site.number] is Basis.KEPT:
            return [*self._marker(site), node]
        node.items[0].context_expr = _raises(site)
        return node

    def _marker(self, site: Site) -> list[ast.stmt]:
        """While recording, a kept check is reported as met, so that its test is known to decide something itself."""
        if self._edition is not Edition.RECORD:
            return []
        return [ast.Expr(ast.Call(func=_name(KEPT), args=[ast.Constant(site.number)], keywords=[]))]


def _raises(site: Site) -> ast.Call:
    form = "unittest" if site.unittest else "pytest"
    return ast.Call(func=_name(RAISES), args=[ast.Constant(site.number), ast.Constant(form)], keywords=[])


def _name(name: str) -> ast.Name:
    return ast.Name(id=name, ctx=ast.Load())


def _test_definitions(module: ast.Module) -> Iterator[tuple[str, Function]]:
    """Return the test functions of a module by qualified name; a name that stands twice is the last one's."""
    for owner, body in _bodies(module):
        for node in body:
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if is_function and node.name.startswith("test") and not any(map(_is_fixture, node.decorator_list)):
                yield owner + node.name, node


def _is_fixture(decorator: ast.expr) -> bool:
    return any(name in ast.unparse(decorator) for name in ("fixture", "property"))


def _bodies(node: ast.Module | ast.ClassDef, owner: str = "") -> Iterator[tuple[str, list[ast.stmt]]]:
    yield owner, node.body
    for child in node.body:
        if isinstance(child, ast.ClassDef):
            yield from _bodies(child, f"{owner}{child.name}.")


def _places(module: ast.Module, names: set[str]) -> Iterator[tuple[list[ast.stmt], int]]:
    for owner, body in _bodies(module):
        for index, node in enumerate(body):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and owner + node.name in names:
                yield body, index


def _decides_otherwise(node: Function, finder: Finder) -> bool:
    """Whether a test may fail by something that is no site: a helper that asserts, a mock, a `raise` of its own."""
    lifted = {id(part) for part in ast.walk(node) for site in finder.of.get(id(part), ()) if site.operator != "kept"}
    return any(isinstance(part, ast.Raise) or _is_asserting(part) for part in _outside(node, lifted))


def _is_asserting(node: ast.AST) -> bool:
    """Whether a node is a call that may fail a test, by its name, or a statement of one."""
    call = node.value if isinstance(node, ast.Expr) else node
    if not isinstance(call, ast.Call):
        return False
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name.lower().lstrip("_").startswith(_ASSERTING)


def _outside(node: ast.AST, lifted: set[int]) -> Iterator[ast.AST]:
    """Return what stands below a node; of a lifted statement with a body (`with raises`) only the body."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue  # what it raises, it raises where it is called
        if id(child) in lifted and isinstance(child, ast.With):
            for statement in child.body:
                yield statement
                yield from _outside(statement, lifted)
        elif id(child) in lifted and isinstance(child, ast.Expr):
            assert isinstance(child.value, ast.Call)
            for argument in child.value.args:
                yield from ast.walk(argument)
        else:
            yield child
            yield from _outside(child, lifted)


def _prune(module: ast.Module, finder: Finder) -> None:
    """Empty the definitions that only served what was cut out."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            _drop_docstring(node)
            scope = finder.scopes.get(id(node))
            if scope is not None:
                _empty_unused(node, scope)
    _empty_unused(module, finder.module_scope)


def _drop_docstring(node: Function) -> None:
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        node.body[0] = ast.Pass()


def _empty_unused(node: ast.Module | Function, scope: Scope) -> None:
    """Set the values of names that nothing reads any more to None; one such may be all that read another."""
    for _ in range(5):
        read = Counter(
            part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)
        )
        unused = {
            name: binding for name, binding in scope.bindings.items() if not read[name] and not name.startswith("__")
        }
        if not sum(_empty(node, name, binding) for name, binding in unused.items()):
            return


def _empty(node: ast.Module | Function, name: str, binding: ast.Assign | ast.AnnAssign | Column) -> bool:
    """Empty one binding and say whether there was something in it."""
    if isinstance(binding, Column):
        changed = False
        for value in binding.values():
            changed |= not (isinstance(value, ast.Constant) and value.value is None)
        if not changed or binding.place is None:
            return False
        for row in binding.rows:
            row_items(row)[binding.place] = ast.Constant(None)
            if isinstance(row, ast.Call):
                row.keywords = []
        if not isinstance(node, ast.Module):
            _drop_ids(node, name)
        return True
    if binding.value is None or isinstance(binding.value, ast.Constant):
        return isinstance(binding.value, ast.Constant) and _set_none(binding)
    if any(isinstance(part, ast.Call | ast.Await | ast.Yield) for part in ast.walk(binding.value)):
        return False  # a call may be what the test is about
    return _set_none(binding)


def _set_none(binding: ast.Assign | ast.AnnAssign) -> bool:
    if isinstance(binding.value, ast.Constant) and binding.value.value is None:
        return False
    binding.value = ast.Constant(None)
    return True


def _drop_ids(node: Function, name: str) -> None:
    """Remove the names of parametrised cases where a column was emptied: they are often made from it."""
    for decorator in node.decorator_list:
        table = parametrize_table(decorator)
        if table is not None and name in table[0]:
            assert isinstance(decorator, ast.Call)
            decorator.keywords = []
