"""The write-ahead log of episodes: what was submitted and how it ended, on disk before anything is trained on it.

    <run>/episodes/000012.03.jsonl     written by the run's third process between the end of step 12 and that of step 13

The first line of a file says where the run stood; each further one is an attempt that started, one that ended (with its
whole record), one that was taken over from an earlier process, or a result that was refused. Files are appended to by the
process that made them only, so a torn last line is where that process was killed. They are removed once no kept checkpoint
could need them.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sanderling.errors import RunFolderError
from sanderling.store.failures import failed
from sanderling.store.member_records import member_from_json, member_to_json
from sanderling.types import Member

FILE = re.compile(r"(\d{6,})\.(\d{2,})\.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a run stands between two steps."""

    step: int  # optimiser steps done
    weights: Mapping[int, str]  # fingerprint by policy version, of those that untrained tokens may come from
    accounts: Mapping[str, int]  # `Ledger.snapshot()`
    reported: Mapping[str, int]  # the accounts to which the reports up to the step add up; other after a resume
    ahead: Mapping[
        str, str
    ]  # attempts whose group isn't trained yet: running, graded, ungraded or stored, by trajectory id


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """An attempt that ended in an earlier process of the run."""

    process: int
    verdict: str  # graded or ungraded
    weights: Mapping[int, str]  # fingerprint of each policy version that sampled a token of it; "": not known
    file: Path
    offset: int
    length: int

    def members(self) -> tuple[Member, ...]:
        """Read the record back.

        Raises:
            RunFolderError: it can't be read any more.
        """
        try:
            with self.file.open("rb") as stream:
                stream.seek(self.offset)
                record = json.loads(stream.read(self.length))
            return tuple(member_from_json(member) for member in record["members"])
        except OSError as error:
            raise failed("read", self.file, error) from error
        except (KeyError, TypeError, ValueError) as error:
            raise RunFolderError(
                f"the record at byte {self.offset} of {self.file} is damaged: {error!r}; remove that line and resume"
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What earlier processes of the run left in the log."""

    processes: int  # number of the last one; 0: there was none
    standings: tuple[Standing, ...]  # at the step from which the run goes on, as each process that passed it saw it
    ended: Mapping[str, Sequence[Logged]]  # by trajectory id, oldest first
    lost: tuple[str, ...]  # attempts that were running when the last process ended
    damaged: tuple[str, ...]  # places that can't be read, other than a torn last line


class EpisodeLog:
    """The log as one process of the run writes it."""

    def __init__(self, folder: Path, *, process: int, behind: int) -> None:
        """`behind` is how many updates older than the newest weights a token may be (max_staleness).

        Raises:
            RunFolderError: the folder can't be made.
        """
        self.folder = folder
        self.process = process
        self.behind = behind
        self._file = -1
        self._path = folder
        self._written = self._synced = 0  # lines
        self._unsynced: list[int] = []
        self._syncing: asyncio.Future[None] | None = None
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise failed("make", folder, error) from error

    def begin(self, standing: Standing) -> None:
        """Begin the file of what follows a step."""
        self._path = self.folder / f"{standing.step:06d}.{self.process:02d}.jsonl"
        try:
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise failed("make", self._path, error) from error
        self._unsynced.append(self._file)
        self._append(
            {
                "kind": "standing",
                "step": standing.step,
                "weights": {str(version): name for version, name in standing.weights.items()},
                "accounts": dict(standing.accounts),
                "reported": dict(standing.reported),
                "ahead": dict(standing.ahead),
            }
        )

    def start(self, name: str) -> None:
        """Log that an attempt is about to start."""
        self._append({"kind": "start", "id": name})

    def end(self, name: str, members: Sequence[Member], weights: Mapping[int, str]) -> None:
        """Log how an attempt ended: its rows, the root first, and the weights that sampled them."""
        named = {str(version): fingerprint for version, fingerprint in weights.items()}
        self._append(
            {"kind": "end", "id": name, "weights": named, "members": [member_to_json(member) for member in members]}
        )

    def recalled(self, name: str) -> None:
        """Log that the record of an earlier process is taken over; it stays where it is."""
        self._append({"kind": "recalled", "id": name})

    def refuse(self, name: str, reason: str) -> None:
        """Log that a result was not taken."""
        self._append({"kind": "refused", "id": name, "reason": reason})

    async def durable(self) -> None:
        """Wait until every line written so far is on disk. Whoever waits at the same time shares one flush.

        Raises:
            RunFolderError: the disk fails.
        """
        wanted = self._written
        while self._synced < wanted:
            if self._syncing is None or self._syncing.done():
                self._syncing = asyncio.ensure_future(self._flush())
            await asyncio.shield(self._syncing)

    def prune(self, oldest: int) -> None:
        """Remove the files that a resume from step `oldest` or a later one does not read."""
        for file, step, _ in files(self.folder):
            if step < oldest - self.behind - 1:
                file.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file. May be called twice."""
        for descriptor in {*self._unsynced, self._file} - {-1}:
            os.close(descriptor)
        self._unsynced, self._file = [], -1

    def _append(self, record: Mapping[str, Any]) -> None:
        line = (json.dumps(record, separators=(",", ":")) + "\n").encode("ascii")
        try:
            while line:
                line = line[os.write(self._file, line) :]
        except OSError as error:
            raise failed("append to", self._path, error) from error
        self._written += 1

    async def _flush(self) -> None:
        written, descriptors = self._written, list(self._unsynced)
        try:
            await asyncio.to_thread(_sync, self.folder, descriptors)
        except OSError as error:
            raise failed("force to disk", self._path, error) from error
        for descriptor in descriptors:
            if descriptor != self._file and descriptor in self._unsynced:
                os.close(descriptor)
                self._unsynced.remove(descriptor)
        self._synced = written


def files(folder: Path) -> list[tuple[Path, int, int]]:
    """Return the files of a log as (path, step, process), oldest process first."""
    matches = [(entry, FILE.fullmatch(entry.name)) for entry in (folder.iterdir() if folder.is_dir() else ())]
    found = [(entry, int(match[1]), int(match[2])) for entry, match in matches if match]
    return sorted(found, key=lambda item: (item[2], item[1]))


def lines(file: Path) -> Iterator[tuple[int, int, dict[str, Any] | None]]:
    """Yield (offset, length, record) of each whole line; the record is None where it is damaged.

    A last line without its end is left out: the process was killed while it wrote it.

    Raises:
        RunFolderError: the file can't be read.
    """
    offset = 0
    try:
        with file.open("rb") as stream:
            for line in stream:
                if not line.endswith(b"\n"):
                    return
                yield offset, len(line), _record(line)
                offset += len(line)
    except OSError as error:
        raise failed("read", file, error) from error


def find(folder: Path, step: int, behind: int) -> Found:
    """Read what earlier processes logged that a run which goes on after `step` can use. Changes nothing.

    Raises:
        RunFolderError: a file can't be read.
    """
    standings: list[Standing] = []
    ended: dict[str, list[Logged]] = {}
    running: dict[str, int] = {}
    damaged: list[str] = []
    processes = 0
    for file, began, process in files(folder):
        processes = max(processes, process)
        if began < step - behind - 1:
            continue
        for offset, length, record in lines(file):
            match record:
                case {"kind": "standing"} if began == step:
                    standings.append(_standing(record))
                case {"kind": "start", "id": name}:
                    running[name] = process
                case {"kind": "end", "id": name, "weights": weights, "members": [{"verdict": verdict}, *_]}:
                    running.pop(name, None)
                    logged = Logged(
                        process=process,
                        verdict=next(iter(verdict)),
                        weights={int(version): fingerprint for version, fingerprint in weights.items()},
                        file=file,
                        offset=offset,
                        length=length,
                    )
                    ended.setdefault(name, []).append(logged)
                case {"kind": "standing" | "recalled" | "refused"}:
                    pass
                case _:
                    damaged.append(f"byte {offset} of {file.name}")
    lost = tuple(sorted(name for name, process in running.items() if process == processes))
    return Found(processes=processes, standings=tuple(standings), ended=ended, lost=lost, damaged=tuple(damaged))


def _standing(record: Mapping[str, Any]) -> Standing:
    return Standing(
        step=record["step"],
        weights={int(version): name for version, name in record["weights"].items()},
        accounts=record["accounts"],
        reported=record.get("reported", record["accounts"]),
        ahead=record["ahead"],
    )


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _sync(folder: Path, descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.fsync(descriptor)
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
