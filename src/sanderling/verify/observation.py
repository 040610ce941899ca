"""Grading by observation: the sandbox says what it saw, we say what is right. The two never meet in one process.

A submission is graded in a fresh sandbox that holds the task's own files with the submitted ones over them. One child
process gets the arguments of all calls, calls the function, and reports what there was to see: the value with its exact
type, the exception's type, the arguments after the call, and what was printed. The right observations are computed here
from the gold source and compared here. So there is nothing in the child's memory, files or frames to read off, and an
object that claims to equal everything is only an unknown type.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random

from sanderling.errors import SandboxBroken, VerifierError
from sanderling.sandbox.protocol import PYTHON, Command, ExecResult, SandboxBackend, SandboxSpec
from sanderling.types import Evidence, Graded, JsonValue, Submission, Task
from sanderling.verify.cases import CallSource, Entry
from sanderling.verify.mechanisms import new_mechanisms, refusal_note
from sanderling.verify.portable import PortableTests, script
from sanderling.verify.recording import Observed, RecordedFunction, call_text, difference
from sanderling.verify.report import Report, read_report
from sanderling.verify.set_order import order_of_sets
from sanderling.verify.values import decode

_TOOLS = {name: Path(__file__).with_name(name).read_bytes() for name in ("observer.py", "values.py")}
_ARGV = (*PYTHON, "/tools/observer.py")
_OUTPUT_BYTES = 4 << 20
_LOUD_BYTES = 2_000  # stray output that is worth a note
_UNCHANGED = (
    "nothing was changed: no editable file differs from the task's own, and hooks planted elsewhere (parent folders, "
    "home, environment) do not exist where grading runs"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    """One call with its right observation; of the canary, an observation that nobody can know."""

    nonce: str
    arguments: JsonValue
    expected: Observed
    canary: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What one grading asks for."""

    entry: Entry
    env: Mapping[str, str]
    ready: str
    done: str
    checks: tuple[_Check, ...]

    def request(self, call_cpu_s: float, call_s: float) -> bytes:
        calls = [{"nonce": check.nonce, "arguments": check.arguments} for check in self.checks]
        request = {
            "file": self.entry.file,
            "function": self.entry.function,
            "ready": self.ready,
            "calls": calls,
            "done": self.done,
            "call_cpu_s": call_cpu_s,
            "call_s": call_s,
        }
        return json.dumps(request).encode()


