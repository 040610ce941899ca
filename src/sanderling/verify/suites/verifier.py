"""`SuiteVerifier`: a submission to a task of a repository earns 1 if every hidden test shows what it must."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Protocol

from sanderling.errors import SandboxBroken, TaskError, VerifierError
from sanderling.sandbox.protocol import SandboxBackend
from sanderling.tasks.folder import TaskFolder
from sanderling.types import Evidence, Graded, Submission, Task
from sanderling.verify.mechanisms import hook_of, new_mechanisms, refusal_note
from sanderling.verify.set_order import order_of_sets
from sanderling.verify.suites.judging import Failure
from sanderling.verify.suites.recording import (
    Channel,
    Editions,
    RecordedTest,
    Recording,
    Suite,
    compile_editions,
    is_test_file,
)
from sanderling.verify.suites.running import Extent, SuiteResult, SuiteRun, grade_workspace

_NOTES = 20


class FolderSource(Protocol):
    """Gives the hidden part of a task, such as `tasks.folders.TaskFolders`."""

    def folder(self, task_id: str) -> TaskFolder: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """What grading needs of a task, compiled once."""

    folder: TaskFolder
    suite: Suite
    recording: Recording
    editions: Editions
    gold: Mapping[str, bytes]


class SuiteVerifier:
    """Implements `verify.protocol.Verifier` for hidden pytest suites.

    A reward of 1 needs every id of FAIL_TO_PASS and PASS_TO_PASS reported exactly once as passed (a skipped, missing or
    expectedly failing test is none), every observed value right, and canaries that failed. The submission's plain files go
    over a pristine tree; what steers a test run (conftest.py, settings, start-up hooks, compiled code, tests) is left out.

    What stays open: a test that is `IN_PROCESS` is decided in the process that runs the submission, which can read its
    assertions or report what it likes. And in every test a check whose right side is a truth value or the type of an
    exception can be forged by guessing. `Recording.guarded` names the tests where neither pays.

    Example::

        SuiteVerifier(TaskFolders(Path("tasks/toolz")))
    """

    def __init__(self, source: FolderSource) -> None:
        self._source = source
        self._prepared: dict[str, _Prepared] = {}
        self._probed: tuple[SandboxBackend, str] | None = None  # the last backend and its isolation

    async def grade(self, task: Task, submission: Submission, backend: SandboxBackend, seed: int) -> Graded:
        """Judge a submission; see `verify.protocol.Verifier.grade`. `seed` draws the order of sets only."""
        ready = await asyncio.to_thread(self._prepare, task)
        files, notes = accepted_files(ready.folder, submission)
        if all(ready.folder.base.get(path) == content for path, content in files.items()):
            notes.append("nothing was changed: no editable file differs from the task's own")
        try:
            result = await self._run(task, ready, {**ready.folder.base, **files}, backend, seed)
        except SandboxBroken as error:
            notes.append(f"the submission broke its grading sandbox: {error}")
            result = _nothing(ready.recording)
        if not all(run.report.started for run in result.runs.values()):
            await self._require_control(task, backend, seed)
            notes.append("the test runner started for the right solution, but not for this one")
        return await self._verdict(ready, result, notes, backend)

    async def control(self, task: Task, backend: SandboxBackend, seed: int) -> Graded:
        """Grade the right solution in the same way."""
        ready = await asyncio.to_thread(self._prepare, task)
        return await self._verdict(ready, await self._run(task, ready, ready.gold, backend, seed), [], backend)

    @property
    def source(self) -> FolderSource:
        """The task folders: hidden material, for audits."""
        return self._source

    def right_files(self, task: Task) -> dict[str, bytes]:
        """Return what the right solution changes; see `verify.protocol.DisclosingVerifier`."""
        folder = self._source.folder(task.id)
        return {path: content for path, content in folder.gold().items() if folder.base.get(path) != content}

    async def solution(self, task: Task, backend: SandboxBackend) -> Mapping[str, bytes]:
        """Return `right_files`; see `verify.protocol.Auditable`."""
        return self.right_files(task)

    def hidden(self, task: Task) -> Mapping[str, bytes]:
        """Return the hidden test files and the files of the right solution."""
        gold = {f"gold {path}": content for path, content in self.right_files(task).items()}
        tests = self._source.folder(task.id).tests
        return {**gold, **{f"test {path}": content for path, content in tests.items()}}

    def lifted_share(self, task_id: str) -> float:
        """Return the share of a task's hidden tests that are decided on our side alone, in [0, 1]."""
        return Recording.from_json(self._source.folder(task_id).expected.recording).lifted

    def _prepare(self, task: Task) -> _Prepared:
        if task.id not in self._prepared:
            try:
                self._prepared[task.id] = _prepare(self._source.folder(task.id))
            except TaskError as error:
                raise VerifierError(f"the hidden part of {task.id} can't be used: {error}") from error
            if len(self._prepared) > _IN_MEMORY:
                del self._prepared[next(iter(self._prepared))]
        return self._prepared[task.id]

    async def _run(
        self, task: Task, ready: _Prepared, workspace: Mapping[str, bytes], backend: SandboxBackend, seed: int
    ) -> SuiteResult:
        env = order_of_sets(task.id, seed)
        suite = replace(ready.suite, limits=task.limits, env=env)  # a run may have changed the limits
        extent = Extent.UNTIL_FAILURE
        return await grade_workspace(backend, workspace, ready.editions, ready.recording, suite, extent)

    async def _require_control(self, task: Task, backend: SandboxBackend, seed: int) -> None:
        """Return if the right solution is paid at this moment: then the silence was the submission's doing.

        Raises:
            VerifierError: it isn't.
        """
        control = await self.control(task, backend, seed)
        if control.reward != 1.0:
            why = "; ".join(control.evidence.notes if control.evidence else ())
            raise VerifierError(f"the test runner doesn't start for {task.id}, nor for its right solution: {why}")

    async def _verdict(
        self, ready: _Prepared, result: SuiteResult, notes: list[str], backend: SandboxBackend
    ) -> Graded:
        required = [*ready.folder.expected.fail_to_pass, *ready.folder.expected.pass_to_pass]
        tests = ready.recording.tests
        ran = [name for name in required if _was_run(tests[name], result)]
        passed = [name for name in ran if result.failures.get(name, _UNSEEN) is None]
        clean = bool(result.runs) and all(run.clean for run in result.runs.values())
        notes += [note for run in result.runs.values() for note in _run_notes(run)]
        notes += [f"{name}: {failure.reason}" for name, failure in result.failures.items() if failure][:3]
        earned = clean and result.canary_failed and len(passed) == len(required)
        evidence = Evidence(
            required=len(required),
            executed=len(ran),
            passed=len(passed),
            canary_failed=result.canary_failed,
            processes_gone=True,  # `exec` returns only when nothing of the run is alive, `submission` killed the rest
            channel=channel_name(ready.recording),
            isolation=await self._isolation_of(backend),
            notes=tuple(note[:300] for note in notes[:_NOTES]),
        )
        components = {"passed": len(passed) / len(required), "lifted": ready.recording.lifted}
        return Graded(reward=float(earned), evidence=evidence, components=components)

    async def _isolation_of(self, backend: SandboxBackend) -> str:
        if self._probed is None or self._probed[0] is not backend:
            self._probed = (backend, (await asyncio.to_thread(backend.probe)).isolation)
        return self._probed[1]


