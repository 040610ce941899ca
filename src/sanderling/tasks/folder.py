"""The native task folder: a bug-fixing task in a repository, as files that people can read.

    TASK/
      task.toml        id, source, editable paths, module roots, visible tests, limits, metadata
      instruction.md   what the agent reads
      base/            the workspace as the agent gets it: the bug in, hidden tests out
      hidden/          read by the verifier alone
        tests/         hidden test files at their places in the workspace
        expected.json  which tests decide, and what the verifier recorded of the right solution
        gold.patch     unified diff from base/ to the right solution

Reading and writing are functions between a folder and `TaskFolder`; a folder that was written reads back equal.
"""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from sanderling.errors import TaskError
from sanderling.tasks.patches import apply_patch
from sanderling.types import JsonValue, Limits, Task

SCHEMA_VERSION = 1
_KEYS = {"schema_version", "id", "editable", "modules", "visible_tests", "source", "limits", "metadata"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The code base that a task was made from."""

    name: str
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the hidden tests must show. `recording` is the verifier's own (see `verify.suite`); this layer keeps it as it is."""

    fail_to_pass: tuple[str, ...]  # pytest ids that fail on base/ and pass with the right solution
    pass_to_pass: tuple[str, ...] = ()  # ids that pass on both
    recording: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskHeader:
    """task.toml: what can be known of a task without reading its files."""

    id: str  # <code base>/<split>/<name>
    source: Source
    editable: tuple[str, ...]  # fnmatch patterns of workspace paths that a submission may change
    modules: tuple[str, ...] = (".",)  # directories of the workspace that tests import from
    visible_tests: tuple[str, ...] = ()  # command that the agent may run; empty: it has none
    limits: Limits = field(default_factory=Limits)
    metadata: Mapping[str, str] = field(default_factory=dict)  # family, file, line, ...: for reports

    @property
    def split(self) -> str:
        return self.id.split("/")[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFolder:
    """One task with its hidden part. Paths are relative POSIX paths in the workspace.

    Example::

        folder = TaskFolder(
            header=TaskHeader(id="toolz/train/take-1", source=Source(name="toolz"), editable=("toolz/*.py",)),
            instruction="`take` drops the last item. Fix it.",
            base={"toolz/itertoolz.py": b"..."},
            tests={"toolz/tests/test_itertoolz.py": b"..."},
            expected=Expected(fail_to_pass=("toolz/tests/test_itertoolz.py::test_take",)),
            gold_patch="--- a/toolz/itertoolz.py\\n...",
        )
    """

    header: TaskHeader
    instruction: str
    base: Mapping[str, bytes]
    tests: Mapping[str, bytes]
    expected: Expected
    gold_patch: str

    def task(self) -> Task:
        """Return what the agent gets: nothing hidden is in it."""
        header = self.header
        return Task(
            id=header.id,
            prompt=self.instruction,
            base=self.base,
            editable=header.editable,
            limits=header.limits,
            metadata={"split": header.split, "source": header.source.name, **header.metadata},
        )

    def gold(self) -> dict[str, bytes]:
        """Return the workspace with the right solution.

        Raises:
            TaskError: gold.patch doesn't apply to base/.
        """
        return apply_patch(self.base, self.gold_patch)


def read_header(path: Path) -> TaskHeader:
    """Read TASK/task.toml.

    Raises:
        TaskError: it is missing or malformed; names the file, the key and what was expected.
    """
    file = path / "task.toml"
    try:
        data = tomllib.loads(_text(file))
    except tomllib.TOMLDecodeError as error:
        raise TaskError(f"{file} is not TOML: {error}") from error
    version = data.get("schema_version")
    if version != SCHEMA_VERSION:
        raise TaskError(f"{file}: schema_version is {version!r}; this version of Sanderling reads {SCHEMA_VERSION}")
    if unknown := sorted(data.keys() - _KEYS):
        raise TaskError(f"{file}: unknown key {unknown[0]!r}; known: {', '.join(sorted(_KEYS))}")
    source = _table(file, data, "source", {"name": str, "version": str})
    header = TaskHeader(
        id=_of_type(file, data, "id", str, None),
        source=Source(name=source.get("name", ""), version=source.get("version", "")),
        editable=_strings(file, data, "editable"),
        modules=_strings(file, data, "modules", (".",)),
        visible_tests=_strings(file, data, "visible_tests", ()),
        limits=_limits(file, data),
        metadata={key: str(value) for key, value in _of_type(file, data, "metadata", dict, {}).items()},
    )
    check_header(header, str(file))
    return header


def check_header(header: TaskHeader, where: str = "task") -> None:
    """Raise TaskError where a header contradicts itself."""
    parts = header.id.split("/")
    if len(parts) < 3 or not all(parts) or ".." in parts:
        raise TaskError(
            f"{where}: id is {header.id!r}; expected <code base>/<split>/<name>, the split being its 2nd part"
        )
    if not header.source.name:
        raise TaskError(f"{where}: source.name is missing; expected the name of the code base")
    if not header.editable:
        raise TaskError(f"{where}: editable is empty; at least one path must be open to change")
    for root in header.modules:
        if root.startswith("/") or ".." in root.split("/"):
            raise TaskError(
                f"{where}: modules holds {root!r}; expected directories inside the workspace, such as 'src'"
            )


def read_task_folder(path: Path) -> TaskFolder:
    """Read one task folder.

    Raises:
        TaskError: a part is missing or malformed, or the tree holds a link or a special file.
    """
    path = Path(path)
    folder = TaskFolder(
        header=read_header(path),
        instruction=_text(path / "instruction.md"),
        base=read_tree(path / "base"),
        tests=read_tree(path / "hidden" / "tests"),
        expected=_read_expected(path / "hidden" / "expected.json"),
        gold_patch=_text(path / "hidden" / "gold.patch"),
    )
    check_task_folder(folder, str(path))
    return folder


def check_task_folder(folder: TaskFolder, where: str = "task") -> None:
    """Raise TaskError where the parts of a task contradict each other. Says nothing about what its tests do."""
    check_header(folder.header, where)
    if not folder.expected.fail_to_pass:
        raise TaskError(f"{where}: fail_to_pass is empty; a task needs a hidden test that fails on base/")
    both = [*folder.expected.fail_to_pass, *folder.expected.pass_to_pass]
    if len(set(both)) < len(both):
        raise TaskError(f"{where}: fail_to_pass and pass_to_pass name a test twice; every id stands once")
    for name in both:
        if name.partition("::")[0] not in folder.tests:
            raise TaskError(f"{where}: expected.json names {name!r}, whose file isn't among the hidden tests")
    shown = [path for path, content in folder.tests.items() if folder.base.get(path) == content]
    if shown:
        raise TaskError(f"{where}: hidden test {shown[0]!r} stands unchanged in base/, where the agent reads it")
    if folder.gold() == dict(folder.base):
        raise TaskError(f"{where}: gold.patch changes nothing; expected the diff from base/ to the right solution")


def write_task_folder(path: Path, folder: TaskFolder) -> None:
    """Write a task folder, whole or not at all: it appears under its name when everything is written.

    Raises:
        TaskError: the task contradicts itself, or `path` exists.
    """
    path = Path(path)
    check_task_folder(folder, str(path))
    if path.exists():
        raise TaskError(f"{path} exists; remove it first, or give another name")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.parent / f".{path.name}.{secrets.token_hex(4)}"
    try:
        draft.mkdir()
        (draft / "task.toml").write_bytes(tomli_w.dumps(_header_data(folder.header)).encode())
        (draft / "instruction.md").write_bytes(folder.instruction.encode())
        write_tree(draft / "base", folder.base)
        write_tree(draft / "hidden" / "tests", folder.tests)
        (draft / "hidden" / "expected.json").write_bytes(json.dumps(_expected_data(folder.expected), indent=1).encode())
        (draft / "hidden" / "gold.patch").write_bytes(folder.gold_patch.encode())
        draft.rename(path)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def read_tree(root: Path) -> dict[str, bytes]:
    """Return the files below a directory by relative POSIX path, sorted.

    Raises:
        TaskError: no such directory, or it holds something that isn't a plain file with a UTF-8 name.
    """
    if not root.is_dir() or root.is_symlink():
        raise TaskError(f"{root} is missing or no directory")
    files: dict[str, bytes] = {}
    for folder, names, plain in os.walk(root):
        for name in [*names, *plain]:
            entry = Path(folder, name)
            shown = entry.relative_to(root).as_posix()
            if entry.is_symlink() or not (entry.is_dir() or entry.is_file()):
                raise TaskError(f"{root}: {shown!r} is a link or a special file; a task holds plain files only")
            if shown != shown.encode(errors="replace").decode():
                raise TaskError(f"{root}: the name {shown.encode(errors='backslashreplace')!r} isn't UTF-8")
            if entry.is_file():
                files[shown] = entry.read_bytes()
    return dict(sorted(files.items()))


def write_tree(root: Path, files: Mapping[str, bytes]) -> None:
    """Write files below a directory, which is made if it is missing.

    Raises:
        TaskError: a path leaves the directory.
    """
    root.mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        if path.startswith("/") or not set(path.split("/")).isdisjoint({"", ".", ".."}):
            raise TaskError(f"{path!r} isn't a relative path of a file; expected one such as 'pkg/a.py'")
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def _header_data(header: TaskHeader) -> dict[str, Any]:
    defaults = dataclasses.asdict(Limits())
    limits = {key: value for key, value in dataclasses.asdict(header.limits).items() if value != defaults[key]}
    return {
        "schema_version": SCHEMA_VERSION,
        "id": header.id,
        "editable": list(header.editable),
        "modules": list(header.modules),
        "visible_tests": list(header.visible_tests),
        "source": dataclasses.asdict(header.source),
        "limits": limits,
        "metadata": dict(header.metadata),
    }


def _expected_data(expected: Expected) -> dict[str, JsonValue]:
    return {
        "schema_version": SCHEMA_VERSION,
        "fail_to_pass": list(expected.fail_to_pass),
        "pass_to_pass": list(expected.pass_to_pass),
        "recording": dict(expected.recording),
    }


def _read_expected(file: Path) -> Expected:
    try:
        data = json.loads(_text(file))
    except ValueError as error:
        raise TaskError(f"{file} is not JSON: {error}") from error
    if not isinstance(data, dict) or data.get("schema_version") != SCHEMA_VERSION:
        raise TaskError(f"{file}: expected an object with schema_version {SCHEMA_VERSION}")
    return Expected(
        fail_to_pass=_strings(file, data, "fail_to_pass"),
        pass_to_pass=_strings(file, data, "pass_to_pass", ()),
        recording=_of_type(file, data, "recording", dict, {}),
    )


def _limits(file: Path, data: Mapping[str, Any]) -> Limits:
    known = {f.name: int if isinstance(f.default, int) else float for f in dataclasses.fields(Limits)}
    given = _table(file, data, "limits", known)
    for key, value in given.items():
        if value <= 0:
            raise TaskError(f"{file}: limits.{key} is {value}; expected a positive number")
    return Limits(**given)


def _table(file: Path, data: Mapping[str, Any], key: str, known: Mapping[str, type]) -> dict[str, Any]:
    table = _of_type(file, data, key, dict, {})
    found = {}
    for name, value in table.items():
        if name not in known:
            raise TaskError(f"{file}: unknown key '{key}.{name}'; known: {', '.join(known)}")
        kind = known[name]
        accepted = (int, float) if kind is float else kind
        if not isinstance(value, accepted) or isinstance(value, bool):
            raise TaskError(f"{file}: {key}.{name} is {value!r}; expected {kind.__name__}")
        found[name] = kind(value)
    return found


def _of_type(file: Path, data: Mapping[str, Any], key: str, kind: type, default: Any) -> Any:
    value = data.get(key, default)
    if not isinstance(value, kind):
        shown = "missing" if value is None else repr(value)
        raise TaskError(f"{file}: {key} is {shown}; expected {kind.__name__}")
    return value


def _strings(file: Path, data: Mapping[str, Any], key: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
    value = data.get(key, default)
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) and item for item in value):
        shown = "missing" if value is None else repr(value)
        raise TaskError(f"{file}: {key} is {shown}; expected a list of non-empty strings")
    return tuple(value)


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode()  # not read_text: a carriage return is a part of a patch's line
    except FileNotFoundError:
        raise TaskError(
            f"{file} is missing; expected a task folder with task.toml, instruction.md, base/, hidden/"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"{file} can't be read: {error}") from error
