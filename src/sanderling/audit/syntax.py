"""Rewrites of Python source that keep its behaviour: what somebody else might have written."""

from __future__ import annotations

import ast
from collections.abc import Callable

Function = ast.FunctionDef | ast.AsyncFunctionDef
_MIRRORED: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE}
_POSITIVE: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.NotEq: ast.Eq, ast.NotIn: ast.In, ast.IsNot: ast.Is}
_ALIASED = ("len", "range", "sum", "min", "max", "sorted", "enumerate")


def rewritten(transformer: Callable[[], ast.NodeTransformer]) -> Callable[[str], str]:
    """Return the rewrite of a text that a transformer of its tree makes."""

    def rewrite(text: str) -> str:
        tree = transformer().visit(ast.parse(text))
        return ast.unparse(ast.fix_missing_locations(tree)) + "\n"

    return rewrite


class Flipped(ast.NodeTransformer):
    """`if a: x else: y` becomes `if not a: y else: x`."""

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        if node.orelse:
            node.test = ast.UnaryOp(op=ast.Not(), operand=node.test)
            node.body, node.orelse = node.orelse, node.body
        return node


class Mirrored(ast.NodeTransformer):
    """`a < b` becomes `b > a`, where neither side can have an effect."""

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        other = _MIRRORED.get(type(node.ops[0]))
        if len(node.ops) == 1 and other and _is_plain(node.left) and _is_plain(node.comparators[0]):
            return ast.Compare(left=node.comparators[0], ops=[other()], comparators=[node.left])
        return node


class Unchained(ast.NodeTransformer):
    """`a < b < c` becomes `a < b and b < c`, where the middle has no effect."""

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) < 2 or not all(map(_is_plain, node.comparators[:-1])):
            return node
        sides = [node.left, *node.comparators]
        pairs = zip(sides, node.ops, sides[1:], strict=False)
        return ast.BoolOp(op=ast.And(), values=[ast.Compare(left=a, ops=[op], comparators=[b]) for a, op, b in pairs])


class Positive(ast.NodeTransformer):
    """`a not in b` becomes `not a in b`."""

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        other = _POSITIVE.get(type(node.ops[0]))
        if len(node.ops) > 1 or other is None or isinstance(node.ops[0], ast.NotEq):  # != may have a meaning of its own
            return node
        return ast.UnaryOp(
            op=ast.Not(), operand=ast.Compare(left=node.left, ops=[other()], comparators=node.comparators)
        )


class TwiceNegated(ast.NodeTransformer):
    """`if a` becomes `if not not a`."""

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        node.test = ast.UnaryOp(op=ast.Not(), operand=ast.UnaryOp(op=ast.Not(), operand=node.test))
        return node


class NamedResult(ast.NodeTransformer):
    """`return a` becomes `answer = a; return answer`."""

    def visit_Return(self, node: ast.Return) -> ast.AST | list[ast.stmt]:
        if node.value is None:
            return node
        name = ast.Name(id="the_answer", ctx=ast.Store())
        return [
            ast.Assign(targets=[name], value=node.value),
            ast.Return(value=ast.Name(id="the_answer", ctx=ast.Load())),
        ]


class PlainSteps(ast.NodeTransformer):
    """`n += 1` becomes `n = n + 1`."""

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        number = isinstance(node.value, ast.Constant) and isinstance(node.value.value, int | float)
        if not number or not isinstance(node.target, ast.Name):
            return node
        read = ast.Name(id=node.target.id, ctx=ast.Load())
        return ast.Assign(targets=[node.target], value=ast.BinOp(left=read, op=node.op, right=node.value))


class Undocumented(ast.NodeTransformer):
    """Docstrings are gone."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return node


class Annotated(ast.NodeTransformer):
    """Every argument without an annotation gets one."""

    def visit_arg(self, node: ast.arg) -> ast.AST:
        if node.annotation is None and node.arg not in ("self", "cls"):
            node.annotation = ast.Constant("object")
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node


class Renamed(ast.NodeTransformer):
    """Local variables have other names, in functions without scopes inside of them."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        names = _locals_of(node)
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id in names:
                part.id = f"{part.id}_here"
        return node


class Aliased(ast.NodeTransformer):
    """Built-in functions are called by a name of the module's own."""

    def visit_Module(self, node: ast.Module) -> ast.AST:
        bound = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
        bound |= {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}
        bound |= {part.name for part in ast.walk(node) if isinstance(part, ast.FunctionDef)}
        used = [name for name in _ALIASED if name not in bound]
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id in used:
                part.id = f"_{part.id}"
        made = [ast.parse(f"_{name} = {name}").body[0] for name in used]
        place = _after_opening(node)
        node.body[place:place] = made
        return node


