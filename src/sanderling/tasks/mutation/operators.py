"""Families that change an operator: comparison, arithmetic, boolean, augmented assignment, negated condition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import libcst as cst

from sanderling.tasks.mutation.site import Family, Site

_COMPARISONS: Mapping[type[cst.BaseCompOp], tuple[type[cst.BaseCompOp], ...]] = {
    cst.LessThan: (cst.LessThanEqual, cst.GreaterThan),
    cst.LessThanEqual: (cst.LessThan, cst.GreaterThanEqual),
    cst.GreaterThan: (cst.GreaterThanEqual, cst.LessThan),
    cst.GreaterThanEqual: (cst.GreaterThan, cst.LessThanEqual),
    cst.Equal: (cst.NotEqual,),
    cst.NotEqual: (cst.Equal,),
    cst.In: (cst.NotIn,),
    cst.NotIn: (cst.In,),
    cst.Is: (cst.IsNot,),
    cst.IsNot: (cst.Is,),
}
_OPPOSITES: Mapping[type[cst.BaseCompOp], type[cst.BaseCompOp]] = {
    cst.LessThan: cst.GreaterThanEqual,
    cst.LessThanEqual: cst.GreaterThan,
    cst.GreaterThan: cst.LessThanEqual,
    cst.GreaterThanEqual: cst.LessThan,
}
_ARITHMETIC: Mapping[type[cst.BaseBinaryOp], tuple[type[cst.BaseBinaryOp], ...]] = {
    cst.Add: (cst.Subtract,),
    cst.Subtract: (cst.Add,),
    cst.Multiply: (cst.Add, cst.FloorDivide),
    cst.Divide: (cst.FloorDivide, cst.Multiply),
    cst.FloorDivide: (cst.Divide, cst.Modulo),
    cst.Modulo: (cst.FloorDivide,),
    cst.Power: (cst.Multiply,),
    cst.LeftShift: (cst.RightShift,),
    cst.RightShift: (cst.LeftShift,),
    cst.BitAnd: (cst.BitOr,),
    cst.BitOr: (cst.BitAnd, cst.BitXor),
    cst.BitXor: (cst.BitOr,),
}
_AUGMENTED: Mapping[type[cst.BaseAugOp], tuple[type[cst.BaseAugOp], ...]] = {
    cst.AddAssign: (cst.SubtractAssign,),
    cst.SubtractAssign: (cst.AddAssign,),
    cst.MultiplyAssign: (cst.AddAssign,),
    cst.DivideAssign: (cst.MultiplyAssign,),
    cst.FloorDivideAssign: (cst.ModuloAssign,),
    cst.ModuloAssign: (cst.FloorDivideAssign,),
    cst.BitAndAssign: (cst.BitOrAssign,),
    cst.BitOrAssign: (cst.BitAndAssign,),
    cst.BitXorAssign: (cst.BitOrAssign,),
}


def _comparison(site: Site) -> Iterator[cst.CSTNode]:
    if isinstance(site.node, cst.ComparisonTarget):
        for kind in _COMPARISONS.get(type(site.node.operator), ()):
            yield site.node.with_changes(operator=_like(site.node.operator, kind))


def _like(old: cst.CSTNode, kind: type[cst.CSTNode]) -> cst.CSTNode:
    """Return an operator of another kind with the old one's spaces."""
    return kind(**{name: getattr(old, name) for name in ("whitespace_before", "whitespace_after")})


def _arithmetic(site: Site) -> Iterator[cst.CSTNode]:
    node = site.node
    if isinstance(node, cst.BinaryOperation) and not _is_text(node.left) and not _is_text(node.right):
        for kind in _ARITHMETIC.get(type(node.operator), ()):
            yield node.with_changes(operator=_like(node.operator, kind))


def _is_text(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.SimpleString | cst.FormattedString | cst.ConcatenatedString)


def _boolean(site: Site) -> Iterator[cst.CSTNode]:
    if isinstance(site.node, cst.BooleanOperation):
        kind = cst.Or if isinstance(site.node.operator, cst.And) else cst.And
        yield site.node.with_changes(operator=kind())


def _augmented(site: Site) -> Iterator[cst.CSTNode]:
    node = site.node
    if isinstance(node, cst.AugAssign):
        yield cst.Assign(targets=[cst.AssignTarget(target=node.target)], value=node.value)
        for kind in _AUGMENTED.get(type(node.operator), ()):
            yield node.with_changes(operator=kind())


def _negated_condition(site: Site) -> Iterator[cst.CSTNode]:
    parent = site.parent
    holds_test = isinstance(parent, cst.If | cst.While | cst.IfExp | cst.CompIf | cst.Assert)
    if not holds_test or parent.test is not site.node:
        return
    node = site.node
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
        yield node.expression
    elif isinstance(node, cst.Comparison):
        opposite = _OPPOSITES.get(type(node.comparisons[0].operator))
        if len(node.comparisons) == 1 and opposite is not None:
            yield node.with_changes(comparisons=[node.comparisons[0].with_changes(operator=opposite())])
    elif isinstance(node, cst.BooleanOperation):
        inner = node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        yield cst.UnaryOperation(operator=cst.Not(), expression=inner)
    elif isinstance(node, cst.BaseExpression):
        yield cst.UnaryOperation(operator=cst.Not(), expression=node)


COMPARISON = Family(name="comparison", propose=_comparison)
ARITHMETIC = Family(name="arithmetic", propose=_arithmetic)
BOOLEAN_OPERATOR = Family(name="boolean_operator", propose=_boolean)
AUGMENTED_ASSIGNMENT = Family(name="augmented_assignment", propose=_augmented)
NEGATED_CONDITION = Family(name="negated_condition", propose=_negated_condition)