class ObservationVerifier:
    """Implements `verify.protocol.Verifier` for functions: same calls, same observations as the right one.

    A reward of 1 needs every call answered exactly once and rightly, in order, over the observer's own channel, a canary
    that failed, and nothing else on that channel; otherwise the reward is 0.

    Args:
        source: the calls and the right function of a task.
        draws: hidden calls per grading, fresh for each seed; a bug that shows in a share s of them is missed with
            probability (1 - s) ** draws.
        call_cpu_s: processor seconds that one call may take, caught inside the child.
        call_s: wall seconds for the same, for calls that sleep; generous, since gradings share the machine.
        total_s: wall seconds for the child, by our clock (at most `task.limits.grading_s`).
        total_cpu_s: processor seconds for the child.
    """

    def __init__(
        self,
        source: CallSource,
        *,
        draws: int = 48,
        call_cpu_s: float = 0.25,
        call_s: float = 5.0,
        total_s: float = 60.0,
        total_cpu_s: float = 10.0,
    ) -> None:
        if draws < 1:
            raise ValueError(f"draws is {draws}; at least one hidden call is needed to judge anything")
        self._source = source
        self._draws = draws
        self._call_cpu_s = call_cpu_s
        self._call_s = call_s
        self._total_s = total_s
        self._total_cpu_s = total_cpu_s
        self._probed: tuple[SandboxBackend, str] | None = None  # the last backend and its isolation

    async def grade(self, task: Task, submission: Submission, backend: SandboxBackend, seed: int) -> Graded:
        """Judge a submission; see `verify.protocol.Verifier.grade`."""
        notes = [refusal_note(refusal) for refusal in submission.refused]
        files = {}
        for path, content in submission.files.items():
            if any(fnmatchcase(path, pattern) for pattern in task.editable):
                files[path] = content
                if path.endswith(".py"):
                    found = new_mechanisms(task.base.get(path, b""), content)
                    notes += [f"{path} {mechanism}" for mechanism in found]
            else:
                notes.append(f"not an editable path: {path} was left out")
        if all(task.base.get(path) == content for path, content in files.items()):
            notes.append(_UNCHANGED)
        plan = self._plan(task, seed)
        try:
            result = await self._run(task, files, plan, backend)
        except SandboxBroken as error:
            notes.append(f"the submission broke its grading sandbox: {error}")
            return await self._judge(plan, _nothing(), notes, backend)
        report = self._read(plan, result)
        if not report.started:
            await self._require_control(task, backend, seed, result)
            notes.append("the observer started for the right solution, but not for this one")
        notes += [*report.notes, *_process_notes(result)]
        clean = result.exit_code == 0 and not result.timed_out and result.omitted_bytes == 0
        if not clean:
            report = replace(report, complete=False)
        return await self._judge(plan, report, notes, backend)

    @property
    def source(self) -> CallSource:
        """The calls and the right functions: hidden material, for audits."""
        return self._source

    def right_files(self, task: Task) -> dict[str, bytes]:
        """Return the file with the right function; see `verify.protocol.DisclosingVerifier`."""
        return {self._source.entry(task).file: self._source.gold(task).encode()}

    async def control(self, task: Task, backend: SandboxBackend, seed: int) -> Graded:
        """Grade the gold source in the same way."""
        plan = self._plan(task, seed)
        result = await self._run(task, {plan.entry.file: self._source.gold(task).encode()}, plan, backend)
        report = self._read(plan, result)
        if result.exit_code != 0 or result.timed_out or result.omitted_bytes:
            report = replace(report, complete=False)
        return await self._judge(plan, report, [*report.notes, *_process_notes(result)], backend)

    async def solution(self, task: Task, backend: SandboxBackend) -> Mapping[str, bytes]:
        """Return `right_files`; see `verify.protocol.Auditable`."""
        return self.right_files(task)

    def hidden(self, task: Task) -> Mapping[str, bytes]:
        """Return the gold source: hidden calls are drawn for each grading and are nowhere before it."""
        return {"gold": self._source.gold(task).encode()}

    def portable(self, task: Task, seed: int) -> PortableTests:
        """Pack the calls of `seed` with what is right; see `verify.portable.Portable`."""
        plan = self._plan(task, seed)
        calls = {
            "file": plan.entry.file,
            "function": plan.entry.function,
            "calls": [
                {"arguments": check.arguments, "expected": check.expected.as_json()}
                for check in plan.checks
                if not check.canary
            ],
            "call_cpu_s": self._call_cpu_s,
            "call_s": self._call_s,
            "total_s": min(self._total_s, task.limits.grading_s),
        }
        tests = {"calls.json": json.dumps(calls).encode(), "grade.py": script("portable_grader.py"), **_TOOLS}
        return PortableTests(
            tests={**tests, "test.sh": b"#!/bin/sh\nexec python3 -I -S /tests/grade.py\n"},
            solution={plan.entry.file: self._source.gold(task).encode()},
            channel="observation",
        )

    def _plan(self, task: Task, seed: int) -> _Plan:
        """Draw the calls and compute what is right.

        Raises:
            VerifierError: the gold source fails, or shows a value of an unknown type.
        """
        entry = self._source.entry(task)
        rng = Random(f"{task.id} {seed}")
        hidden = list(self._source.draw(task, rng, self._draws))
        arguments = [*self._source.examples(task), *hidden]
        try:
            gold = RecordedFunction(self._source.gold(task), entry.function)
            expected = [gold(item) for item in arguments]
        except Exception as error:
            raise VerifierError(f"the gold solution of {task.id} can't be run: {error!r}") from error
        for item, right in zip(arguments, expected, strict=True):
            if right.key() is None:
                shown = call_text(entry.function, item)
                raise VerifierError(f"the gold solution of {task.id} shows a value of an unknown type at {shown}")
        checks = [
            _Check(nonce=secrets.token_hex(8), arguments=item, expected=right, canary=False)
            for item, right in zip(arguments, expected, strict=True)
        ]
        unknowable = Observed(value=secrets.token_hex(16), raised=None, arguments=hidden[0], printed="")
        canary = _Check(nonce=secrets.token_hex(8), arguments=hidden[0], expected=unknowable, canary=True)
        checks.append(canary)  # last, so that a shared state which the gold keeps is the same in every required call
        return _Plan(
            entry=entry,
            env=order_of_sets(task.id, seed),
            ready=secrets.token_hex(8),
            done=secrets.token_hex(8),
            checks=tuple(checks),
        )

    async def _run(self, task: Task, files: dict[str, bytes], plan: _Plan, backend: SandboxBackend) -> ExecResult:
        seconds = min(self._total_s, task.limits.grading_s)
        limits = replace(task.limits, output_bytes=_OUTPUT_BYTES, command_s=seconds, command_cpu_s=self._total_cpu_s)
        spec = SandboxSpec(files={**task.base, **files}, readonly=_TOOLS, limits=limits, env=plan.env, image=task.image)
        sandbox = await backend.create(spec)
        try:
            return await sandbox.exec(Command(argv=_ARGV, stdin=plan.request(self._call_cpu_s, self._call_s)))
        finally:
            await sandbox.destroy()

    def _read(self, plan: _Plan, result: ExecResult) -> Report:
        return read_report(result.stdout, plan.ready, [check.nonce for check in plan.checks], plan.done)

    async def _require_control(self, task: Task, backend: SandboxBackend, seed: int, result: ExecResult) -> None:
        """Return if the right solution is graded 1 at this moment: then the silence was the submission's doing.

        Raises:
            VerifierError: it is not.
        """
        control = await self.control(task, backend, seed)
        if control.reward != 1.0:
            said = result.stderr[-200:].decode("utf-8", "replace")
            raise VerifierError(f"the observer does not start, exit code {result.exit_code}: {said!r}")

    async def _judge(self, plan: _Plan, report: Report, notes: list[str], backend: SandboxBackend) -> Graded:
        required = [check for check in plan.checks if not check.canary]
        canary_failed = any(
            check.nonce in report.answers and _wrong_part(check, report) is not None
            for check in plan.checks
            if check.canary
        )
        executed = [check for check in required if check.nonce in report.answers]
        failed = [check for check in executed if _wrong_part(check, report) is not None]
        if failed:
            notes.append(_failure_note(plan.entry.function, failed[0], report, len(failed)))
        if len(executed) < len(required):
            notes.append(f"{len(required) - len(executed)} of {len(required)} calls were not answered")
        passed = len(executed) - len(failed)
        earned = passed == len(required) and report.complete and canary_failed
        evidence = Evidence(
            required=len(required),
            executed=len(executed),
            passed=passed,
            canary_failed=canary_failed,
            processes_gone=True,  # `exec` returns only when nothing of the child is alive, `submission` killed the rest
            channel="observation",
            isolation=await self._isolation_of(backend),
            notes=tuple(note[:300] for note in notes),
        )
        return Graded(reward=float(earned), evidence=evidence, components={"passed": passed / len(required)})

    async def _isolation_of(self, backend: SandboxBackend) -> str:
        if self._probed is None or self._probed[0] is not backend:
            self._probed = (backend, (await asyncio.to_thread(backend.probe)).isolation)
        return self._probed[1]


