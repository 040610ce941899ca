"""Families about what code in a repository relies on: attributes of its object, defaults, keywords, ends of slices."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from functools import lru_cache

import libcst as cst
import libcst.matchers as m

from sanderling.tasks.mutation.site import Family, Site

_MOST_ATTRIBUTES = 3  # other attributes that stand in for one
_SELF = m.Attribute(value=m.Name("self") | m.Name("cls"))


def _wrong_attribute(site: Site) -> Iterator[cst.CSTNode]:
    """`self.x` becomes another attribute of the same class that is used in the same way: called, read or written."""
    node = site.node
    if not isinstance(node, cst.Attribute) or not m.matches(node, _SELF):
        return
    owner = next((parent for parent in reversed(site.parents) if isinstance(parent, cst.ClassDef)), None)
    if owner is None:
        return
    called, plain = _attributes(owner)
    known = called if isinstance(site.parent, cst.Call) and site.parent.func is node else plain
    others = sorted(known - {node.attr.value})
    near = difflib.get_close_matches(node.attr.value, others, n=_MOST_ATTRIBUTES, cutoff=0.3)
    for name in near or others[:1]:
        yield node.with_changes(attr=cst.Name(name))


@lru_cache(maxsize=4)
def _attributes(owner: cst.ClassDef) -> tuple[set[str], set[str]]:
    """Return the names of `self.name` that are called in a class, and of those that aren't."""
    called: set[str] = set()
    for call in m.findall(owner, m.Call(func=_SELF)):
        assert isinstance(call, cst.Call)
        assert isinstance(call.func, cst.Attribute)
        called.add(call.func.attr.value)
    used = m.findall(owner, _SELF)
    return called, {node.attr.value for node in used if isinstance(node, cst.Attribute)} - called


def _changed_default(site: Site) -> Iterator[cst.CSTNode]:
    node = site.node
    if not isinstance(node, cst.Param) or node.default is None:
        return
    default = node.default
    if isinstance(default, cst.Name) and default.value in ("True", "False", "None"):
        for value in {"True": ("False", "None"), "False": ("True",), "None": ("False", "True")}[default.value]:
            yield node.with_changes(default=cst.Name(value))
    elif isinstance(default, cst.Integer):
        for number in (default.evaluated_value + 1, max(0, default.evaluated_value - 1)):
            yield node.with_changes(default=cst.Integer(str(number)))
    elif isinstance(default, cst.SimpleString) and isinstance(default.evaluated_value, str):
        yield node.with_changes(default=cst.SimpleString("''" if default.evaluated_value else "' '"))
    yield node.with_changes(default=None, equal=cst.MaybeSentinel.DEFAULT)  # now it has to be given


def _dropped_keyword(site: Site) -> Iterator[cst.CSTNode]:
    node = site.node
    if isinstance(node, cst.Call):
        for drop in (argument for argument in node.args if argument.keyword is not None):
            rest = [a for a in node.args if a is not drop]
            if rest:
                rest[-1] = rest[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
            yield node.with_changes(args=rest)


def _off_by_one_slice(site: Site) -> Iterator[cst.CSTNode]:
    """A slice that is open at one end loses one element there."""
    node = site.node
    if not isinstance(node, cst.Slice) or node.step is not None:
        return
    if node.lower is None and node.upper is not None:
        yield node.with_changes(lower=cst.Integer("1"))
    if node.upper is None and node.lower is not None:
        yield node.with_changes(upper=cst.UnaryOperation(operator=cst.Minus(), expression=cst.Integer("1")))


WRONG_ATTRIBUTE = Family(name="wrong_attribute", propose=_wrong_attribute)
CHANGED_DEFAULT = Family(name="changed_default", propose=_changed_default)
DROPPED_KEYWORD = Family(name="dropped_keyword", propose=_dropped_keyword)
OFF_BY_ONE_SLICE = Family(name="off_by_one_slice", propose=_off_by_one_slice)
