"""Visible test files without the hidden tests: their functions are cut out, everything else stands as it was written."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import libcst as cst

from sanderling.errors import TaskError
from sanderling.synthesis.candidates import digest
from sanderling.synthesis.trials import definition_of, file_of


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleFile:
    """A test file as the agent gets it."""

    source: str
    removed: frozenset[str]  # definitions that are gone: "test_a", "TestB.test_c"


def choose_hidden(fail_to_pass: Sequence[str], share: float, seed: int) -> tuple[str, ...]:
    """Return the failing test functions that are hidden, sorted: of each file this share, rounded up, so at least one.

    Args:
        fail_to_pass: test ids; the cases of one function are hidden together.
        share: in (0, 1].
    """
    by_file: defaultdict[str, set[str]] = defaultdict(set)
    for name in fail_to_pass:
        by_file[file_of(name)].add(definition_of(name))
    chosen: list[str] = []
    for definitions in by_file.values():
        ordered = sorted(definitions, key=lambda name: digest(f"{seed} {name}"))
        chosen += ordered[: math.ceil(share * len(ordered))]
    return tuple(sorted(chosen))


def without_tests(source: str, definitions: Collection[str]) -> VisibleFile:
    """Cut test functions out of a file.

    Args:
        source: a test file.
        definitions: what pytest calls them inside the file: "test_a", "TestB::test_c". A method that a class inherits from
            another one of this file is cut out there.

    Raises:
        TaskError: one of them isn't written in this file, so it can't be cut out.
    """
    module = cst.parse_module(source)
    classes = _Classes()
    module.visit(classes)
    targets: set[str] = set()
    for definition in definitions:
        owner, _, name = definition.rpartition("::")
        place = name if not owner else classes.owner_of(owner.replace("::", "."), name)
        if place is None or place not in classes.functions:
            raise TaskError(f"the test {definition!r} isn't written as a function of its file; it can't be hidden")
        targets.add(place)
    text = module.visit(_Remover(targets)).code
    return VisibleFile(source=text, removed=frozenset(targets))


class _Classes(cst.CSTVisitor):
    """Collects functions by qualified name, and the bases of classes."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self.functions: set[str] = set()
        self._bases: dict[str, list[str]] = {}

    def visit_ClassDef(self, node: cst.ClassDef) -> None:  # noqa: N802 - the name is libcst's
        self._names.append(node.name.value)
        self._bases[".".join(self._names)] = [b.value.value for b in node.bases if isinstance(b.value, cst.Name)]

    def leave_ClassDef(self, original_node: cst.ClassDef) -> None:  # noqa: N802
        self._names.pop()

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:  # noqa: N802
        self.functions.add(".".join([*self._names, node.name.value]))
        return False

    def owner_of(self, owner: str, name: str) -> str | None:
        """Return the qualified name of a method, looked up in a class of this file and in its bases."""
        if f"{owner}.{name}" in self.functions:
            return f"{owner}.{name}"
        found = (self.owner_of(base, name) for base in self._bases.get(owner, ()) if base != owner)
        return next((place for place in found if place is not None), None)


class _Remover(cst.CSTTransformer):
    def __init__(self, targets: Collection[str]) -> None:
        self._targets = targets
        self._names: list[str] = []

    def visit_ClassDef(self, node: cst.ClassDef) -> None:  # noqa: N802
        self._names.append(node.name.value)

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:  # noqa: N802
        self._names.pop()
        return updated_node

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:  # noqa: N802
        return False

    def leave_FunctionDef(  # noqa: N802
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef | cst.RemovalSentinel:
        name = ".".join([*self._names, original_node.name.value])
        return cst.RemoveFromParent() if name in self._targets else updated_node