def _nothing() -> Report:
    return Report(started=False, answers={}, complete=False, notes=())


def _wrong_part(check: _Check, report: Report) -> str | None:
    answer = report.answers[check.nonce]
    if answer.get("cut_off"):
        return "cut off"
    return difference(check.expected.as_json(), answer)


def _failure_note(function: str, check: _Check, report: Report, count: int) -> str:
    part = _wrong_part(check, report)
    call = call_text(function, check.arguments)
    if part == "cut off":
        return f"{call} did not end in time"
    answer, right = report.answers[check.nonce], check.expected.as_json()
    assert part is not None
    seen, want = _shown(answer.get(part)), _shown(right[part])
    return f"first of {count} wrong calls: {call}: {part} was {seen}, right is {want}"


def _shown(data: JsonValue) -> str:
    """Return an encoded value as people write it; a malformed one as it came."""
    try:
        text = repr(decode(data))
    except Exception:  # the data is the agent's: any shape, any depth
        text = json.dumps(data, default=str) if not isinstance(data, list | dict) else str(data)
    return text if len(text) <= 80 else text[:77] + "..."


def _process_notes(result: ExecResult) -> Sequence[str]:
    notes = []
    if result.timed_out:
        notes.append(f"cut off after {result.duration_s:.1f} s by our clock")
    if result.out_of_memory:
        notes.append("killed for its use of memory")
    if result.exit_code not in (0, 3, 4) and not result.timed_out:
        notes.append(f"the process ended itself or was killed: exit code {result.exit_code}")
    if result.omitted_bytes:
        notes.append(f"{result.omitted_bytes} bytes of output over the limit were dropped")
    elif len(result.stderr) > _LOUD_BYTES:
        notes.append(f"{len(result.stderr)} bytes written past the report")
    lower = result.stderr.lower()
    if any(word in lower for word in (b"passed", b"reward", b"test output", b"exit code")):
        notes.append("text that looks like a verdict was printed past the report")
    return notes
