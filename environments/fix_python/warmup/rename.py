"""Gives the names of a function new names, so that a policy learns to copy names and not to remember them."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections.abc import Mapping
from random import Random

MAX_LINE_LENGTH = 88


def new_names(source: str, pool: tuple[str, ...], rng: Random, share: float) -> dict[str, str]:
    """Return new names for about `share` of the parameters and locals of a function.

    Names that also stand in a text or as a keyword of a call are left alone, because those mean something else.
    """
    tree = ast.parse(source)
    own = _own_names(tree)
    used = set(re.findall(r"[A-Za-z_]\w*", source)) | set(dir(builtins)) | set(keyword.kwlist)
    free = [name for name in dict.fromkeys(pool) if name not in used]
    changed = [name for name in own if name not in _words_with_meaning(tree) and rng.random() < share]
    return dict(zip(changed, rng.sample(free, min(len(changed), len(free))), strict=False))


def invented_name(rng: Random) -> str:
    """Return a name that means nothing, such as `tavo` or `miru_lo`: it can be copied but not remembered."""
    syllables = ["".join((rng.choice("bdfgklmnprstvz"), rng.choice("aeiou"))) for _ in range(rng.randint(1, 3))]
    return "".join(syllables) + rng.choice(["", "", "_" + syllables[0], rng.choice("nrs")])


def renamed(source: str, names: Mapping[str, str]) -> str | None:
    """Return the source with the names replaced everywhere, in its docstring too; None where a line becomes too long."""
    if not names:
        return source
    pattern = re.compile(r"(?<![\w.])(" + "|".join(map(re.escape, names)) + r")(?!\w)")
    text = pattern.sub(lambda match: names[match[1]], source)
    return text if max(map(len, text.split("\n"))) <= MAX_LINE_LENGTH else None


def _own_names(tree: ast.AST) -> list[str]:
    found: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            found[node.arg] = None
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] = None
    return [name for name in found if name != "_"]


def _words_with_meaning(tree: ast.AST) -> set[str]:
    words: set[str] = set()
    documented = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and ast.get_docstring(node)]
    docstrings = {id(first.value) for node in documented if isinstance(first := node.body[0], ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            words.update(re.findall(r"\w+", node.value))
        elif isinstance(node, ast.keyword) and node.arg:
            words.add(node.arg)
        elif isinstance(node, ast.alias):
            words.update(node.name.split("."))
    return words
