"""Families about numbers and places: constants, boundaries that are off by one, slices and indexes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst

from sanderling.tasks.mutation.site import Family, Site

_ARITHMETIC_OPERATORS = (cst.Add, cst.Subtract, cst.Multiply, cst.FloorDivide, cst.Modulo)


def integer_value(node: cst.CSTNode | None) -> int | None:
    """Return the value of an integer literal, with or without a minus, else None."""
    if isinstance(node, cst.Integer):
        return node.evaluated_value
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        inner = integer_value(node.expression)
        return None if inner is None else -inner
    return None


def integer(value: int) -> cst.BaseExpression:
    """Return the literal of `value`."""
    if value >= 0:
        return cst.Integer(str(value))
    return cst.UnaryOperation(operator=cst.Minus(), expression=cst.Integer(str(-value)))


def shifted(node: cst.BaseExpression, by: int) -> cst.BaseExpression | None:
    """Return `node` plus `by` (1 or -1) in its shortest spelling, or None where that would not be arithmetic."""
    value = integer_value(node)
    if value is not None:
        return integer(value + by)
    if isinstance(node, cst.BinaryOperation):
        if not isinstance(node.operator, _ARITHMETIC_OPERATORS):
            return None
        step = {cst.Add: 1, cst.Subtract: -1}.get(type(node.operator))
        if step is not None and integer_value(node.right) == 1 and step == -by:
            return node.left
    elif not isinstance(node, cst.Name | cst.Call | cst.Attribute | cst.Subscript):
        return None
    operator = cst.Add() if by > 0 else cst.Subtract()
    return cst.BinaryOperation(left=node, operator=operator, right=cst.Integer("1"))


def _constant(site: Site) -> Iterator[cst.CSTNode]:
    node = site.node
    if site.annotated or _is_docstring(site):
        return
    if isinstance(node, cst.Integer):
        for value in sorted({node.evaluated_value + 1, max(0, node.evaluated_value - 1), 0} - {node.evaluated_value}):
            yield cst.Integer(str(value))
    elif isinstance(node, cst.Float):
        for value in (node.evaluated_value * 2, node.evaluated_value + 1):
            yield cst.Float(repr(value))
    elif isinstance(node, cst.SimpleString) and isinstance(node.evaluated_value, str):
        for text in _other_texts(node.evaluated_value):
            yield cst.SimpleString(_quoted(text, node.quote))
    elif isinstance(node, cst.Name) and site.loads and node.value in ("True", "False"):
        yield node.with_changes(value="False" if node.value == "True" else "True")


def _other_texts(text: str) -> Iterator[str]:
    if text == "":
        yield " "
        return
    yield text[:-1]
    if len(text) > 1:
        yield text[1:]
    if text.swapcase() != text:
        yield text.swapcase()


def _quoted(text: str, quote: str) -> str:
    literal = repr(text)
    if quote == '"' and literal[0] == "'" and '"' not in text and "'" not in text:
        literal = '"' + literal[1:-1] + '"'
    assert ast.literal_eval(literal) == text
    return literal


def _is_docstring(site: Site) -> bool:
    return isinstance(site.node, cst.SimpleString) and site.inside(cst.Expr)


def _boundary(site: Site) -> Iterator[cst.CSTNode]:
    node = site.node
    if not isinstance(node, cst.BaseExpression) or not _is_boundary(site):
        return
    for by in (1, -1):
        other = shifted(node, by)
        if other is not None:
            yield other


def _is_boundary(site: Site) -> bool:
    parent = site.parent
    if isinstance(parent, cst.Slice):
        return site.node is not parent.step
    if isinstance(parent, cst.Index):
        return integer_value(site.node) is None and isinstance(site.node, cst.Name | cst.BinaryOperation)
    if isinstance(parent, cst.ComparisonTarget):
        return isinstance(site.node, cst.Integer | cst.UnaryOperation | cst.BinaryOperation | cst.Call)
    if isinstance(parent, cst.Arg) and isinstance(site.parents[-2], cst.Call):
        function = site.parents[-2].func
        return isinstance(function, cst.Name) and function.value == "range"
    return False


def _slice(site: Site) -> Iterator[cst.CSTNode]:
    node = site.node
    if not isinstance(node, cst.Slice):
        return
    if node.lower is not None:
        yield node.with_changes(lower=None)
    if node.upper is not None:
        yield node.with_changes(upper=None)
    if (node.lower is None) != (node.upper is None):
        yield node.with_changes(lower=node.upper, upper=node.lower)
    step = integer_value(node.step)
    if step is not None:
        yield node.with_changes(step=integer(-step))
        yield node.with_changes(step=integer(step + 1 if step > 0 else step - 1))


def _index(site: Site) -> Iterator[cst.CSTNode]:
    if not isinstance(site.node, cst.Index) or site.annotated:
        return
    value = integer_value(site.node.value)
    if value is not None:
        for other in sorted({value + 1, value - 1, -1 if value == 0 else 0} - {value}):
            yield site.node.with_changes(value=integer(other))


CONSTANT = Family(name="constant", propose=_constant)
BOUNDARY = Family(name="boundary", propose=_boundary)
WRONG_SLICE = Family(name="wrong_slice", propose=_slice)
WRONG_INDEX = Family(name="wrong_index", propose=_index)
