"""Families that real code allows: a guard, a branch, a method, an await or the end of a resource goes missing.

Their mutants may change several lines, so `mutants` (one line each) drops most of them; `proposals.SourceFile` plants them all.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
import libcst.matchers as m

from sanderling.tasks.mutation.site import Family, Site

_LEAVES = (cst.Return, cst.Raise, cst.Continue, cst.Break)
_ENDS = frozenset(
    {
        *("close", "aclose", "flush", "release", "join", "shutdown", "commit", "rollback", "cancel", "disconnect"),
        *("unlink", "cleanup", "terminate", "detach", "acquire", "restore", "reset", "clear"),
    }
)
"""Methods whose call begins, ends or resets something: forgetting one shows only later."""
_OPENERS = frozenset({"open", "closing", "suppress", "lock", "Lock", "RLock", "_lock", "nullcontext"})
_LONGEST_METHOD = 30  # statements of a method that may go missing: who repairs it writes it anew


def _dropped_guard(site: Site) -> Iterator[cst.RemovalSentinel]:
    node = site.node
    if not isinstance(node, cst.If) or node.orelse is not None or isinstance(site.parent, cst.If):
        return
    last = node.body.body[-1] if node.body.body else None
    simple = last.body[-1] if isinstance(last, cst.SimpleStatementLine) else last
    if isinstance(simple, _LEAVES):
        yield cst.RemoveFromParent()


def _swapped_branches(site: Site) -> Iterator[cst.CSTNode]:
    node = site.node
    if isinstance(node, cst.IfExp):
        yield node.with_changes(body=node.orelse, orelse=node.body)
    elif isinstance(node, cst.If) and isinstance(node.orelse, cst.Else):
        blocks = node.body, node.orelse.body
        if all(isinstance(block, cst.IndentedBlock) for block in blocks):
            yield node.with_changes(body=blocks[1], orelse=node.orelse.with_changes(body=blocks[0]))


def _removed_method(site: Site) -> Iterator[cst.RemovalSentinel]:
    node = site.node
    if not isinstance(node, cst.FunctionDef) or len(site.parents) < 2 or not isinstance(site.parents[-2], cst.ClassDef):
        return
    statements = m.findall(node.body, m.SimpleStatementLine())
    if node.name.value != "__init__" and len(statements) <= _LONGEST_METHOD and len(site.parents[-2].body.body) > 1:
        yield cst.RemoveFromParent()


def _removed_await(site: Site) -> Iterator[cst.CSTNode]:
    if isinstance(site.node, cst.Await):
        yield site.node.expression


def _removed_end(site: Site) -> Iterator[cst.CSTNode | cst.FlattenSentinel]:
    """A call such as `file.close()` goes missing, or a `with` gives way to what it held."""
    node = site.node
    if isinstance(node, cst.SimpleStatementLine) and len(node.body) == 1 and isinstance(node.body[0], cst.Expr):
        call = node.body[0].value
        call = call.expression if isinstance(call, cst.Await) else call
        if m.matches(call, m.Call(func=m.Attribute())):
            assert isinstance(call, cst.Call)
            assert isinstance(call.func, cst.Attribute)
            if call.func.attr.value in _ENDS:
                yield node.with_changes(body=[cst.Pass()])
    elif isinstance(node, cst.With) and len(node.items) == 1 and isinstance(node.body, cst.IndentedBlock):
        item = node.items[0]
        if _last_name(item.item) not in _OPENERS:
            return
        body: list[cst.BaseStatement] = [s for s in node.body.body if isinstance(s, cst.BaseStatement)]
        if item.asname is not None and isinstance(item.asname.name, cst.BaseAssignTargetExpression):
            target = cst.AssignTarget(target=item.asname.name)
            first = cst.SimpleStatementLine(body=[cst.Assign(targets=[target], value=item.item)])
            body.insert(0, first.with_changes(leading_lines=node.leading_lines))
        yield cst.FlattenSentinel(body)


def _last_name(node: cst.BaseExpression) -> str:
    if isinstance(node, cst.Call):
        return _last_name(node.func)
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else ""


DROPPED_GUARD = Family(name="dropped_guard", propose=_dropped_guard)
SWAPPED_BRANCHES = Family(name="swapped_branches", propose=_swapped_branches)
REMOVED_METHOD = Family(name="removed_method", propose=_removed_method)
REMOVED_AWAIT = Family(name="removed_await", propose=_removed_await)
REMOVED_END = Family(name="removed_end", propose=_removed_end)
