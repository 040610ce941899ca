"""What a mutation family sees (a site) and what it leads to (a mutant)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import libcst as cst

Replacement = cst.CSTNode | cst.FlattenSentinel[Any] | cst.RemovalSentinel
"""What may stand in place of a node: another one, several, or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One version of a source text with one planted bug.

    `source` differs from the gold text in exactly one line, and that line keeps its indentation: replacing the line
    repairs the bug.
    """

    source: str
    family: str
    line: int  # 1-based number of the changed line, the same in both texts
    description: str

    @property
    def text(self) -> str:
        """The changed line without its line end."""
        return self.source.split("\n")[self.line - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One node of a syntax tree with what a family must know about its surroundings."""

    node: cst.CSTNode
    parents: tuple[cst.CSTNode, ...]  # from the module down to the direct parent
    names: tuple[str, ...]  # parameters and locals that are bound before this line, in order of binding
    loads: bool  # the node is a name that is read here
    depth_of_loops: int  # number of loops around the node inside its function

    @property
    def parent(self) -> cst.CSTNode:
        return self.parents[-1]

    @property
    def annotated(self) -> bool:
        """The node is a part of a type annotation: changing it changes no behaviour."""
        return any(isinstance(parent, cst.Annotation) for parent in self.parents)

    def inside(self, *kinds: type[cst.CSTNode]) -> bool:
        """Whether the direct parent is of one of these kinds."""
        return isinstance(self.parent, kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One kind of bug: `propose` yields what may stand in place of the site's node: a node, several, or nothing."""

    name: str
    propose: Callable[[Site], Iterator[Replacement]]


def replaced(module: cst.Module, node: cst.CSTNode, replacement: Replacement) -> cst.Module:
    """Return a module with something else in place of one of its nodes."""
    mutated = module.deep_replace(node, cast(Any, replacement))  # it takes sentinels too; its annotation doesn't say so
    assert isinstance(mutated, cst.Module)
    return mutated
