"""The pinned test runner, as read-only files of a sandbox: our programs, and pytest as bytecode of this interpreter.

A sandbox shows no installed packages, so that nothing which an agent could install or plant is ever a part of grading.
"""

from __future__ import annotations

import importlib.util
import marshal
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

from sanderling.errors import ConfigError

_PACKAGES = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py")
_PROGRAMS = {"runner.py": Path(__file__).with_name("runner.py"), "values.py": Path(__file__).parents[1] / "values.py"}
# colours for other languages, and lists of licences: most of the bytes, none of the use
_LEFT_OUT = ("pygments/lexers/", "pygments/formatters/", "pygments/styles/", "packaging/licenses/")
_KEPT = {
    *(f"pygments/lexers/{name}.py" for name in ("__init__", "_mapping", "diff", "python")),
    *(f"pygments/formatters/{name}.py" for name in ("__init__", "_mapping", "terminal")),
    *(f"pygments/styles/{name}.py" for name in ("__init__", "_mapping", "default")),
    "packaging/licenses/__init__.py",
}
_VISIBLE = """\
import os, sys
roots = [os.path.abspath(word[7:]) for word in sys.argv[1:] if word.startswith("--root=")] or [os.getcwd()]
words = [word for word in sys.argv[1:] if not word.startswith("--root=")]
sys.path[0] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "packages")
sys.path += roots
os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
os.environ["PYTHONPATH"] = os.pathsep.join(roots)
import pytest
sys.exit(pytest.main(["-p", "no:cacheprovider", "--import-mode=importlib", *words]))
"""


@cache
def grading_tools() -> Mapping[str, bytes]:
    """Return the files that a grading sandbox has at /tools.

    Raises:
        ConfigError: pytest isn't installed here.
    """
    return {**{name: path.read_bytes() for name, path in _PROGRAMS.items()}, **_packages()}


@cache
def agent_tools() -> Mapping[str, bytes]:
    """Return the files at /tools with which an agent runs visible tests.

    The command is `python3 /tools/run_tests.py [--root=DIR ...] [ARGUMENTS OF PYTEST]`.
    `--root` names a directory that tests import from; without it, it is the workspace itself.

    Raises:
        ConfigError: pytest isn't installed here.
    """
    return {"run_tests.py": _VISIBLE.encode(), **_packages()}


@cache
def _packages() -> Mapping[str, bytes]:
    return dict(piece for name in _PACKAGES for piece in _package(name))


def _package(name: str) -> Iterator[tuple[str, bytes]]:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ConfigError(
            f"the package {name!r} isn't installed, which hidden pytest suites need; run: pip install 'sanderling[testing]'"
        )
    file = Path(spec.origin)
    folder = file.parent if spec.submodule_search_locations is None else file.parent.parent
    for module in [file] if folder == file.parent else sorted(file.parent.rglob("*.py")):
        path = module.relative_to(folder).as_posix()
        if not path.startswith(_LEFT_OUT) or path in _KEPT:
            yield f"packages/{path}c", _bytecode(module, path)


def _bytecode(file: Path, path: str) -> bytes:
    """Return a module as Python loads it where there is no source: compiling all of them each time would cost a second."""
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    code = SourceFileLoader(name, str(file)).get_code(name)  # from its cache where that is fresh
    assert code is not None
    return importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(_placed(code, f"/tools/packages/{path}"))


def _placed(code: CodeType, path: str) -> CodeType:
    """Return code that says that it lies at `path`: where we are installed is nobody's business."""
    constants = tuple(_placed(part, path) if isinstance(part, CodeType) else part for part in code.co_consts)
    return code.replace(co_filename=path, co_consts=constants)
