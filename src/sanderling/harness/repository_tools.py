"""Tools for work in a repository: look, search, change, test, submit.

Paths are relative to the workspace; one that leaves it is refused. What a tool prints is bounded, head and tail, and what
was left out is counted. Searching runs in the sandbox, because a pattern comes from the policy.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from sanderling.errors import UnsafePath
from sanderling.harness.excerpt import excerpt
from sanderling.harness.protocol import Reply
from sanderling.sandbox.protocol import Command, ExecResult, Sandbox, Start
from sanderling.types import ObservationSource, StopReason, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Workbench:
    """What the tools of one episode work on."""

    task: Task
    sandbox: Sandbox
    test_argv: tuple[str, ...]  # the visible tests; (): there are none
    max_output_bytes: int  # of one reply


class RepositoryTools:
    """The tools of one episode; each public async method is one."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._sandbox = bench.sandbox

    def fork(self, sandbox: Sandbox) -> RepositoryTools:
        """Return the tools of a fork of the episode, with copies of what a subclass holds; no tool itself."""
        twin = copy.copy(self)
        for name in vars(self).keys() - {"_bench", "_sandbox"}:
            setattr(twin, name, copy.deepcopy(getattr(self, name)))
        twin._bench, twin._sandbox = replace(self._bench, sandbox=sandbox), sandbox
        return twin

    async def list_files(self, path: str = ".") -> Reply:
        """List the files of the workspace.

        Args:
            path: folder to list; the whole workspace if left out.
        """
        inside = await self._files_below(path)
        if not inside:
            return _error(f"no files below {path[:200]!r}")
        return self._text("\n".join(inside))

    async def read_file(self, path: str, start: int = 1, end: int | None = None) -> Reply:
        """Print a file with line numbers.

        Args:
            path: the file.
            start: number of the first line, from 1.
            end: number of the last line; to the end of the file if left out.
        """
        lines = _decoded(path, await self._sandbox.read_file(path)).splitlines()
        last = len(lines) if end is None else min(end, len(lines))
        if start < 1 or (end is not None and end < start):
            return _error(f"lines {start} to {end}: expected 1 or more, and the end not before the start")
        if start > max(1, len(lines)):
            return _error(f"the file has {len(lines)} lines, there is no line {start}")
        shown = "\n".join(f"{number}\t{lines[number - 1]}" for number in range(start, last + 1))
        return self._text(shown or "the file is empty")

    async def search(self, pattern: str, path: str = ".") -> Reply:
        """Find lines that match a regular expression (POSIX extended, as of grep -E).

        Args:
            pattern: the expression.
            path: file or folder to search; the whole workspace if left out.
        """
        if not await self._files_below(path):
            return _error(f"no files below {path[:200]!r}")
        where = PurePosixPath(path)
        argv = ("grep", "-rnIE", "-e", pattern, "--", *([] if where == PurePosixPath() else [str(where)]))
        result = await self._sandbox.exec(Command(argv=argv))
        if result.exit_code == 1 and not result.stdout:
            return Reply(text="no line matches", exit_code=1, duration_s=result.duration_s, commands=1)
        return self._result(result)

    async def replace(self, path: str, old: str, new: str) -> Reply:
        """Replace a piece of a file. It must stand there exactly once, spaces and line ends included.

        Args:
            path: the file.
            old: the piece as it stands in the file, without line numbers.
            new: what comes in its place.
        """
        text = _decoded(path, await self._sandbox.read_file(path))
        if not old:
            return _error("old is empty; give the piece that is to be replaced")
        places = _places(text, old)
        if not places:
            return _error(f"old does not stand in {path}; read the file and copy the piece exactly")
        if len(places) > 1:
            lines = ", ".join(str(text.count("\n", 0, place) + 1) for place in places[:10])
            return _error(f"old stands {len(places)} times in {path}, at lines {lines}; give more of its surroundings")
        if old == new:
            return _error("old and new are the same")
        await self._sandbox.write_file(path, text.replace(old, new, 1).encode())
        return Reply(text=f"replaced at line {text.count(chr(10), 0, places[0]) + 1} of {path}")

    async def write_file(self, path: str, content: str) -> Reply:
        """Write a whole file, new or in place of an old one.

        Args:
            path: the file.
            content: its whole content.
        """
        await self._sandbox.write_file(path, content.encode())
        return Reply(text=f"wrote {len(content.encode())} bytes to {path}")

    async def run_tests(self) -> Reply:
        """Run the visible tests."""
        result = await self._sandbox.exec(Command(argv=self._bench.test_argv, start=Start.WARM))
        return self._result(result, source="tests")

    async def bash(self, command: str) -> Reply:
        """Run a shell command in the workspace. Each one starts there anew; only files stay.

        Args:
            command: what bash -c is given.
        """
        return self._result(await run_shell(self._sandbox, command))

    async def submit(self) -> Reply:
        """Hand the change in. Call it when the task is done; nothing can be changed after it."""
        return Reply(text="", stop=StopReason.SUBMITTED)

    async def _files_below(self, path: str) -> Sequence[str]:
        """Return the plain files at or below a path.

        Raises:
            UnsafePath: the path leaves the workspace.
        """
        wanted = PurePosixPath(path)
        if wanted.is_absolute() or ".." in wanted.parts or "\0" in path:
            raise UnsafePath(f"path {path[:200]!r} leaves the workspace; give one inside, such as 'pkg' or '.'")
        files = await self._sandbox.list_files()
        return [file for file in files if PurePosixPath(file).is_relative_to(wanted)]

    def _text(self, text: str) -> Reply:
        shown = excerpt(text.encode("utf-8", "replace"), self._bench.max_output_bytes)
        return Reply(text=shown.text, omitted_bytes=shown.omitted_bytes)

    def _result(self, result: ExecResult, source: ObservationSource = "tool") -> Reply:
        return command_reply(result, self._bench, source)


