"""Grading by replay: a hidden test decides about a function without ever sharing a process with it.

Three sandboxes, none of which holds both what is right and what the agent wrote:

1. the test runs on the right function, and its calls are noted;
2. an observer makes these calls on the submitted function and reports plain values (`observer.py`);
3. the test runs again on the reported values, and its own assertions decide.

So a test may compare with tolerance or check a property, as tests of real projects do, and still nothing of it can be read,
patched or fooled by an object that claims to equal everything. What can't be replayed is refused: keywords in a call, values
of unknown types, a test that passes whatever is returned.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Protocol

from sanderling.errors import SandboxBroken, VerifierError
from sanderling.sandbox.protocol import PYTHON, Command, ExecResult, SandboxBackend, SandboxSpec
from sanderling.types import Evidence, Graded, JsonValue, Limits, Submission, Task
from sanderling.verify.cases import Entry
from sanderling.verify.mechanisms import new_mechanisms, refusal_note
from sanderling.verify.report import Report, read_report
from sanderling.verify.set_order import order_of_sets

_FOLDER = Path(__file__).parent
_OBSERVER = {name: (_FOLDER / name).read_bytes() for name in ("observer.py", "values.py")}
_JUDGE = {name: (_FOLDER / name).read_bytes() for name in ("replay_judge.py", "values.py")}
_OUTPUT_BYTES = 8 << 20


class ReplaySource(Protocol):
    """Gives the function and the test of a task."""

    def entry(self, task: Task) -> Entry: ...

    def gold(self, task: Task) -> str:
        """Return the source of `entry.file` that is right."""
        ...

    def test(self, task: Task) -> str:
        """Return source that calls `entry.function` by its name and raises where a result is wrong.

        It may use `random`, whose generator is seeded by the grading's seed.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recording:
    """What the test asks of the right function."""

    calls: Sequence[JsonValue]
    answers: Sequence[JsonValue]


