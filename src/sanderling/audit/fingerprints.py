"""What a certificate is for: digests of an environment's tasks and of the code and data that grade them."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sanderling.environment import Environment
from sanderling.types import JsonValue, Task
from sanderling.verify.protocol import Auditable, Verifier

_VERIFY = "sanderling.verify"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """Digests (SHA-256, hex). Two environments with equal ones give equal tasks and are graded by the same code."""

    tasks: str  # everything that an agent is given: ids, prompts, files, tools, what may change
    grader: str  # code of the verifier and what it calls in its own package, and what it keeps hidden

    def as_json(self) -> dict[str, JsonValue]:
        return {"tasks": self.tasks, "grader": self.grader}


def fingerprint(environment: Environment) -> Fingerprint:
    """Return the digests of an environment; reads every task once.

    Raises:
        TaskError: a task can't be read.
    """
    tasks, hidden = hashlib.sha256(), hashlib.sha256()
    for name, content in sorted(environment.tools.items()):
        _add(tasks, "tool", name, content)
    _add(tasks, "environment", environment.name, environment.version, repr(environment.test_argv))
    verifier = environment.verifier
    for split in environment.tasks.splits():
        for task_id in environment.tasks.ids(split):
            task = environment.tasks.get(task_id)
            _add_task(tasks, split, task)
            if isinstance(verifier, Auditable):
                for name, content in sorted(_hidden(verifier, task).items()):
                    _add(hidden, task_id, name, content)
    for name, content in _code(verifier):
        _add(hidden, "code", name, content)
    return Fingerprint(tasks=tasks.hexdigest(), grader=hidden.hexdigest())


def _hidden(verifier: Auditable, task: Task) -> dict[str, bytes]:
    try:
        return dict(verifier.hidden(task))
    except Exception as error:  # a broken task has a digest as well; its defect is found by grading
        return {"error": type(error).__name__.encode()}


def _add_task(digest: hashlib._Hash, split: str, task: Task) -> None:
    _add(digest, split, task.id, task.prompt, task.workdir, task.image, repr(task.setup), repr(task.editable))
    _add(digest, repr(sorted(task.env.items())))
    for path, content in sorted(task.base.items()):
        _add(digest, path, content)


def _add(digest: hashlib._Hash, *parts: str | bytes) -> None:
    """Add parts with their lengths, so that no other division of the same bytes has the same digest."""
    for part in parts:
        data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        digest.update(f"{len(data)}:".encode() + data)


def _code(verifier: Verifier) -> Iterator[tuple[str, bytes]]:
    """Yield the source files that decide: of the verifier and its parts, and what they import within their own packages."""
    modules = {type(part).__module__ for part in (verifier, *_attributes(verifier))}
    foreign = {name for name in modules if name.partition(".")[0] not in sys.stdlib_module_names}
    for name, file in sorted(_reached(foreign).items()):
        yield name, file.read_bytes()


def _attributes(part: object) -> list[object]:
    slots = [name for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ())]
    return [*getattr(part, "__dict__", {}).values(), *(getattr(part, name, None) for name in slots)]


def _reached(start: set[str]) -> dict[str, Path]:
    """Return the files that are reached from these modules by imports, and the scripts that they name beside them.

    Imports are followed within a top-level package; of ours, within `sanderling.verify` only. A package that is imported
    as a whole counts with all of its modules, since they may be found by looking.
    """
    roots = {_VERIFY if _within(name, _VERIFY) else name.partition(".")[0] for name in start} - {"sanderling"}
    found: dict[str, Path] = {}
    waiting = sorted(start)
    while waiting:
        name = waiting.pop()
        file = _file_of(name)
        if name in found or file is None:
            continue
        found[name] = file
        if file.name == "__init__.py" and "." in name and not _within(name, _VERIFY):
            waiting += [f"{name}.{inner.stem}" for inner in sorted(file.parent.glob("*.py")) if inner != file]
        tree = ast.parse(file.read_bytes())
        waiting += [named for named in _names(tree, file, name) if any(_within(named, root) for root in roots)]
        found |= {f"{name}:{script.name}": script for script in _scripts(tree, file)}
    return found


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _scripts(tree: ast.Module, file: Path) -> list[Path]:
    """Return the Python files beside a module whose names stand in it: programs that it sends into sandboxes."""
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return [
        file.parent / text
        for text in texts
        if text.endswith(".py") and "/" not in text and (file.parent / text).is_file()
    ]


def _file_of(module: str) -> Path | None:
    loaded = getattr(sys.modules.get(module), "__file__", None)
    if loaded is None:
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, ValueError, AttributeError):
            return None
        loaded = spec.origin if spec else None
    return Path(loaded) if loaded and loaded.endswith(".py") and Path(loaded).is_file() else None


def _names(tree: ast.Module, file: Path, module: str) -> list[str]:
    """Return the modules that a file may import, absolute or relative."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] if node.level else ""
            base = ".".join(filter(None, (above, node.module or "")))
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return names
