"""Submissions with known truth, made of a right solution: partial fixes, breakage, mutants, rewrites."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

from sanderling.audit.equivalents import rewritten
from sanderling.errors import TaskError
from sanderling.tasks.mutation import FAMILIES, REPOSITORY_FAMILIES, SourceFile, mutants
from sanderling.types import Task

Files = Mapping[str, bytes]
_MOST_LINES = 400  # of a file that is mutated line by line as a whole; longer ones go piece by piece


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """One submission: whole files, and what was done to them."""

    files: Files
    description: str
    in_region: bool = False  # it changes lines that the right solution changes


def hunks(before: bytes, after: bytes) -> list[tuple[int, int, int, int]]:
    """Return the changed blocks between two texts as (first, end) lines of the old and of the new one, from 0."""
    old, new = before.split(b"\n"), after.split(b"\n")
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return [(a, b, c, d) for kind, a, b, c, d in matcher.get_opcodes() if kind != "equal"]


def partial_fixes(task: Task, solution: Files) -> list[Patch]:
    """Return the solution with one hunk left out, for each of its hunks; none where it has only one."""
    found = [(path, hunk) for path, content in solution.items() for hunk in hunks(task.base.get(path, b""), content)]
    if len(found) < 2:
        return []
    partial = []
    for path, (a, b, c, d) in found:
        old, new = task.base.get(path, b"").split(b"\n"), solution[path].split(b"\n")
        content = b"\n".join([*new[:c], *old[a:b], *new[d:]])
        partial.append(
            Patch(files={**solution, path: content}, description=f"without the change of {path}, line {c + 1}")
        )
    return partial


def breakage(task: Task, solution: Files) -> list[Patch]:
    """Return submissions that can't be right: the changed files emptied, or made to fail as soon as they are read."""
    python = [path for path in solution if path.endswith(".py")]
    broken = [Patch(files=dict.fromkeys(solution, b""), description="the changed files emptied")]
    if python:
        fails = dict.fromkeys(python, b"raise RuntimeError('not written')\n")
        no_code = dict.fromkeys(python, b"this is no Python (\n")
        broken.append(Patch(files=fails, description="the changed modules raise when they are imported"))
        broken.append(Patch(files=no_code, description="the changed modules are no Python"))
    return broken


def cosmetic(task: Task, solution: Files) -> list[Patch]:
    """Return the untouched files with a remark in them."""
    files = {
        path: task.base[path] + b"\n# looked at\n" for path in solution if path.endswith(".py") and path in task.base
    }
    return [Patch(files=files, description="a comment and nothing else")] if files else []


def wrong_patches(task: Task, solution: Files, count: int, seed: int) -> list[Patch]:
    """Return up to `count` mutants of the right solution, those of lines that it changes first, in an order drawn by `seed`.

    They are wrong as far as nobody knows: some mutants do what the original does. Files that aren't Python have none.
    """
    rng = Random(f"wrong patches {task.id} {seed}")
    inside: list[Patch] = []
    outside: list[Patch] = []
    for path, content in solution.items():
        if not path.endswith(".py"):
            continue
        base = task.base.get(path, b"")
        region = {
            line for _, _, first, end in hunks(base, content) for line in range(first + 1, max(end, first + 1) + 1)
        }
        for source, lines, description in _mutated(content.decode("utf-8", "replace"), region):
            if source.encode() == base:
                continue
            near = not lines.isdisjoint(region)
            patch = Patch(
                files={**solution, path: source.encode()}, description=f"{path}: {description}", in_region=near
            )
            (inside if near else outside).append(patch)
    rng.shuffle(inside)
    rng.shuffle(outside)
    return [*inside, *outside][:count]


def _mutated(source: str, region: set[int]) -> Iterator[tuple[str, set[int], str]]:
    """Yield mutants of a module with the lines that they change and a description."""
    try:
        if source.count("\n") <= _MOST_LINES:
            for mutant in mutants(source, FAMILIES):
                yield mutant.source, {mutant.line}, mutant.description
            return
        file = SourceFile(source)
        for index, (first, last) in enumerate(file.pieces):
            if region.isdisjoint(range(first, last + 1)):
                continue
            for proposal in file.proposals(index, REPOSITORY_FAMILIES):
                lines = set(range(proposal.first_line, proposal.last_line + 1))
                if len(lines) <= 3 and (planted := file.plant(proposal)) is not None:
                    yield planted.source, lines, f"line {proposal.first_line}: {proposal.family}"
    except TaskError:
        return


def rewrites(solution: Files) -> list[Patch]:
    """Return the right solution written otherwise, one way at a time, and with all Python files reformatted."""
    found: dict[str, dict[str, bytes]] = {}
    for path, content in solution.items():
        if not path.endswith(".py"):
            continue
        try:
            texts = rewritten(content.decode())
        except (SyntaxError, ValueError, RecursionError):
            continue
        for name, text in texts.items():
            found.setdefault(name, dict(solution))[path] = text.encode()
    return [Patch(files=files, description=name) for name, files in found.items()]