class Wrapped(ast.NodeTransformer):
    """The body of every function stands in a statement that changes nothing."""

    opening = "if True:\n    pass"

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        start = 1 if ast.get_docstring(node) is not None else 0
        if len(node.body) > start:
            around = ast.parse(self.opening).body[0]
            assert isinstance(around, ast.If | ast.Try | ast.With | ast.For)
            around.body = node.body[start:]
            node.body[start:] = [around]
        return node


class WrappedInTry(Wrapped):
    opening = "try:\n    pass\nfinally:\n    pass"


class WrappedInReraise(Wrapped):
    opening = "try:\n    pass\nexcept (ValueError, TypeError, KeyError):\n    raise"


class Delegating(ast.NodeTransformer):
    """Functions of the module call another one that does the work."""

    def visit_Module(self, node: ast.Module) -> ast.AST:
        body: list[ast.stmt] = []
        for part in node.body:
            body.append(part)
            if isinstance(part, ast.FunctionDef) and not part.decorator_list and not part.name.startswith("_"):
                name, part.name = part.name, f"_{part.name}_work"
                text = f"def {name}(*arguments, **named):\n    return {part.name}(*arguments, **named)"
                body += ast.parse(text).body
        node.body = body
        return node


class InClass(Delegating):
    """Functions of the module call a static method of a class."""

    def visit_Module(self, node: ast.Module) -> ast.AST:
        body: list[ast.stmt] = []
        for part in node.body:
            if isinstance(part, ast.FunctionDef) and not part.decorator_list and not part.name.startswith("_"):
                holder = ast.parse(f"class _Of_{part.name}:\n    pass").body[0]
                assert isinstance(holder, ast.ClassDef)
                part.decorator_list = [ast.Name(id="staticmethod", ctx=ast.Load())]
                holder.body = [part]
                text = f"def {part.name}(*arguments, **named):\n    return _Of_{part.name}.{part.name}(*arguments, **named)"
                body += [holder, *ast.parse(text).body]
            else:
                body.append(part)
        node.body = body
        return node


class Decorated(ast.NodeTransformer):
    """Functions of the module carry a decorator that hands everything on."""

    def visit_Module(self, node: ast.Module) -> ast.AST:
        for part in node.body:
            if isinstance(part, ast.FunctionDef):
                part.decorator_list.append(ast.Name(id="_handed_on", ctx=ast.Load()))
        text = (
            "import functools as _functools\n"
            "def _handed_on(function):\n"
            "    @_functools.wraps(function)\n"
            "    def call(*arguments, **named):\n"
            "        return function(*arguments, **named)\n"
            "    return call\n"
        )
        place = _after_opening(node)
        node.body[place:place] = ast.parse(text).body
        return node


def with_lines(*lines: str, at_end: bool = False) -> Callable[[str], str]:
    """Return the rewrite that puts statements at the beginning of a module, or at its end."""

    def rewrite(text: str) -> str:
        if at_end:
            return text.rstrip("\n") + "\n\n\n" + "\n".join(lines) + "\n"
        place = _line_after_opening(ast.parse(text))
        kept = text.split("\n")
        return "\n".join([*kept[:place], *lines, *kept[place:]])

    return rewrite


def _after_opening(module: ast.Module) -> int:
    """Return the place of the first statement that is neither a docstring nor a `from __future__` import."""
    place = 1 if ast.get_docstring(module) is not None else 0
    while place < len(module.body):
        part = module.body[place]
        if not (isinstance(part, ast.ImportFrom) and part.module == "__future__"):
            break
        place += 1
    return place


def _line_after_opening(module: ast.Module) -> int:
    place = _after_opening(module)
    return 0 if place == 0 else module.body[place - 1].end_lineno or 0


def _is_plain(node: ast.expr) -> bool:
    return isinstance(node, ast.Name | ast.Constant)


def _locals_of(node: Function) -> set[str]:
    """Return names that are assigned in a function and nowhere bound in another way; empty where scopes are nested."""
    inner = [part for part in ast.walk(node) if part is not node]
    scopes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.Global, ast.Nonlocal, ast.Match)
    calls = {part.id for part in inner if isinstance(part, ast.Name)} & {"locals", "vars", "eval", "exec"}
    if calls or any(isinstance(part, scopes) for part in inner):
        return set()
    stored = {part.id for part in inner if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    others = {part.arg for part in inner if isinstance(part, ast.arg)}
    others |= {part.name for part in inner if isinstance(part, ast.ExceptHandler) and part.name}
    others |= {
        (alias.asname or alias.name).partition(".")[0]
        for part in inner
        if isinstance(part, ast.Import | ast.ImportFrom)
        for alias in part.names
    }
    return stored - others
