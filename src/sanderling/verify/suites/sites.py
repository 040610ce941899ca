"""The checks of a test file: where they stand, what they compare, and which side can be held back.

A *site* is one check in the source. Sites are numbered in the order in which they stand, so that every version of a file that
we compile has the same numbers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from sanderling.verify.suites.constants import Function, Scope, is_builtin_type, is_constant

SEE, RAISES, KEPT = "__sanderling_see__", "__sanderling_raises__", "__sanderling_kept__"


class Basis(StrEnum):
    """Who decides a check, and on what."""

    RECORDED = "recorded"  # we do, against what is not in the sandbox: a recorded value, a type, a truth
    REPORTED = "reported"  # we do, but both sides come from the sandbox
    KEPT = "kept"  # the sandbox does: the assertion stands as it was written


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One check.

    `operator` is a comparison of Python, or "true", "false" (of one operand), "isinstance" (of an operand's type names and
    the wanted ones), "raises" (of an exception's type names and text), "approx" and "isclose" (of a number and (value, rel,
    abs)), "within" and "within_or_at" (of a number and (value, bound)), "kept".
    """

    number: int
    operator: str
    basis: Basis  # the best that the syntax allows
    left: ast.expr | None = None
    right: ast.expr | None = None
    held: str = ""  # side that we hold: "left", "right", or "" where neither can be
    wanted: tuple[str, ...] = ()  # built-in types of "isinstance" and "raises"
    pattern: str | None = None  # of "raises"
    call: tuple[ast.expr, ...] = ()  # of "raises" without `with`: the function and its arguments
    unittest: bool = False
    original: ast.expr | None = None  # condition of an `assert`, as it was written


_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Is: "is",
    ast.IsNot: "is not",
}
_OPPOSITE: dict[type[ast.cmpop], str] = {ast.Eq: "!=", ast.NotEq: "==", ast.In: "not in", ast.NotIn: "in"}
_OPPOSITE |= {ast.Is: "is not", ast.IsNot: "is"}
_UNITTEST = {
    "assertEqual": "==",
    "assertEquals": "==",
    "assertListEqual": "==",
    "assertDictEqual": "==",
    "assertTupleEqual": "==",
    "assertSetEqual": "==",
    "assertMultiLineEqual": "==",
    "assertSequenceEqual": "==",
    "assertNotEqual": "!=",
    "assertLess": "<",
    "assertLessEqual": "<=",
    "assertGreater": ">",
    "assertGreaterEqual": ">=",
    "assertIn": "in",
    "assertNotIn": "not in",
    "assertIs": "is",
    "assertIsNot": "is not",
}
_SINGLETONS = (None, True, False)


class Finder:
    """Finds the sites of one file and gives them their numbers, statement by statement.

    Example::

        finder = Finder(ast.parse("def test(): assert f(1) == 2"))
        finder.sites  # {number: Site}; finder.of[id(statement)] lists those of a statement
    """

    def __init__(self, module: ast.Module) -> None:
        self.sites: dict[int, Site] = {}
        self.of: dict[int, list[Site]] = {}
        self.module_scope = Scope(module)
        self.scopes: dict[int, Scope] = {}
        self._walk(module, self.module_scope)

    def _walk(self, node: ast.AST, scope: Scope) -> None:
        for child in ast.iter_child_nodes(node):
            inner = scope
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                inner = self.scopes[id(child)] = _function_scope(child, scope, self.module_scope)
            if isinstance(child, ast.stmt):
                found = list(self._of_statement(child, inner))
                if found:
                    self.of[id(child)] = found
            self._walk(child, inner)

    def _of_statement(self, node: ast.stmt, scope: Scope) -> Iterator[Site]:
        if isinstance(node, ast.Assert):
            for test in _conjuncts(node.test):
                site = _of_raises_helper(test, scope, len(self.sites)) or _of_test(test, scope, len(self.sites))
                yield self._add(replace(site, original=test))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            site = _of_call(node.value, scope, len(self.sites))
            if site is not None:
                yield self._add(site)
        elif isinstance(node, ast.With) and len(node.items) == 1:
            site = _of_raises(node.items[0].context_expr, scope, len(self.sites))
            if site is not None and not site.call and isinstance(node.items[0].optional_vars, ast.Name | None):
                yield self._add(site)

    def _add(self, site: Site) -> Site:
        self.sites[site.number] = site
        return site


def _function_scope(node: Function, scope: Scope, module: Scope) -> Scope:
    """A nested function sees names of the one around it, whose values we don't follow: they count as unknown."""
    inner = Scope(node, module)
    if scope is not module:
        hidden = scope.names - inner.names
        inner.names |= hidden
    return inner


def _conjuncts(test: ast.expr) -> list[ast.expr]:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return [inner for value in test.values for inner in _conjuncts(value)]
    return [test]


