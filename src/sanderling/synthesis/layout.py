"""Where a code base keeps its packages, its tests, and the folders from which modules are imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from sanderling.errors import TaskError

_NO_SOURCE = frozenset(
    {
        *("tests", "test", "testing", "docs", "doc", "examples", "example", "benchmarks", "bench", "scripts", "tools"),
        *("ci", ".github", "requirements", "samples", "tutorials", "misc", "extras", "stubs", "typing"),
    }
)
_NO_MODULE = frozenset(
    {"setup.py", "conftest.py", "noxfile.py", "tasks.py", "fabfile.py", "versioneer.py", "manage.py"}
)
_TEST_PATTERNS = ("test_*.py", "*_test.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The parts of a code base. Paths are relative to its top."""

    packages: tuple[str, ...]  # folders of top-level packages, or files of top-level modules
    roots: tuple[str, ...]  # folders that stand on the path of imports
    sources: tuple[str, ...]  # Python files that bugs are planted in
    tests: tuple[str, ...]  # files of the suite

    @property
    def editable(self) -> tuple[str, ...]:
        """Patterns of what a solution may change: the packages' Python files, without their tests."""
        return self.sources


def find_layout(files: Mapping[str, bytes]) -> Layout:
    """Find packages and tests.

    Raises:
        TaskError: there is no package or no test file.
    """
    tests = tuple(path for path in files if _is_test(path))
    if not tests:
        raise TaskError("no test file found; expected files named test_*.py or *_test.py")
    folders = {str(PurePosixPath(path).parent) for path in files if PurePosixPath(path).name == "__init__.py"}
    packages = tuple(sorted(f for f in folders if _is_top(f, folders)))
    if not packages:
        packages = tuple(sorted(path for path in files if _is_module(path)))
    sources = tuple(path for path in files if path.endswith(".py") and _is_source(path, packages))
    if not sources:
        raise TaskError("no package found; expected a folder with __init__.py, at the top or below src/")
    roots = tuple(sorted({str(PurePosixPath(package).parent) for package in packages}))
    return Layout(packages=packages, roots=roots, sources=sources, tests=tests)


def _is_test(path: str) -> bool:
    name = PurePosixPath(path).name
    return any(fnmatchcase(name, p) for p in _TEST_PATTERNS) and not path.startswith(("docs/", "examples/"))


def _is_top(folder: str, folders: set[str]) -> bool:
    path = PurePosixPath(folder)
    return str(path.parent) not in folders and not _NO_SOURCE.intersection(path.parts) and folder != "."


def _is_module(path: str) -> bool:
    parts = PurePosixPath(path).parts
    place = len(parts) == 1 or (len(parts) == 2 and parts[0] == "src")
    return place and path.endswith(".py") and parts[-1] not in _NO_MODULE and not _is_test(path)


def _is_source(path: str, packages: tuple[str, ...]) -> bool:
    pure = PurePosixPath(path)
    owner = next((p for p in packages if path == p or path.startswith(f"{p}/")), None)
    if owner is None or _is_test(path) or pure.name == "conftest.py":
        return False
    return not _NO_SOURCE.intersection(pure.relative_to(PurePosixPath(owner).parent).parts[:-1])
