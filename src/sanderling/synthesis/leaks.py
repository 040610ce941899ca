"""Copies of the right solution where the agent could read them: in the workspace, in a statement, on the sandbox's disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from sanderling.errors import TaskError
from sanderling.sandbox.protocol import Command, Sandbox
from sanderling.synthesis.layout import Layout
from sanderling.tasks.mutation import Planted

_AROUND = 2  # lines before and after a change that make its place recognisable
_TELLING = 8  # characters of a line that says something: `else:` and `return` don't
_SCAN = """
import os, sys
tails = [line for line in sys.stdin.read().splitlines() if line]
names, archives = {tail.rpartition("/")[2] for tail in tails}, (".whl", ".egg", ".tar.gz", ".zip", ".conda")
for top, folders, files in os.walk("/"):
    if top == "/":
        folders[:] = [name for name in folders if name not in ("proc", "sys", "dev", "work", "tools")]
    for name in files:
        stem = name.split(".")[0] + ".py" if name.endswith(".pyc") else name
        path = (top.removesuffix("/__pycache__") if name.endswith(".pyc") else top) + "/" + stem
        if stem in names and any(path.endswith("/" + tail) for tail in tails):
            print(top + "/" + name)
        elif name.endswith(archives) and name.lower().replace("_", "-").startswith(sys.argv[1] + "-"):
            print(top + "/" + name)
"""


def visible_gold(base: Mapping[str, bytes], gold: str, planted: Planted) -> str | None:
    """Return a file of the workspace that shows the changed place as it should be, None where there is none.

    A place is its changed lines with two more on each side, spaces at the ends of lines aside.
    """
    window = _window(gold, planted)
    if window is None:
        return None
    for path, content in base.items():
        if window in _lines_of(content):
            return path
    return None


def leaked_line(text: str, planted: Planted, base: str) -> str | None:
    """Return a line of the right solution that a statement shows, None where there is none.

    Lines that the workspace's own file shows elsewhere, or too short to say anything, don't count.

    Args:
        base: text of the changed file with the bug.
    """
    shown = "".join(text.split())
    known = {line.strip() for line in base.splitlines()}
    for line in planted.removed:
        if len(line) >= _TELLING and line not in known and "".join(line.split()) in shown:
            return line
    return None


async def check_installed(sandbox: Sandbox, name: str, layout: Layout) -> None:
    """Raise TaskError where the sandbox's disk holds a copy of a source file outside of the workspace, installed or packed."""
    tails = _tails(layout)
    command = Command(
        argv=("python3", "-I", "-S", "-c", _SCAN, name.lower().replace("_", "-")),
        stdin="\n".join(tails).encode(errors="surrogateescape"),
    )
    result = await sandbox.exec(command)
    if result.exit_code != 0:
        raise TaskError(
            f"the sandbox's disk can't be searched for copies: {result.stderr[-300:].decode(errors='replace')}"
        )
    if found := result.stdout.decode(errors="replace").splitlines():
        raise TaskError(
            f"the sandbox shows {len(found)} copies of the right solution, such as {found[0]}; "
            "uninstall it there, or use an interpreter without it"
        )


def _tails(layout: Layout) -> Sequence[str]:
    """Return how paths of copies end: the package with the path below it. Modules at the top have no such mark."""
    tails = []
    for path in layout.sources:
        root = next((r for r in layout.roots if r != "." and path.startswith(f"{r}/")), None)
        tail = path.removeprefix(f"{root}/") if root else path
        if "/" in tail and not tail.endswith("/__init__.py"):
            tails.append(tail)
    return tails


def _window(gold: str, planted: Planted) -> str | None:
    lines = [line.strip() for line in gold.splitlines()]
    mutated = [line.strip() for line in planted.source.splitlines()]
    first = next((i for i, (a, b) in enumerate(zip(lines, mutated, strict=False)) if a != b), None)
    if first is None:
        return None
    common = 0
    while common < min(len(lines), len(mutated)) - first and lines[-1 - common] == mutated[-1 - common]:
        common += 1
    last = max(first + 1, len(lines) - common)
    window = [line for line in lines[max(0, first - _AROUND) : last + _AROUND] if line]
    return "\n" + "\n".join(window) + "\n"


@lru_cache(maxsize=4096)
def _lines_of(content: bytes) -> str:
    text = content.decode("utf-8", "replace")
    return "\n" + "\n".join(s for line in text.splitlines() if (s := line.strip())) + "\n"