def _of_test(test: ast.expr, scope: Scope, number: int) -> Site:
    """The site of the condition of an `assert`."""
    if any(isinstance(part, ast.NamedExpr | ast.Await | ast.Yield) for part in ast.walk(test)):
        return Site(number=number, operator="kept", basis=Basis.KEPT, left=test)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = test.operand
        if isinstance(inner, ast.Compare) and len(inner.ops) == 1 and type(inner.ops[0]) in _OPPOSITE:
            operator = _OPPOSITE[type(inner.ops[0])]
            return _comparison(operator, inner.left, inner.comparators[0], scope, number)
        return Site(number=number, operator="false", basis=_basis_of_truth(inner, scope), left=inner)
    if (near := _nearness(test, scope, number)) is not None:
        return near
    if isinstance(test, ast.Compare):
        if len(test.ops) == 1:
            return _comparison(_COMPARE[type(test.ops[0])], test.left, test.comparators[0], scope, number)
        return Site(number=number, operator="kept", basis=Basis.KEPT, left=test)
    if isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id == "isinstance":
        wanted = _builtin_types(test.args[1], scope) if len(test.args) == 2 and scope.is_free("isinstance") else ()
        if wanted:
            left = test.args[0]
            return Site(number=number, operator="isinstance", basis=Basis.RECORDED, left=left, wanted=wanted)
    return Site(number=number, operator="true", basis=_basis_of_truth(test, scope), left=test)


def _basis_of_truth(node: ast.expr, scope: Scope) -> Basis:
    """A truth that the code under test gives is ours to judge; one that the sandbox works out of it is only reported."""
    if any(
        isinstance(part, ast.Compare | ast.BoolOp | ast.IfExp | ast.Lambda | ast.comprehension)
        for part in ast.walk(node)
    ):
        return Basis.REPORTED
    if isinstance(node, ast.Call):
        root = _root_name(node.func)
        if not root or scope.is_free(root) or scope.is_standard(root):
            return Basis.REPORTED
    return Basis.RECORDED


def _comparison(operator: str, left: ast.expr, right: ast.expr, scope: Scope, number: int) -> Site:
    if operator in ("is", "is not") and not (isinstance(right, ast.Constant) and right.value in _SINGLETONS):
        test = ast.Compare(left=left, ops=[ast.Is() if operator == "is" else ast.IsNot()], comparators=[right])
        return Site(number=number, operator="kept", basis=Basis.KEPT, left=test)
    if operator == "==" and (near := _approximation(right, scope)) is not None:
        return Site(number=number, operator="approx", basis=Basis.RECORDED, left=left, right=near, held="right")
    held = "right" if is_constant(right, scope) else "left" if is_constant(left, scope) else ""
    basis = Basis.RECORDED if held else Basis.REPORTED
    return Site(number=number, operator=operator, basis=basis, left=left, right=right, held=held)


def _nearness(test: ast.expr, scope: Scope, number: int) -> Site | None:
    """The site of `math.isclose(value, constant)` or `abs(value - constant) < constant`.

    Both say how near a number has to be. Lifted, the number is reported and we measure: a patched `abs` or `isclose` of the
    sandbox has no part in it, and the constant is held.
    """
    if isinstance(test, ast.Call):
        bounds = {keyword.arg or "": keyword.value for keyword in test.keywords}
        named = isinstance(test.func, ast.Attribute) and test.func.attr == "isclose" and _root_name(test.func) == "math"
        if not named or not scope.is_standard("math") or len(test.args) != 2 or bounds.keys() - {"rel_tol", "abs_tol"}:
            return None
        given = (bounds.get("rel_tol", ast.Constant(1e-9)), bounds.get("abs_tol", ast.Constant(0.0)))
        return _near_site("isclose", test.args[0], test.args[1], given, scope, number)
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Lt | ast.LtE):
        return None
    call = test.left
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "abs"):
        return None
    apart = call.args[0] if len(call.args) == 1 and not call.keywords else None
    if not (isinstance(apart, ast.BinOp) and isinstance(apart.op, ast.Sub) and scope.is_free("abs")):
        return None
    operator = "within" if isinstance(test.ops[0], ast.Lt) else "within_or_at"
    return _near_site(operator, apart.left, apart.right, (test.comparators[0],), scope, number)


def _near_site(
    operator: str, one: ast.expr, other: ast.expr, bounds: tuple[ast.expr, ...], scope: Scope, number: int
) -> Site | None:
    """The site of a symmetric measure of which one side and the bounds are constants."""
    value, wanted = (one, other) if is_constant(other, scope) else (other, one)
    if is_constant(value, scope) or not all(is_constant(part, scope) for part in (wanted, *bounds)):
        return None
    right = ast.Tuple(elts=[wanted, *bounds], ctx=ast.Load())
    return Site(number=number, operator=operator, basis=Basis.RECORDED, left=value, right=right, held="right")


