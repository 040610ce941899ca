"""SWE-bench-family rows in (SWE-bench, SWE-smith and others of that shape), predictions out.

A row names a repository and a commit; with a local clone of it, the row becomes a native task folder: the files of the commit,
the test files as the row's test patch leaves them as hidden tests, its two lists of test ids, and its patch as the gold one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, field_validator

from sanderling.errors import TaskError
from sanderling.tasks.folder import Expected, Source, TaskFolder, TaskHeader
from sanderling.tasks.formats.git_trees import read_commit
from sanderling.tasks.patches import apply_patch, make_patch
from sanderling.types import Limits, Submission, Task

LIMITS = Limits(memory_mb=1024, disk_mb=256, processes=64, command_s=60.0, command_cpu_s=60.0)


class SweBenchRow(BaseModel):
    """One instance. Fields that are not named here are kept but not used."""

    model_config = ConfigDict(extra="allow", frozen=True, populate_by_name=True)

    repo: str  # owner/name
    instance_id: str = Field(min_length=1)
    base_commit: str = Field(min_length=1)
    problem_statement: str
    patch: str
    test_patch: str = ""
    hints_text: str | None = ""
    version: str | None = ""
    fail_to_pass: tuple[str, ...] = Field(validation_alias=AliasChoices("FAIL_TO_PASS", "fail_to_pass"))
    pass_to_pass: tuple[str, ...] = Field(default=(), validation_alias=AliasChoices("PASS_TO_PASS", "pass_to_pass"))

    @field_validator("fail_to_pass", "pass_to_pass", mode="before")
    @classmethod
    def _list_or_text(cls, value: Any) -> Any:
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError as error:
                raise ValueError(f"expected a list, or a list as JSON text: {error}") from error
        return [] if value is None else value


def read_instances(path: Path) -> list[SweBenchRow]:
    """Read a JSON Lines file, or a JSON array, of instances.

    Raises:
        TaskError: it can't be read, an entry is no instance, or two have one id; names the entry and the field.
    """
    try:
        text = Path(path).read_text("utf-8")
        entries = (
            json.loads(text)
            if text.lstrip().startswith("[")
            else [json.loads(line) for line in text.splitlines() if line.strip()]
        )
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"{path} can't be read: {error}; expected SWE-bench instances as JSON Lines") from error
    except ValueError as error:
        raise TaskError(f"{path} is no JSON Lines file: {error}") from error
    rows: dict[str, SweBenchRow] = {}
    for number, entry in enumerate(entries, 1):
        try:
            row = SweBenchRow.model_validate(entry)
        except ValidationError as error:
            detail = error.errors()[0]
            field = ".".join(map(str, detail["loc"])) or "the entry"
            raise TaskError(f"{path}, entry {number}: {field}: {detail['msg'].removeprefix('Value error, ')}") from None
        if row.instance_id in rows:
            raise TaskError(f"{path}, entry {number}: a second instance {row.instance_id!r}")
        rows[row.instance_id] = row
    if not rows:
        raise TaskError(f"{path} holds no instance")
    return list(rows.values())


def find_repository(root: Path, repo: str) -> Path:
    """Return the local clone of `owner/name` below `root`: owner__name, owner/name or name, bare or not.

    Raises:
        TaskError: there is none.
    """
    owner, _, name = repo.partition("/")
    tried = [
        place for stem in (f"{owner}__{name}", f"{owner}/{name}", name) for place in (root / stem, root / f"{stem}.git")
    ]
    for place in tried:
        if (place / ".git").exists() or (place / "objects").is_dir():
            return place
    raise TaskError(f"no clone of {repo} below {root}; expected one of {', '.join(p.name for p in tried[:2])}, {name}")


def task_folder_of(row: SweBenchRow, repository: Path, split: str = "test") -> TaskFolder:
    """Return an instance as a native task folder. What the tests show isn't recorded yet.

    Raises:
        TaskError: a patch doesn't apply, no test is hidden, or an id is of a file that the test patch doesn't touch.
    """
    where = f"instance {row.instance_id}"
    base, left_out = read_commit(repository, row.base_commit)
    try:
        after = apply_patch(base, row.test_patch)
        gold = apply_patch(base, row.patch)
    except TaskError as error:
        raise TaskError(f"{where}: {error}") from error
    tests = {path: content for path, content in after.items() if base.get(path) != content}
    if not row.fail_to_pass or not tests:
        raise TaskError(
            f"{where} has no {'hidden test' if row.fail_to_pass else 'FAIL_TO_PASS'}, so that nothing decides"
        )
    foreign = [name for name in (*row.fail_to_pass, *row.pass_to_pass) if name.partition("::")[0] not in tests]
    if foreign:
        raise TaskError(f"{where}: test {foreign[0]!r} isn't in a file that its test patch adds or changes")
    gold_patch = make_patch(base, {path: content for path, content in gold.items() if path not in tests})
    about = {"instance_id": row.instance_id, "repo": row.repo, "format": "swebench"}
    return TaskFolder(
        header=TaskHeader(
            id=f"{row.repo.rpartition('/')[2]}/{split}/{row.instance_id}",
            source=Source(name=row.repo, version=row.base_commit),
            editable=_editable(base, gold),
            modules=(".", "src") if any(path.startswith("src/") for path in base) else (".",),
            limits=LIMITS,
            metadata={**about, **({"left_out": f"{len(left_out)} links or submodules"} if left_out else {})},
        ),
        instruction=row.problem_statement.rstrip("\n") + "\n",
        base=base,
        tests=tests,
        expected=Expected(fail_to_pass=_once(row.fail_to_pass), pass_to_pass=_once(row.pass_to_pass)),
        gold_patch=gold_patch,
    )


def resolve_test_ids(wanted: Iterable[str], existing: Sequence[str]) -> tuple[str, ...]:
    """Return full test ids for ids of a row, some of which were cut off inside their parameters.

    An id that exists stands for itself. One that is cut (a `[` without its `]` at the end) stands for every id that it begins.

    Raises:
        TaskError: an id stands for none.
    """
    known = dict.fromkeys(existing)
    found: dict[str, None] = {}
    for name in wanted:
        cut = "[" in name and not name.endswith("]")
        matches = [name] if name in known else [other for other in known if cut and other.startswith(name)]
        if not matches:
            raise TaskError(f"test id {name!r} stands for no test among {len(known)}")
        found.update(dict.fromkeys(matches))
    return tuple(found)


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _editable(base: Mapping[str, bytes], gold: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return patterns of what may change: Python files, and files of the kinds that the right solution changes."""
    changed = [path for path in gold.keys() | base.keys() if base.get(path) != gold.get(path)]
    kinds = {f"*{PurePosixPath(path).suffix}" for path in changed if PurePosixPath(path).suffix}
    return tuple(sorted(kinds | {"*.py"}))


