"""Harbor task folders: read, written, and, where they are portable, turned into tasks for our sandboxes.

TASK/
  task.toml        see `harbor_config`
  instruction.md   what the agent reads
  environment/     Dockerfile and the files that it copies
  tests/           test.sh and what it needs; brought in after the agent is done
  solution/        solve.sh and what it needs; for the oracle only
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from sanderling.errors import TaskError
from sanderling.tasks.folder import read_tree, write_tree
from sanderling.tasks.formats.harbor_config import HarborConfig, config_text, parse_config

CONFIG, INSTRUCTION = "task.toml", "instruction.md"
TEST_SCRIPT, SOLVE_SCRIPT = "test.sh", "solve.sh"
_SECTION = "sanderling"  # of [metadata]: what our writer adds, so that our reader gets the same task back


@dataclass(frozen=True, slots=True, kw_only=True)
class HarborFolder:
    """One folder. Files are by relative POSIX path below environment/, tests/ and solution/."""

    name: str  # of the folder
    config: HarborConfig
    instruction: str
    environment: Mapping[str, bytes] = field(default_factory=dict)
    tests: Mapping[str, bytes] = field(default_factory=dict)
    solution: Mapping[str, bytes] = field(default_factory=dict)
    executable: frozenset[str] = frozenset()  # paths below the folder that may be run, such as "tests/test.sh"

    @property
    def ours(self) -> Mapping[str, object]:
        """What our own writer noted in [metadata.sanderling]; empty in a folder of somebody else."""
        section = self.config.metadata.get(_SECTION)
        return section if isinstance(section, Mapping) else {}


def is_harbor_folder(path: Path) -> bool:
    """Return whether a folder looks like a Harbor task: a task.toml beside a tests/ or steps/ folder."""
    return (path / CONFIG).is_file() and ((path / "tests").is_dir() or (path / "steps").is_dir())


def read_harbor(path: Path) -> HarborFolder:
    """Read one folder.

    Raises:
        TaskError: a part is missing or malformed, or it holds a link or a special file; names the file.
    """
    config = parse_config(_text(path / CONFIG), str(path / CONFIG))
    if config.steps:
        return HarborFolder(name=path.resolve().name, config=config, instruction="")
    parts = {name: _tree(path / name) for name in ("environment", "tests", "solution")}
    if TEST_SCRIPT not in parts["tests"] and "test.bat" not in parts["tests"]:
        raise TaskError(f"{path / 'tests' / TEST_SCRIPT} is missing; it is what grades the task")
    executable = {
        f"{part}/{name}" for part, files in parts.items() for name in files if os.access(path / part / name, os.X_OK)
    }
    return HarborFolder(
        name=path.resolve().name,
        config=config,
        instruction=_text(path / INSTRUCTION),
        executable=frozenset(executable),
        **parts,
    )


def write_harbor(path: Path, folder: HarborFolder) -> None:
    """Write one folder, whole or not at all.

    Raises:
        TaskError: something stands there already, a path leaves the folder, or it can't be written.
    """
    if path.exists():
        raise TaskError(f"{path} exists; remove it first, or give another place")
    draft = path.parent / f".{path.name}.{secrets.token_hex(4)}"
    try:
        draft.mkdir(parents=True)
        (draft / CONFIG).write_text(config_text(folder.config), "utf-8")
        (draft / INSTRUCTION).write_text(folder.instruction, "utf-8")
        for name in ("environment", "tests", "solution"):
            files: Mapping[str, bytes] = getattr(folder, name)
            if files:
                write_tree(draft / name, files)
        for name in folder.executable:
            (draft / name).chmod(0o755)
        draft.rename(path)
    except OSError as error:
        raise TaskError(f"{path} can't be written: {error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def find_harbor_folders(root: Path) -> list[Path]:
    """Return the task folders at or up to two levels below `root`, sorted by name.

    Raises:
        TaskError: there is none.
    """
    if is_harbor_folder(root):
        return [root]
    if not root.is_dir():
        raise TaskError(f"no directory {root}; expected a Harbor task folder, or a directory of them")
    found = {file.parent for pattern in ("*/task.toml", "*/*/task.toml") for file in root.glob(pattern)}
    places = sorted(place for place in found if is_harbor_folder(place) and not place.name.startswith("."))
    if not places:
        raise TaskError(f"no Harbor task folder (task.toml beside tests/) at or below {root}")
    return places


def relative_to(workdir: str, path: str) -> str | None:
    """Return an absolute path relative to `workdir`, "" for the directory itself, None where it lies outside."""
    place = PurePosixPath(path)
    if ".." in place.parts or not place.is_relative_to(workdir):
        return None
    relative = str(place.relative_to(workdir))
    return "" if relative == "." else relative


def _tree(path: Path) -> dict[str, bytes]:
    return read_tree(path) if path.is_dir() else {}


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        raise TaskError(f"{file} is missing; a Harbor task folder has {CONFIG}, {INSTRUCTION} and tests/") from None
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"{file} can't be read: {error}") from error