_IN_MEMORY = 64
_UNSEEN = Failure(reason="was not run")


def suite_of(folder: TaskFolder) -> Suite:
    """Return the hidden suite of a task."""
    return Suite(tests=folder.tests, modules=folder.header.modules, limits=folder.header.limits)


def _prepare(folder: TaskFolder) -> _Prepared:
    """Compile the hidden part of a task.

    Raises:
        TaskError: it is malformed.
    """
    suite, expected = suite_of(folder), folder.expected
    recording = Recording.from_json(expected.recording)
    recording = recording.restrict([*expected.fail_to_pass, *expected.pass_to_pass])
    editions = compile_editions(suite, recording)
    return _Prepared(folder=folder, suite=suite, recording=recording, editions=editions, gold=folder.gold())


def accepted_files(folder: TaskFolder, submission: Submission) -> tuple[dict[str, bytes], list[str]]:
    """Return the files of a submission that go into grading, and notes about the others and about what they do.

    What steers a test run is left out whatever `editable` says, unless the right solution changes that very file.
    """
    notes = [refusal_note(refusal) for refusal in submission.refused]
    gold = folder.gold()
    files: dict[str, bytes] = {}
    for path, content in submission.files.items():
        by_gold = gold.get(path) != folder.base.get(path)
        hook = hook_of(path)
        if not any(fnmatchcase(path, pattern) for pattern in folder.header.editable):
            notes.append(f"not an editable path: {path} was left out")
        elif path in folder.tests:
            notes.append(f"hidden test file: {path} was left out")
        elif hook and not by_gold:
            notes.append(f"{hook}: {path} was left out")
        elif _is_of_tests(path) and not by_gold:
            notes.append(f"test file: {path} was left out; hidden tests decide")
        else:
            files[path] = content
            if path.endswith(".py"):
                notes += [f"{path} {found}" for found in new_mechanisms(folder.base.get(path, b""), content)]
    return files, notes


def _is_of_tests(path: str) -> bool:
    return is_test_file(path) or not {"test", "tests"}.isdisjoint(PurePosixPath(path).parts[:-1])


def _was_run(test: RecordedTest, result: SuiteResult) -> bool:
    """Whether a test was reported, exactly once, by each edition that it stands in."""
    asked = [channel for channel in Channel if test.checks(channel) is not None]
    return all(channel in result.runs and test.key in result.runs[channel].report.tests for channel in asked)


def channel_name(recording: Recording) -> str:
    """Return how a task's outcome is learnt: "observation", or how many of its tests are decided in process."""
    inside = sum(test.channel is Channel.IN_PROCESS for test in recording.tests.values())
    return f"observation, {inside} of {len(recording.tests)} tests in process" if inside else "observation"


def _nothing(recording: Recording) -> SuiteResult:
    return SuiteResult(failures=dict.fromkeys(recording.tests, _UNSEEN), runs={}, canary_failed=False)


def _run_notes(run: SuiteRun) -> list[str]:
    notes = [*run.report.notes, *run.report.uncollected]
    result = run.result
    if result.timed_out:
        notes.append(f"cut off after {result.duration_s:.1f} s by our clock")
    if result.out_of_memory:
        notes.append("killed for its use of memory")
    if result.omitted_bytes:
        notes.append(f"{result.omitted_bytes} bytes of output over the limit were dropped")
    if not run.report.done and not result.timed_out:
        said = result.stderr[-120:].decode("utf-8", "replace").strip()
        notes.append(f"the test run did not come to its end: exit code {result.exit_code} {said}")
    return notes