def instance_row(folder: TaskFolder, repo: str, base_commit: str) -> dict[str, Any]:
    """Return a native task folder as a row; the ids are JSON text, as the published data sets have them."""
    tests = {**folder.base, **folder.tests}
    return {
        "repo": repo,
        "instance_id": folder.header.metadata.get("instance_id") or folder.header.id.replace("/", "__"),
        "base_commit": base_commit,
        "patch": folder.gold_patch,
        "test_patch": make_patch(folder.base, tests),
        "problem_statement": folder.instruction,
        "hints_text": "",
        "created_at": "",
        "version": folder.header.source.version,
        "FAIL_TO_PASS": json.dumps(list(folder.expected.fail_to_pass)),
        "PASS_TO_PASS": json.dumps(list(folder.expected.pass_to_pass)),
        "environment_setup_commit": base_commit,
    }


def model_patch(task: Task, submission: Submission) -> str:
    """Return a submission as the unified diff against the task's files; empty where nothing was changed.

    Raises:
        TaskError: a changed file isn't UTF-8 text.
    """
    return make_patch(task.base, {**task.base, **submission.files})


def prediction(task: Task, patch: str, model: str) -> dict[str, str]:
    """Return one line of a predictions file, as the evaluation tools of SWE-bench read it."""
    instance = task.metadata.get("instance_id") or task.id
    return {"instance_id": instance, "model_name_or_path": model, "model_patch": patch}


def write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> int:
    """Write a JSON Lines file, whole or not at all; return the number of lines.

    Raises:
        TaskError: it can't be written.
    """
    lines = [json.dumps(dict(record)) for record in records]
    draft = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        draft.replace(path)
    except OSError as error:
        raise TaskError(f"{path} can't be written: {error}") from error
    return len(lines)
