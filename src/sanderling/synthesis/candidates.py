"""The bugs of a code base in the order in which they are tried: every function in turn, every family in turn."""

from __future__ import annotations

import ast
import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sanderling.errors import TaskError
from sanderling.synthesis.census import Census
from sanderling.tasks.mutation import Planted, Proposal, SourceFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One bug to be tried."""

    number: int  # place in the order
    path: str
    planted: Planted
    tests: tuple[str, ...]  # stable tests that reach the changed lines, sorted

    @property
    def proposal(self) -> Proposal:
        return self.planted.proposal

    @property
    def key(self) -> str:
        """Digest of the file's text with the bug."""
        return digest(f"{self.path}\0{self.planted.source}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Function:
    path: str
    piece: int
    name: str


def digest(text: str) -> str:
    """Return 16 hex digits that identify a text, and that order things without favour."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def candidates(files: Mapping[str, bytes], paths: Sequence[str], census: Census, seed: int) -> Iterator[Candidate]:
    """Yield every bug that a stable test could notice, without repeated texts; equal arguments give an equal order.

    In each round every function gives one bug, functions in an order that nobody chose. Within a function the families take
    turns, so that one with many places (`wrong_variable`) does not crowd out the others.
    """
    sources = {path: source for path in paths if (source := _source(files[path])) is not None}
    functions = sorted(_reached(sources, census), key=lambda f: digest(f"{seed} {f.path} {f.name}"))
    queues: dict[_Function, Iterator[Planted]] = {f: _bugs(sources[f.path], f, seed) for f in functions}
    seen: set[str] = set()
    number = 0
    while queues:
        for function in list(queues):
            planted = next(queues[function], None)
            if planted is None:
                del queues[function]
                continue
            tests = _tests(planted.proposal, function, sources, census)
            key = digest(f"{function.path}\0{planted.source}")
            if tests and key not in seen:
                seen.add(key)
                yield Candidate(number=number, path=function.path, planted=planted, tests=tuple(sorted(tests)))
                number += 1


def _source(content: bytes) -> SourceFile | None:
    try:
        return SourceFile(content.decode())
    except (UnicodeDecodeError, TaskError):
        return None  # a template, or code of another Python


def _reached(sources: Mapping[str, SourceFile], census: Census) -> Iterator[_Function]:
    for path, source in sources.items():
        for piece, (first, last) in enumerate(source.pieces):
            if census.reaching(path, first, last):
                for name, start, end in functions_between(source.source, first, last):
                    if census.reaching(path, start, end):
                        yield _Function(path=path, piece=piece, name=name)


def functions_between(source: str, first: int, last: int) -> list[tuple[str, int, int]]:
    """Return the qualified name, first and last line of each outermost function that begins in these lines, once per name."""
    found: dict[str, tuple[str, int, int]] = {}
    for name, start, end in _functions(source):
        if first <= start <= last:
            _, earliest, latest = found.get(name, (name, start, end))  # a property and its setter have one name
            found[name] = (name, min(start, earliest), max(end, latest))
    return list(found.values())


@lru_cache(maxsize=1024)
def _functions(source: str) -> tuple[tuple[str, int, int], ...]:
    found: list[tuple[str, int, int]] = []

    def visit(node: ast.AST, names: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                found.append((".".join((*names, child.name)), child.lineno, child.end_lineno or child.lineno))
            else:
                visit(child, (*names, child.name) if isinstance(child, ast.ClassDef) else names)

    visit(ast.parse(source), ())
    return tuple(found)


def _bugs(source: SourceFile, function: _Function, seed: int) -> Iterator[Planted]:
    by_family: defaultdict[str, list[Proposal]] = defaultdict(list)
    try:
        proposals = source.proposals(function.piece)
    except TaskError:
        return
    for proposal in proposals:
        if proposal.function == function.name:
            by_family[proposal.family].append(proposal)
    place = f"{seed} {function.path} {function.name}"
    families = sorted(by_family, key=lambda name: digest(f"{place} {name}"))
    for name in families:
        by_family[name].sort(key=lambda p: digest(f"{place} {p.family} {p.number}"))
    for turn in range(max(map(len, by_family.values()), default=0)):
        for name in families:
            if turn < len(by_family[name]):
                planted = source.plant(by_family[name][turn])
                if planted is not None:
                    yield planted


def _tests(
    proposal: Proposal, function: _Function, sources: Mapping[str, SourceFile], census: Census
) -> frozenset[str]:
    """Return the tests that may notice: those that run a changed line; of a changed signature, those that run the function."""
    if not proposal.in_signature:
        return census.reaching(function.path, proposal.first_line, proposal.last_line)
    first, last = sources[function.path].pieces[function.piece]
    for name, start, end in functions_between(sources[function.path].source, first, last):
        if name == function.name:
            return census.reaching(function.path, start, end)
    return frozenset()