async def run_shell(sandbox: Sandbox, command: str) -> ExecResult:
    """Run a command with bash where there is one, with both outputs in one stream, in the order in which they were written."""
    shell = 'if command -v bash >/dev/null; then exec bash -c "$1" 2>&1; else exec sh -c "$1" 2>&1; fi'
    return await sandbox.exec(Command(argv=("sh", "-c", shell, "sh", command)))


def command_reply(result: ExecResult, bench: Workbench, source: ObservationSource = "tool") -> Reply:
    """Return what a command did: how it ended, then its output, bounded."""
    streams = [part for part in (result.stdout.rstrip(), result.stderr.rstrip()) if part]
    kept = bench.task.limits.output_bytes if len(streams) < 2 else None  # of two streams nobody knows where the gap is
    shown = excerpt(b"\n".join(streams), bench.max_output_bytes, already_omitted=result.omitted_bytes, kept_bytes=kept)
    if result.timed_out:
        end = f"cut off after {result.duration_s:.1f} s"
    elif result.out_of_memory:
        end = f"out of memory, exit code {result.exit_code}"
    else:
        end = f"exit code {result.exit_code}"
    return Reply(
        text=f"{end}\n{shown.text}".rstrip("\n"),
        source=source,
        exit_code=result.exit_code,
        duration_s=result.duration_s,
        omitted_bytes=shown.omitted_bytes,
        commands=1,
    )


def _places(text: str, piece: str) -> list[int]:
    """Return where a piece stands, overlapping places included."""
    found, at = [], text.find(piece)
    while at >= 0:
        found.append(at)
        at = text.find(piece, at + 1)
    return found


def _decoded(path: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise UnsafePath(f"{path!r} is no UTF-8 text; only text can be read and replaced") from None


def _error(message: str) -> Reply:
    return Reply(text=f"error: {message}")