def _approximation(node: ast.expr, scope: Scope) -> ast.expr | None:
    """Return (value, rel, abs) for `pytest.approx(value, rel=..., abs=...)` of constants."""
    if not isinstance(node, ast.Call) or _last_name(node.func) != "approx" or len(node.args) > 3:
        return None
    given = dict(zip(("expected", "rel", "abs"), node.args, strict=False))
    given |= {keyword.arg or "": keyword.value for keyword in node.keywords}
    if not given.keys() <= {"expected", "rel", "abs"} or "expected" not in given:
        return None
    if not all(is_constant(value, scope) for value in given.values()):
        return None
    parts = [given.get(name, ast.Constant(None)) for name in ("expected", "rel", "abs")]
    return ast.Tuple(elts=parts, ctx=ast.Load())


def _of_call(call: ast.Call, scope: Scope, number: int) -> Site | None:
    """The site of a statement that is a call: an assertion of unittest, or `pytest.raises` with a function."""
    site = _of_raises(call, scope, number)
    if site is not None:
        return site if site.call else None
    name = _last_name(call.func)
    if not _is_self(call.func) or any(keyword.arg != "msg" for keyword in call.keywords):
        return None
    width = len(call.args)
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return None
    if name in _UNITTEST and width in (2, 3):
        return _comparison(_UNITTEST[name], call.args[0], call.args[1], scope, number)
    if name in ("assertTrue", "assertFalse") and width in (1, 2):
        operator = "true" if name == "assertTrue" else "false"
        left = call.args[0]
        return Site(number=number, operator=operator, basis=_basis_of_truth(left, scope), left=left)
    if name in ("assertIsNone", "assertIsNotNone") and width in (1, 2):
        operator = "is" if name == "assertIsNone" else "is not"
        return _comparison(operator, call.args[0], ast.Constant(None), scope, number)
    if name == "assertIsInstance" and width in (2, 3) and (wanted := _builtin_types(call.args[1], scope)):
        left = call.args[0]
        return Site(number=number, operator="isinstance", basis=Basis.RECORDED, left=left, wanted=wanted)
    return None


def _of_raises(node: ast.expr, scope: Scope, number: int) -> Site | None:
    """The site of `pytest.raises(...)` or `self.assertRaises(...)` for built-in exceptions."""
    if not isinstance(node, ast.Call) or not node.args:
        return None
    unittest = _is_self(node.func) and _last_name(node.func) in ("assertRaises", "assertRaisesRegex")
    if not unittest and not (_last_name(node.func) == "raises" and _root_name(node.func) in ("pytest", "raises")):
        return None
    wanted = _builtin_types(node.args[0], scope)
    keywords = {keyword.arg: keyword.value for keyword in node.keywords}
    rest = node.args[1:]
    if _last_name(node.func) == "assertRaisesRegex" and rest:
        keywords["match"], rest = rest[0], rest[1:]
    call = tuple(rest)
    if not wanted or (not call and keywords.keys() - {"match"}) or (call and keywords):
        return None
    pattern = keywords.get("match")
    if pattern is not None:
        if not (isinstance(pattern, ast.Constant) and isinstance(pattern.value, str)):
            return None
        if not is_tame(pattern.value):
            return None
        return Site(
            number=number,
            operator="raises",
            basis=Basis.RECORDED,
            wanted=wanted,
            pattern=pattern.value,
            call=call,
            unittest=unittest,
        )
    return Site(number=number, operator="raises", basis=Basis.RECORDED, wanted=wanted, call=call, unittest=unittest)


def _of_raises_helper(test: ast.expr, scope: Scope, number: int) -> Site | None:
    """The site of `assert raises(ValueError, lambda: ...)`, a helper that many suites have: it means `pytest.raises`."""
    if not (
        isinstance(test, ast.Call) and _last_name(test.func) == "raises" and len(test.args) == 2 and not test.keywords
    ):
        return None
    wanted = _builtin_types(test.args[0], scope)
    if not wanted or not isinstance(test.args[1], ast.Lambda):
        return None
    return Site(number=number, operator="raises", basis=Basis.RECORDED, wanted=wanted, call=(test.args[1],))


def is_tame(pattern: str) -> bool:
    """Whether matching a short text against a pattern ends soon: no repeated group, and few repetitions.

    The text comes from the code under test and is matched in our process; a pattern that isn't tame stays where it was.
    """
    try:
        re.compile(pattern)
    except (re.error, RecursionError):
        return False
    bare = re.sub(r"\\.|\[[^\]]*\]", "x", pattern)
    return not re.search(r"\)[*+{]", bare) and len(re.findall(r"[*+{]", bare)) <= 2


def _builtin_types(node: ast.expr, scope: Scope) -> tuple[str, ...]:
    nodes = node.elts if isinstance(node, ast.Tuple) else [node]
    if not nodes or not all(is_builtin_type(part, scope) for part in nodes):
        return ()
    return tuple(f"builtins.{_canonical(part.id)}" for part in nodes if isinstance(part, ast.Name))


def _canonical(name: str) -> str:
    return {"IOError": "OSError", "EnvironmentError": "OSError"}.get(name, name)


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _root_name(node: ast.expr) -> str:
    return _root_name(node.value) if isinstance(node, ast.Attribute) else _last_name(node)


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
