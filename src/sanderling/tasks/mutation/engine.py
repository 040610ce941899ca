"""Walks a source text and yields its mutants, one per site, each repairable by replacing one line."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import libcst as cst
from libcst.metadata import ExpressionContext, ExpressionContextProvider, MetadataWrapper, PositionProvider

from sanderling.errors import TaskError
from sanderling.tasks.mutation import literals, names, operators, statements
from sanderling.tasks.mutation.site import Family, Mutant, Site, replaced

FAMILIES: tuple[Family, ...] = (
    statements.MUTABLE_DEFAULT,
    statements.MISSING_RETURN,
    statements.EARLY_EXIT,
    names.WRONG_EXCEPTION,
    operators.COMPARISON,
    operators.NEGATED_CONDITION,
    operators.BOOLEAN_OPERATOR,
    operators.AUGMENTED_ASSIGNMENT,
    operators.ARITHMETIC,
    literals.WRONG_INDEX,
    literals.WRONG_SLICE,
    literals.BOUNDARY,
    literals.CONSTANT,
    names.WRONG_CALL,
    names.DROPPED_CALL,
    names.SWAPPED_ARGUMENTS,
    names.WRONG_VARIABLE,
    statements.DROPPED_STATEMENT,
)
"""Every family. Where two of them lead to the same text, the earlier one names it."""

_SCOPES = (cst.FunctionDef, cst.Lambda)


def mutants(source: str, families: Sequence[Family] = FAMILIES) -> list[Mutant]:
    """Return the mutants of `source` in order of family and place, without repeated texts.

    Args:
        source: a Python module; what is inside its functions is mutated.
        families: kinds of bugs to plant.

    Returns:
        Mutants that parse, mean something else to the parser, and differ from `source` in exactly one line with the
        same indentation. They may still behave like `source`: only running them tells.

    Raises:
        TaskError: `source` is not valid Python.
    """
    try:
        wrapper = MetadataWrapper(cst.parse_module(source))
    except cst.ParserSyntaxError as error:
        raise TaskError(f"can't plant a bug in text that is not valid Python: {error.message}") from error
    found_sites = list(sites(wrapper))
    meaning = ast.dump(ast.parse(source))
    seen = {source}
    found: list[Mutant] = []
    for family in families:
        for site in found_sites:
            for replacement in family.propose(site):
                try:
                    code = replaced(wrapper.module, site.node, replacement).code
                except cst.CSTValidationError:  # such as a name for the parentheses of `if(a):`
                    continue
                mutant = _accepted(source, code, family.name, meaning)
                if mutant is not None and mutant.source not in seen:
                    seen.add(mutant.source)
                    found.append(mutant)
    return found


def changed_line(before: str, after: str) -> int | None:
    """Return the 1-based number of the only line that differs, or None.

    None as well where the texts are equal, have different numbers of lines, or the line's indentation changed.
    """
    old, new = before.split("\n"), after.split("\n")
    if len(old) != len(new):
        return None
    different = [index for index, pair in enumerate(zip(old, new, strict=True)) if pair[0] != pair[1]]
    if len(different) != 1:
        return None
    line = different[0]
    return line + 1 if _indentation(old[line]) == _indentation(new[line]) else None


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _accepted(source: str, code: str, family: str, meaning: str) -> Mutant | None:
    line = changed_line(source, code)
    if line is None:
        return None
    try:
        tree = ast.parse(code)
        compile(tree, "<mutant>", "exec")  # rejects a break outside of a loop and the like
    except (SyntaxError, ValueError):
        return None
    if ast.dump(tree) == meaning:
        return None
    old, new = source.split("\n")[line - 1].strip(), code.split("\n")[line - 1].strip()
    return Mutant(source=code, family=family, line=line, description=f"line {line}: `{old}` became `{new}`")


def sites(wrapper: MetadataWrapper) -> Iterator[Site]:
    """Yield every node inside a function and every method of a class, outermost first, in order of the text."""
    contexts = wrapper.resolve(ExpressionContextProvider)
    positions = wrapper.resolve(PositionProvider)
    bound: dict[cst.CSTNode, dict[str, int]] = {}

    def walk(node: cst.CSTNode, parents: tuple[cst.CSTNode, ...], loops: int) -> Iterator[Site]:
        function = next((parent for parent in parents if isinstance(parent, cst.FunctionDef)), None)
        if function is not None:
            if function not in bound:
                bound[function] = _bindings(function, contexts, positions)
            line = positions[node].start.line if node in positions else 0
            yield Site(
                node=node,
                parents=parents,
                names=tuple(name for name, first in bound[function].items() if first < line),
                loads=contexts.get(node) is ExpressionContext.LOAD,  # type: ignore[call-overload]
                depth_of_loops=loops,
            )
        elif isinstance(node, cst.FunctionDef) and isinstance(parents[-2:][0], cst.ClassDef):
            yield Site(node=node, parents=parents, names=(), loads=False, depth_of_loops=0)
        if isinstance(node, _SCOPES):
            loops = 0
        for child in node.children:
            inside = isinstance(node, cst.For | cst.While) and child is node.body
            yield from walk(child, (*parents, node), loops + inside)

    yield from walk(wrapper.module, (), 0)


def _bindings(function: cst.FunctionDef, contexts: Mapping, positions: Mapping) -> dict[str, int]:
    """Return the names that are bound in a function with the line of their first binding (0 for parameters)."""
    first: dict[str, int] = {}

    def visit(node: cst.CSTNode) -> None:
        if isinstance(node, cst.Param):
            first[node.name.value] = 0
        elif isinstance(node, cst.Name) and contexts.get(node) is ExpressionContext.STORE:
            first.setdefault(node.value, positions[node].start.line)
        if isinstance(node, cst.Lambda | cst.BaseComp):
            return  # their names end with them
        for child in node.children:
            visit(child)

    visit(function.params)
    visit(function.body)
    return first
