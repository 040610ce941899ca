"""Bugs of any number of lines in a module of a repository, proposed cheaply and planted one by one on demand."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from sanderling.errors import TaskError
from sanderling.tasks.mutation import interfaces, structures
from sanderling.tasks.mutation.engine import FAMILIES, sites
from sanderling.tasks.mutation.site import Family, Replacement, Site, replaced

REPOSITORY_FAMILIES: tuple[Family, ...] = (
    structures.DROPPED_GUARD,
    structures.SWAPPED_BRANCHES,
    structures.REMOVED_METHOD,
    structures.REMOVED_AWAIT,
    structures.REMOVED_END,
    interfaces.CHANGED_DEFAULT,
    interfaces.WRONG_ATTRIBUTE,
    interfaces.DROPPED_KEYWORD,
    interfaces.OFF_BY_ONE_SLICE,
    *FAMILIES,
)
"""Every family. Where two of them lead to the same text, the earlier one names it."""


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One bug that could be planted: where, and of which family."""

    family: str
    function: str  # qualified name of the outermost function around it, such as "Stack.push"
    piece: int  # index in `SourceFile.pieces`
    number: int  # place in the list of that piece's proposals
    first_line: int  # 1-based, of the statement or expression that changes
    last_line: int
    in_signature: bool  # it changes decorators or parameters: every run of the function may notice
    node: cst.CSTNode = field(repr=False)
    replacement: Replacement = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """The text of a module with one bug in it."""

    source: str
    proposal: Proposal
    removed: tuple[
        str, ...
    ]  # lines of the gold text that are gone or changed, stripped: what a statement must not show
    added: tuple[str, ...]  # lines that stand there instead, stripped


class SourceFile:
    """The gold text of a module, in pieces: one per top-level statement that holds a function.

    Only the piece that is asked for is parsed and written anew, so a bug in a module of 2,000 lines costs what its
    function costs.

    Raises:
        TaskError: `source` is not valid Python.
    """

    def __init__(self, source: str) -> None:
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError) as error:
            raise TaskError(f"can't plant a bug in text that is not valid Python: {error}") from error
        self.source = source
        self._lines = source.splitlines(keepends=True)
        self.pieces: tuple[tuple[int, int], ...] = tuple(
            _line_range(node) for node in tree.body if any(isinstance(inner, _FUNCTIONS) for inner in ast.walk(node))
        )
        self._parsed: dict[int, MetadataWrapper] = {}

    def proposals(self, piece: int, families: Sequence[Family] = REPOSITORY_FAMILIES) -> list[Proposal]:
        """Return what could be planted in a piece (an index of `pieces`), in order of family and place.

        Two proposals may lead to the same text.
        """
        wrapper = self._wrapper(piece)
        positions = wrapper.resolve(PositionProvider)
        found = [site for site in sites(wrapper) if site.node in positions]
        above = self.pieces[piece][0] - 1
        proposals: list[Proposal] = []
        for family in families:
            for site in found:
                for replacement in family.propose(site):
                    place = positions[site.node]
                    proposals.append(
                        Proposal(
                            family=family.name,
                            function=_qualified_name(site),
                            piece=piece,
                            number=len(proposals),
                            first_line=above + place.start.line,
                            last_line=above + place.end.line,
                            in_signature=_in_signature(site),
                            node=site.node,
                            replacement=replacement,
                        )
                    )
        return proposals

    def plant(self, proposal: Proposal) -> Planted | None:
        """Return the module with the bug, or None where it would not compile or means the same to the parser."""
        module = self._wrapper(proposal.piece).module
        first, last = self.pieces[proposal.piece]
        gold = "".join(self._lines[first - 1 : last])
        try:
            mutated = replaced(module, proposal.node, proposal.replacement)
            tree = ast.parse(mutated.code)
            compile(tree, "<mutant>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, cst.CSTValidationError, RecursionError):
            return None
        if ast.dump(tree) == ast.dump(ast.parse(gold)):
            return None
        removed, added = changed_lines(gold, mutated.code)
        source = "".join([*self._lines[: first - 1], mutated.code, *self._lines[last:]])
        return Planted(source=source, proposal=proposal, removed=removed, added=added)

    def _wrapper(self, piece: int) -> MetadataWrapper:
        if piece not in self._parsed:
            first, last = self.pieces[piece]
            text = "".join(self._lines[first - 1 : last])
            try:
                self._parsed[piece] = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
            except (cst.ParserSyntaxError, RecursionError) as error:
                raise TaskError(f"lines {first} to {last} can't be parsed: {error}") from error
        return self._parsed[piece]


def _line_range(node: ast.stmt) -> tuple[int, int]:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(found.lineno for found in decorators)]), node.end_lineno or node.lineno


def changed_lines(before: str, after: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the stripped lines that only the first text holds at its place, and those of the second; blank ones left out."""
    old, new = before.splitlines(), after.splitlines()
    removed: list[str] = []
    added: list[str] = []
    start = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    matcher = difflib.SequenceMatcher(None, old[start:], new[start:], autojunk=False) if start < len(old) else None
    for kind, a, b, c, d in matcher.get_opcodes() if matcher is not None else ():
        if kind != "equal":
            removed += old[start + a : start + b]
            added += new[start + c : start + d]
    return tuple(s for line in removed if (s := line.strip())), tuple(s for line in added if (s := line.strip()))


def _qualified_name(site: Site) -> str:
    names: list[str] = []
    for node in (*site.parents, site.node):
        if isinstance(node, cst.ClassDef | cst.FunctionDef):
            names.append(node.name.value)
        if isinstance(node, cst.FunctionDef):
            break
    return ".".join(names)


def _in_signature(site: Site) -> bool:
    if isinstance(site.node, cst.FunctionDef):
        return True
    path: Iterator[tuple[cst.CSTNode, cst.CSTNode]] = zip(site.parents, (*site.parents[1:], site.node), strict=True)
    return any(isinstance(parent, cst.FunctionDef) and child is not parent.body for parent, child in path)