class ReplayVerifier:
    """Implements `verify.protocol.Verifier` for functions that a test script judges.

    A reward of 1 needs every call answered exactly once, in order, over the observer's own channel, a test that ends without
    an exception on these answers, and the canary: the same test raises on answers that nobody would give.

    Args:
        source: functions and tests.
        call_cpu_s: processor seconds that one call may take. call_s: wall seconds for the same.
        total_s: wall seconds for all calls, by our clock (at most `task.limits.grading_s`). total_cpu_s: processor seconds.
    """

    def __init__(
        self,
        source: ReplaySource,
        *,
        call_cpu_s: float = 2.0,
        call_s: float = 10.0,
        total_s: float = 60.0,
        total_cpu_s: float = 30.0,
    ) -> None:
        self._source = source
        self._call_cpu_s = call_cpu_s
        self._call_s = call_s
        self._total_s = total_s
        self._total_cpu_s = total_cpu_s
        self._fixed: dict[str, _Recording | None] = {}  # by task id; None: the calls depend on the seed
        self._isolation: tuple[SandboxBackend, str] | None = None

    async def grade(self, task: Task, submission: Submission, backend: SandboxBackend, seed: int) -> Graded:
        """Judge a submission; see `verify.protocol.Verifier.grade`."""
        notes = [refusal_note(refusal) for refusal in submission.refused]
        files = {}
        for path, content in submission.files.items():
            if any(fnmatchcase(path, pattern) for pattern in task.editable):
                files[path] = content
                found = new_mechanisms(task.base.get(path, b""), content) if path.endswith(".py") else []
                notes += [f"{path} {mechanism}" for mechanism in found]
            else:
                notes.append(f"not an editable path: {path} was left out")
        recording = await self.recording(task, backend, seed)
        try:
            report, result = await self._observe(task, files, recording, backend, seed)
        except SandboxBroken as error:
            notes.append(f"the submission broke its grading sandbox: {error}")
            return await self._graded(recording, None, [None], notes, backend)
        if not report.started and (await self.control(task, backend, seed)).reward != 1.0:
            said = result.stderr[-200:].decode("utf-8", "replace")
            raise VerifierError(f"the observer does not start, exit code {result.exit_code}: {said!r}")
        notes += report.notes
        if result.timed_out or result.exit_code != 0:
            notes.append(f"the calls ended early: exit code {result.exit_code} after {result.duration_s:.1f} s")
        return await self._decide(task, recording, report, notes, backend, seed)

    async def control(self, task: Task, backend: SandboxBackend, seed: int) -> Graded:
        """Grade the right source in the same way."""
        recording = await self.recording(task, backend, seed)
        files = {self._source.entry(task).file: self._source.gold(task).encode()}
        report, _ = await self._observe(task, files, recording, backend, seed)
        return await self._decide(task, recording, report, list(report.notes), backend, seed)

    def right_files(self, task: Task) -> dict[str, bytes]:
        """Return the file with the right function; see `verify.protocol.DisclosingVerifier`."""
        return {self._source.entry(task).file: self._source.gold(task).encode()}

    async def solution(self, task: Task, backend: SandboxBackend) -> Mapping[str, bytes]:
        """Return `right_files`; see `verify.protocol.Auditable`."""
        return self.right_files(task)

    def hidden(self, task: Task) -> Mapping[str, bytes]:
        """Return the right source and the hidden test."""
        return {"gold": self._source.gold(task).encode(), "test": self._source.test(task).encode()}

    async def recording(self, task: Task, backend: SandboxBackend, seed: int) -> _Recording:
        """Return the calls of a seed; the same object for every seed where the test draws nothing.

        Raises:
            VerifierError: the test can't be replayed, or the right function doesn't pass it.
        """
        if task.id not in self._fixed:
            first, second = await self._record(task, backend, seed), await self._record(task, backend, seed + 1)
            self._fixed[task.id] = first if first == second else None
            return first
        return self._fixed[task.id] or await self._record(task, backend, seed)

    async def _record(self, task: Task, backend: SandboxBackend, seed: int) -> _Recording:
        answer = await self._judge(task, backend, seed, calls=None, answers=None)
        if answer["error"] is not None:
            raise VerifierError(f"the hidden test of {task.id} can't be used: {answer['error']}")
        if not answer["calls"]:
            raise VerifierError(f"the hidden test of {task.id} makes no call")
        found = _Recording(calls=answer["calls"], answers=answer["answers"])
        unknowable = [{**seen, "value": secrets.token_hex(16), "raised": None} for seen in found.answers]
        replayed = await self._judge(task, backend, seed, calls=found.calls, answers=[found.answers, unknowable])
        right, canary = replayed["errors"]
        if right is not None:
            raise VerifierError(f"the hidden test of {task.id} can't be replayed on plain values: {right}")
        if canary is None:
            raise VerifierError(f"the hidden test of {task.id} passes whatever the function returns")
        return found

    async def _decide(
        self, task: Task, recording: _Recording, report: Report, notes: list[str], backend: SandboxBackend, seed: int
    ) -> Graded:
        if not report.complete:
            notes.append(
                f"{len(recording.calls) - len(report.answers)} of {len(recording.calls)} calls were not answered"
            )
            return await self._graded(recording, report, [None], notes, backend)
        seen = list(report.answers.values())
        canary = [{**answer, "value": secrets.token_hex(16), "raised": None} for answer in seen]
        given = [[_plain(answer) for answer in seen[: len(recording.calls)]], canary[: len(recording.calls)]]
        try:
            errors = (await self._judge(task, backend, seed, calls=recording.calls, answers=given))["errors"]
        except (
            VerifierError
        ):  # a value on which the test doesn't end, unless the test doesn't end on the right ones either
            await self._judge(task, backend, seed, calls=recording.calls, answers=[recording.answers])
            errors = [None]
            notes.append("the hidden test doesn't end on these values, but does on the right ones")
        if errors[0] is not None:
            notes.append(f"the hidden test fails: {errors[0]}")
        return await self._graded(recording, report, errors, notes, backend)

    async def _graded(
        self,
        recording: _Recording,
        report: Report | None,
        errors: Sequence[str | None],
        notes: Sequence[str],
        backend: SandboxBackend,
    ) -> Graded:
        """Put a verdict together. `errors`: what stopped the test on the answers, then on the canary's; [None]: no end."""
        ran = len(errors) == 2
        passed = ran and errors[0] is None
        evidence = Evidence(
            required=len(recording.calls),
            executed=0 if report is None else min(len(report.answers), len(recording.calls)),
            passed=len(recording.calls) if passed else 0,
            canary_failed=ran and errors[1] is not None,
            processes_gone=True,  # `exec` returns only when nothing of the child is alive
            channel="observation",
            isolation=await self._isolation_of(backend),
            notes=tuple(note[:300] for note in notes),
        )
        return Graded(reward=float(passed and evidence.canary_failed), evidence=evidence)

    async def _observe(
        self, task: Task, files: dict[str, bytes], recording: _Recording, backend: SandboxBackend, seed: int
    ) -> tuple[Report, ExecResult]:
        """Make the calls on a submission."""
        entry = self._source.entry(task)
        ready, done = secrets.token_hex(8), secrets.token_hex(8)
        calls = [{"nonce": secrets.token_hex(8), "arguments": arguments} for arguments in recording.calls]
        request = {
            "file": entry.file,
            "function": entry.function,
            "ready": ready,
            "calls": calls,
            "done": done,
            "call_cpu_s": self._call_cpu_s,
            "call_s": self._call_s,
        }
        limits = self._limits(task)
        env = order_of_sets(task.id, seed)
        spec = SandboxSpec(files={**task.base, **files}, readonly=_OBSERVER, limits=limits, env=env)
        argv = (*PYTHON, "/tools/observer.py")
        result = await _exec(backend, spec, Command(argv=argv, stdin=json.dumps(request).encode()))
        report = read_report(result.stdout, ready, [call["nonce"] for call in calls], done)
        clean = result.exit_code == 0 and not result.timed_out and not result.omitted_bytes
        cut_off = any(answer.get("cut_off") for answer in report.answers.values())
        return (report if clean and not cut_off else replace(report, complete=False)), result

    async def _judge(
        self,
        task: Task,
        backend: SandboxBackend,
        seed: int,
        *,
        calls: Sequence[JsonValue] | None,
        answers: Sequence[JsonValue] | None,
    ) -> dict[str, JsonValue]:
        """Run the test in a sandbox that holds nothing of the agent's but plain values."""
        request = {
            "gold": self._source.gold(task),
            "test": self._source.test(task),
            "function": self._source.entry(task).function,
            "seed": seed,
            "calls": calls,
            "answers": answers,
        }
        spec = SandboxSpec(files={}, readonly=_JUDGE, limits=self._limits(task))
        argv = (
            "python3",
            "-S",
            "/tools/replay_judge.py",
        )  # in the usual order of sets, or the second run would make other calls
        command = Command(argv=argv, stdin=json.dumps(request).encode())
        result = await _exec(backend, spec, command)
        try:
            answer = json.loads(result.stdout)
        except ValueError:
            said = result.stderr[-200:].decode("utf-8", "replace")
            raise VerifierError(
                f"the hidden test of {task.id} did not come to its end: exit code {result.exit_code}, {said!r}"
            ) from None
        return answer

    def _limits(self, task: Task) -> Limits:
        seconds = min(self._total_s, task.limits.grading_s)
        return replace(task.limits, output_bytes=_OUTPUT_BYTES, command_s=seconds, command_cpu_s=self._total_cpu_s)

    async def _isolation_of(self, backend: SandboxBackend) -> str:
        if self._isolation is None or self._isolation[0] is not backend:
            self._isolation = (backend, (await asyncio.to_thread(backend.probe)).isolation)
        return self._isolation[1]


async def _exec(backend: SandboxBackend, spec: SandboxSpec, command: Command) -> ExecResult:
    sandbox = await backend.create(spec)
    try:
        return await sandbox.exec(command)
    finally:
        await sandbox.destroy()


def _plain(answer: JsonValue) -> JsonValue:
    return {key: answer.get(key) for key in ("value", "raised", "arguments")}
