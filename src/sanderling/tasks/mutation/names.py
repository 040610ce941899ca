"""Families that name the wrong thing: another variable, another call, swapped arguments, another exception."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import libcst as cst

from sanderling.tasks.mutation.site import Family, Site

_FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    "min": ("max",),
    "max": ("min",),
    "any": ("all",),
    "all": ("any",),
    "sum": ("len", "max"),
    "len": ("sum",),
    "int": ("float",),
    "float": ("int",),
    "round": ("int",),
    "list": ("tuple",),
    "tuple": ("list",),
    "set": ("list",),
    "sorted": ("list",),
    "reversed": ("sorted",),
    "str": ("repr",),
}
_METHODS: Mapping[str, tuple[str, ...]] = {
    "lower": ("upper", "title"),
    "upper": ("lower", "title"),
    "title": ("upper",),
    "capitalize": ("title",),
    "strip": ("lstrip", "rstrip"),
    "lstrip": ("rstrip", "strip"),
    "rstrip": ("lstrip", "strip"),
    "startswith": ("endswith",),
    "endswith": ("startswith",),
    "find": ("rfind", "index"),
    "rfind": ("find",),
    "index": ("count", "find"),
    "count": ("find", "index"),
    "append": ("extend",),
    "extend": ("append",),
    "add": ("discard",),
    "discard": ("add",),
    "split": ("rsplit", "splitlines"),
    "partition": ("rpartition",),
    "rpartition": ("partition",),
    "union": ("intersection",),
    "intersection": ("union",),
    "issubset": ("issuperset",),
    "issuperset": ("issubset",),
    "keys": ("values",),
    "values": ("keys",),
    "ljust": ("rjust",),
    "rjust": ("ljust",),
    "isdigit": ("isalpha", "isalnum"),
    "isalpha": ("isalnum", "isdigit"),
    "isalnum": ("isalpha",),
    "isupper": ("islower",),
    "islower": ("isupper",),
    "isspace": ("isalpha",),
    "removeprefix": ("removesuffix",),
    "removesuffix": ("removeprefix",),
    "setdefault": ("get",),
    "popleft": ("pop",),
    "appendleft": ("append",),
}
_DROPPABLE = frozenset({"abs", "sorted", "set", "list", "int", "str", "round", "reversed", "len", "dict", "tuple"})
_DROPPABLE_METHODS = frozenset({"copy", "strip", "lower", "upper", "lstrip", "rstrip", "items", "keys"})
_EXCEPTIONS: Mapping[str, tuple[str, ...]] = {
    "ValueError": ("KeyError", "TypeError"),
    "KeyError": ("IndexError", "ValueError"),
    "IndexError": ("KeyError", "ValueError"),
    "TypeError": ("ValueError",),
    "ZeroDivisionError": ("ValueError",),
    "StopIteration": ("ValueError",),
}


def _variable(site: Site) -> Iterator[cst.CSTNode]:
    node = site.node
    if not isinstance(node, cst.Name) or not site.loads or site.annotated or node.value not in site.names:
        return
    for name in site.names:
        if name not in (node.value, "_"):
            yield node.with_changes(value=name)


def _swapped_arguments(site: Site) -> Iterator[cst.CSTNode]:
    node = site.node
    if isinstance(node, cst.Call):
        for first, second in zip(range(len(node.args)), range(1, len(node.args)), strict=False):
            pair = node.args[first], node.args[second]
            if any(argument.keyword is not None or argument.star for argument in pair):
                continue
            args = list(node.args)
            args[first] = pair[0].with_changes(value=pair[1].value)
            args[second] = pair[1].with_changes(value=pair[0].value)
            yield node.with_changes(args=args)
    elif isinstance(node, cst.BinaryOperation):
        ordered = isinstance(node.operator, cst.Subtract | cst.Divide | cst.FloorDivide | cst.Modulo | cst.Add)
        if ordered and _is_atom(node.left) and _is_atom(node.right):
            yield node.with_changes(left=node.right, right=node.left)


def _is_atom(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Name | cst.Integer | cst.Call | cst.Attribute | cst.Subscript | cst.SimpleString)


def _call(site: Site) -> Iterator[cst.CSTNode]:
    node = site.node
    if not isinstance(node, cst.Call):
        return
    if isinstance(node.func, cst.Name):
        for name in _FUNCTIONS.get(node.func.value, ()):
            yield node.with_changes(func=node.func.with_changes(value=name))
        yield from _other_keywords(node)
    elif isinstance(node.func, cst.Attribute):
        for name in _METHODS.get(node.func.attr.value, ()):
            yield node.with_changes(func=node.func.with_changes(attr=cst.Name(name)))
        yield from _other_end(node, node.func.attr.value)


def _other_keywords(node: cst.Call) -> Iterator[cst.CSTNode]:
    name = node.func.value if isinstance(node.func, cst.Name) else ""
    kept = [a for a in node.args if a.keyword is None or a.keyword.value not in ("reverse", "key", "start")]
    if len(kept) < len(node.args):
        for drop in (a for a in node.args if a not in kept):
            rest = [a.with_changes(comma=cst.MaybeSentinel.DEFAULT) for a in node.args if a is not drop]
            yield node.with_changes(args=rest)
    if name == "sorted" and all(a.keyword is None or a.keyword.value != "reverse" for a in node.args):
        equal = cst.AssignEqual(whitespace_before=cst.SimpleWhitespace(""), whitespace_after=cst.SimpleWhitespace(""))
        last = cst.Arg(keyword=cst.Name("reverse"), value=cst.Name("True"), equal=equal)
        yield node.with_changes(args=[*(a.with_changes(comma=cst.MaybeSentinel.DEFAULT) for a in node.args), last])
    if name == "enumerate" and len(node.args) == 1:
        yield node.with_changes(args=[node.args[0], cst.Arg(value=cst.Integer("1"))])
    if name == "enumerate" and len(node.args) == 2:
        yield node.with_changes(args=[node.args[0].with_changes(comma=cst.MaybeSentinel.DEFAULT)])


def _other_end(node: cst.Call, method: str) -> Iterator[cst.CSTNode]:
    """Take from, or put at, the other end of a list."""
    assert isinstance(node.func, cst.Attribute)
    if method == "pop" and not node.args:
        yield node.with_changes(args=[cst.Arg(value=cst.Integer("0"))])
    elif method == "pop" and len(node.args) == 1:
        yield node.with_changes(args=[])
    elif method == "insert" and len(node.args) == 2:
        yield node.with_changes(func=node.func.with_changes(attr=cst.Name("append")), args=[node.args[1]])
    elif method == "append" and len(node.args) == 1:
        first = cst.Arg(value=cst.Integer("0"))
        yield node.with_changes(func=node.func.with_changes(attr=cst.Name("insert")), args=[first, node.args[0]])


def _dropped_call(site: Site) -> Iterator[cst.CSTNode]:
    node = site.node
    if isinstance(node, cst.Subscript) and len(node.slice) == 1:
        part = node.slice[0].slice
        if isinstance(part, cst.Slice) and part.lower is None and part.upper is None:
            yield node.value  # a copy, or a reversal, is lost
    if not isinstance(node, cst.Call):
        return
    if isinstance(node.func, cst.Name) and node.func.value in _DROPPABLE and node.args:
        if node.args[0].keyword is None and not node.args[0].star:
            yield _bracketed(node.args[0].value)
    elif isinstance(node.func, cst.Attribute) and node.func.attr.value in _DROPPABLE_METHODS and not node.args:
        yield node.func.value


def _bracketed(node: cst.BaseExpression) -> cst.BaseExpression:
    loose = cst.BinaryOperation | cst.BooleanOperation | cst.Comparison | cst.IfExp | cst.GeneratorExp
    if isinstance(node, loose) and not node.lpar:
        return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return node


def _exception(site: Site) -> Iterator[cst.CSTNode]:
    node = site.node
    if not isinstance(node, cst.Name) or node.value not in _EXCEPTIONS:
        return
    raised = site.inside(cst.Raise) or (site.inside(cst.Call) and isinstance(site.parents[-2], cst.Raise))
    if raised or site.inside(cst.ExceptHandler):
        for name in _EXCEPTIONS[node.value]:
            yield node.with_changes(value=name)


WRONG_VARIABLE = Family(name="wrong_variable", propose=_variable)
SWAPPED_ARGUMENTS = Family(name="swapped_arguments", propose=_swapped_arguments)
WRONG_CALL = Family(name="wrong_call", propose=_call)
DROPPED_CALL = Family(name="dropped_call", propose=_dropped_call)
WRONG_EXCEPTION = Family(name="wrong_exception", propose=_exception)
