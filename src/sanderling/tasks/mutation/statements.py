"""Families that change what happens when: missing returns, dropped statements, early exits, shared defaults."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
import libcst.matchers as m

from sanderling.tasks.mutation.site import Family, Site


def _missing_return(site: Site) -> Iterator[cst.CSTNode]:
    if isinstance(site.node, cst.Return):
        yield cst.Pass() if site.node.value is None else cst.Expr(site.node.value)


def _dropped_statement(site: Site) -> Iterator[cst.CSTNode]:
    node = site.node
    if not isinstance(node, cst.SimpleStatementLine) or len(node.body) != 1:
        return
    statement = node.body[0]
    if isinstance(statement, cst.Return | cst.Pass | cst.Break | cst.Continue | cst.Import | cst.ImportFrom):
        return
    if isinstance(statement, cst.Expr) and isinstance(statement.value, cst.SimpleString):
        return  # a docstring
    yield node.with_changes(body=[cst.Pass()])


def _early_exit(site: Site) -> Iterator[cst.CSTNode]:
    node = site.node
    if isinstance(node, cst.Break):
        yield cst.Continue()
        yield cst.Pass()
    elif isinstance(node, cst.Continue):
        yield cst.Break()
        yield cst.Pass()
    elif site.depth_of_loops > 0 and isinstance(node, cst.Return):
        yield cst.Break()
        yield cst.Continue()
    elif site.depth_of_loops > 0 and isinstance(node, cst.Assign) and len(node.targets) == 1:
        yield cst.Return(node.value)
    elif site.depth_of_loops > 0 and isinstance(node, cst.AugAssign):
        yield cst.Return(node.target)
        yield cst.Break()
    elif site.depth_of_loops > 0 and isinstance(node, cst.Raise):
        yield cst.Break()


def _mutable_default(site: Site) -> Iterator[cst.CSTNode]:
    """`x=None` with `if x is None: x = []` below becomes `x=[]`: one object for all calls, in one changed line."""
    node = site.node
    if not isinstance(node, cst.Param) or node.default is None or not m.matches(node.default, m.Name("None")):
        return
    function = next((parent for parent in reversed(site.parents) if isinstance(parent, cst.FunctionDef)), None)
    if function is None:
        return
    first_value = m.Assign(targets=[m.AssignTarget(target=m.Name(node.name.value))])
    for assign in m.findall(function.body, first_value):
        assert isinstance(assign, cst.Assign)
        if m.matches(assign.value, m.List(elements=[]) | m.Dict(elements=[]) | m.Call(args=[])):
            yield node.with_changes(default=assign.value)
            return


MISSING_RETURN = Family(name="missing_return", propose=_missing_return)
DROPPED_STATEMENT = Family(name="dropped_statement", propose=_dropped_statement)
EARLY_EXIT = Family(name="early_exit", propose=_early_exit)
MUTABLE_DEFAULT = Family(name="mutable_default", propose=_mutable_default)
