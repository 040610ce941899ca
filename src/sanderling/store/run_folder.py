"""The folder of one run: everything that was generated, graded, dropped or failed is in it, with its reason.

    runs/<date>-<name>-<id>/
      config.toml  environment.json  metrics.jsonl  events.jsonl    appended line by line, each line forced to disk
      rollouts/step=000012/{turns,trajectories,verdicts,findings}.parquet    one folder per step, whole or absent
      rollouts/eval=before/...                                               the same for evaluations
      episodes/000012.01.jsonl    what ran since step 12, as it ended; see `sanderling.store.episode_log`
      checkpoints/  report.html
      aside/01/...                                                  what a resume replaced; nothing is deleted

One process writes a run at a time: the folder is locked until `close()` or until the process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike

from sanderling.errors import RunFolderError
from sanderling.store.failures import failed
from sanderling.store.jsonl import append_line, cut_torn_line, read_lines
from sanderling.store.metrics import check_declared
from sanderling.store.reader import EVALUATION_FOLDER, STEP_FOLDER, RunReader
from sanderling.store.schema import STEP_KEY
from sanderling.store.tables import tables
from sanderling.types import Group, StepReport, Task

LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9=_.-]*")


class RunFolder:
    """A run folder that this process may write. Use `create` for a new run and `at` for a given path; `close` unlocks."""

    def __init__(self, path: Path, *, resumed: bool, lock: TextIO) -> None:
        """Called by `create` and `at`, which set the folder up and lock it."""
        self.path = path
        self.resumed = resumed  # the folder held a run before
        self._lock = lock

    @classmethod
    def create(cls, root: Path, name: str, config_toml: str, environment: Mapping[str, Any]) -> RunFolder:
        """Make `root/<date>-<name>-<id>` and return it, locked.

        Args:
            root: folder of all runs, made when missing.
            name: short name of the run; anything but letters, digits, `.`, `_` and `-` becomes `-`.
            config_toml: the resolved configuration.
            environment: versions, seeds, machine; written to environment.json.

        Raises:
            RunFolderError: the folder can't be made.
        """
        short = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "run"
        now = datetime.now(UTC)
        while (path := root / f"{now:%Y-%m-%d}-{short}-{secrets.token_hex(2)}").exists():
            pass
        return cls.at(path, config_toml, environment)

    @classmethod
    def at(cls, path: Path, config_toml: str | None = None, environment: Mapping[str, Any] | None = None) -> RunFolder:
        """Return the run at `path`, locked: an existing one is opened to go on, an absent or empty folder becomes one.

        Where an existing run has another configuration or environment, the older file is kept beside the new one and
        the change becomes an event; None keeps what is there.

        Raises:
            RunFolderError: the folder holds something else, another process writes it, there is no run and no
                `config_toml` to start one, or it can't be written.
        """
        existed = (path / "config.toml").is_file()
        if not existed:
            _check_free(path, config_toml)
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = _locked(path)
            run = cls(path, resumed=existed, lock=lock)
            for name in ("checkpoints", "rollouts"):
                (path / name).mkdir(exist_ok=True)
        except OSError as error:
            raise error if isinstance(error, RunFolderError) else failed("set up", path, error) from error
        run._repair()
        if environment is not None:
            run._keep_file("environment.json", json.dumps(dict(environment), indent=2, default=str) + "\n")
        if config_toml is not None:
            run._keep_file("config.toml", config_toml)  # last: its presence makes the folder a run
        run.append_event("resumed" if existed else "created", pid=os.getpid())
        return run

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def episodes(self) -> Path:
        return self.path / "episodes"

    def reader(self) -> RunReader:
        """Return a reader of this run."""
        return RunReader(self.path)

    def append_event(self, kind: str, **fields: Any) -> None:
        """Append one line to events.jsonl: at (UTC), kind, and `fields`. It is on disk when this returns.

        Raises:
            RunFolderError: it can't be written.
        """
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        append_line(self.path / "events.jsonl", {"at": at, "kind": kind} | fields)

    def append_metrics(self, report: StepReport) -> None:
        """Append one line to metrics.jsonl. It is on disk when this returns.

        Raises:
            ValueError: a name isn't declared (see `sanderling.store.metrics`).
            RunFolderError: it can't be written.
        """
        check_declared(report)
        record = {
            "step": report.step,
            "policy_version": report.policy_version,
            "metrics": report.metrics,
            "timing": report.timing,
            "counts": report.counts,
        }
        append_line(self.path / "metrics.jsonl", record)

    def write_rollouts(
        self,
        step: int,
        groups: Sequence[Group],
        *,
        tasks: Mapping[str, Task] | None = None,
        advantages: Mapping[str, ArrayLike] | None = None,
    ) -> Path:
        """Write every group of a step, dropped members too; the folder appears whole or not at all.

        Args:
            step: optimiser step that the rollouts belong to.
            groups: all groups of the step, with lost attempts that were retried.
            tasks: by task id; adds the task's text and labels (family, topic) for reports.
            advantages: by trajectory id, (turns,) mean advantage of each turn's action tokens.

        Raises:
            RunFolderError: the step is stored already, or the folder can't be written.
        """
        folder = self.path / "rollouts" / f"step={step:06d}"
        if folder.exists():
            raise RunFolderError(
                f"{folder} exists: the rollouts of step {step} are stored already; a resumed run must call "
                "truncate_after(<step of the checkpoint>) first"
            )
        self._write_folder(folder, tables(groups, step=step, tasks=tasks, advantages=advantages))
        return folder

    def write_evaluation(
        self, label: str, groups: Sequence[Group], *, step: int | None = None, tasks: Mapping[str, Task] | None = None
    ) -> Path:
        """Write the rollouts of an evaluation, such as "before", "after" or "step=000020".

        An evaluation of the same label is moved aside first. `step` is the number of optimiser steps done when it was
        taken: give it, so that a resume and the learning curve know where it belongs.

        Raises:
            RunFolderError: the label is no plain name, or the folder can't be written.
        """
        if not LABEL.fullmatch(label):
            raise RunFolderError(f"label {label!r} can't name a folder; use letters, digits and = _ . -")
        folder = self.path / "rollouts" / f"eval={label}"
        if folder.exists():
            self._move_aside([folder], reason=f"evaluation {label} was taken again")
        self._write_folder(folder, tables(groups, step=step, tasks=tasks))
        return folder

    def truncate_after(self, step: int) -> tuple[str, ...]:
        """Move everything later than `step` to a numbered folder under aside/ and return what was moved.

        A resumed run calls it with the step of its checkpoint: step reports and rollouts after it belong to work that
        will be done again. Evaluations taken later, and "after", move too. An event records it.

        Raises:
            RunFolderError: something can't be moved.
        """
        late = [entry for entry in sorted((self.path / "rollouts").iterdir()) if _is_later(entry, step)]
        metrics = self.path / "metrics.jsonl"
        records = read_lines(metrics)
        keep = [record for record in records if record.get("step", 0) <= step]
        if not late and len(keep) == len(records):
            return ()
        aside = self._move_aside(late, reason=f"resumed after step {step}")
        moved = [f"rollouts/{entry.name}" for entry in late]
        if len(keep) < len(records):
            self._replace(aside / "metrics.jsonl", _lines(record for record in records if record.get("step", 0) > step))
            self._replace(metrics, _lines(keep))
            moved.append(f"metrics.jsonl: {len(records) - len(keep)} lines")
        self.append_event("truncated", after_step=step, moved=moved, to=str(aside.relative_to(self.path)))
        return tuple(moved)

    def close(self) -> None:
        """Unlock the folder. May be called twice."""
        self._lock.close()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _repair(self) -> None:
        """Clear up what a crash left: a torn line and half-written folders."""
        for name in ("metrics.jsonl", "events.jsonl"):
            if (torn := cut_torn_line(self.path / name)) is not None:
                self.append_event("torn_line", file=name, text=torn)
        for entry in (self.path / "rollouts").glob(".*.part"):
            shutil.rmtree(entry, ignore_errors=True)
            self.append_event("partial_folder_removed", folder=entry.name)

    def _keep_file(self, name: str, text: str) -> None:
        file = self.path / name
        if file.exists():
            if file.read_text("utf-8") == text:
                return
            aside = self._move_aside([], reason=f"{name} changed")
            shutil.copyfile(file, aside / name)
            self.append_event("file_changed", file=name, older=str((aside / name).relative_to(self.path)))
        self._replace(file, text)

    def _replace(self, file: Path, text: str) -> None:
        part = file.with_name(f".{file.name}.part")
        try:
            part.write_text(text, "utf-8")
            _sync(part)
            part.replace(file)
        except OSError as error:
            raise failed("write", file, error) from error

    def _write_folder(self, folder: Path, content: Mapping[str, pa.Table]) -> None:
        part = folder.with_name(f".{folder.name}.part")
        try:
            part.mkdir(parents=True)
            for name, table in content.items():
                file = part / f"{name}.parquet"
                pq.write_table(table, file, compression="zstd", compression_level=1, write_statistics=False)
                _sync(file)
            part.rename(folder)
            _sync(folder.parent)
        except OSError as error:
            shutil.rmtree(part, ignore_errors=True)
            raise failed("write", folder, error) from error

    def _move_aside(self, entries: Sequence[Path], reason: str) -> Path:
        root = self.path / "aside"
        try:
            root.mkdir(exist_ok=True)
            target = root / f"{1 + max((int(e.name) for e in root.iterdir() if e.name.isdigit()), default=0):02d}"
            target.mkdir()
            for entry in entries:
                place = target / entry.relative_to(self.path)
                place.parent.mkdir(parents=True, exist_ok=True)
                entry.rename(place)
        except OSError as error:
            raise failed("move aside", root, error) from error
        self.append_event("moved_aside", entries=[entry.name for entry in entries], to=target.name, reason=reason)
        return target


def _check_free(path: Path, config_toml: str | None) -> None:
    if config_toml is None:
        raise RunFolderError(f"no run at {path}: there is no config.toml; give the folder of an existing run")
    if path.exists() and not path.is_dir():
        raise RunFolderError(f"{path} is a file, a folder was expected; give another path")
    try:
        others = [entry.name for entry in path.iterdir() if not entry.name.startswith(".")] if path.is_dir() else []
    except OSError as error:
        raise failed("look into", path, error) from error
    if others and not set(others) <= {"checkpoints", "rollouts", "environment.json", "events.jsonl"}:
        raise RunFolderError(
            f"{path} holds other things ({', '.join(sorted(others)[:5])}) and no run; give a new or an empty folder"
        )


def _locked(path: Path) -> TextIO:
    handle = (path / ".lock").open("a", encoding="utf-8")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.close()
        holder = (path / ".lock").read_text("utf-8").strip() or "unknown"
        raise RunFolderError(
            f"{path} is being written by another process (pid {holder}); wait for it, end it, or give another folder"
        ) from None
    handle.truncate(0)
    handle.write(str(os.getpid()))
    handle.flush()
    return handle


def _is_later(entry: Path, step: int) -> bool:
    if match := STEP_FOLDER.fullmatch(entry.name):
        return int(match[1]) > step
    if match := EVALUATION_FOLDER.fullmatch(entry.name):
        last = match[1].split("-")[0] == "after"  # of the end of the run, which is now to come again
        try:
            taken = (pq.read_schema(entry / "trajectories.parquet").metadata or {}).get(STEP_KEY)
        except (OSError, pa.ArrowInvalid):
            return last
        return last if taken is None else int(taken) > step or (last and int(taken) >= step)
    return False


def _lines(records: Any) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def _sync(path: Path) -> None:
    """Force a file or a folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
