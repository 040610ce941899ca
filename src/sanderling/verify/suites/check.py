"""Whether a task folder is what it says: the right solution is paid, base/ isn't, each test does what it is named for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sanderling.errors import TaskError
from sanderling.sandbox.protocol import SandboxBackend
from sanderling.tasks.folder import TaskFolder, read_task_folder
from sanderling.types import JsonValue
from sanderling.verify.suites.judging import Failure
from sanderling.verify.suites.recording import Recording, compile_editions
from sanderling.verify.suites.running import SuiteResult, grade_workspace
from sanderling.verify.suites.verifier import suite_of


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderCheck:
    """What was found of one task folder."""

    id: str
    problems: tuple[str, ...]  # empty: the task may be used
    fail_to_pass: int = 0
    pass_to_pass: int = 0
    lifted: float = 0.0  # share of its tests that are decided outside the process that runs the submission
    lifted_checks: float = 0.0  # the same of their executed checks
    guarded: int = 0  # tests of fail_to_pass that neither forging a report nor reading the tests turns into passed ones

    @property
    def ok(self) -> bool:
        return not self.problems

    def as_json(self) -> dict[str, JsonValue]:
        return {
            "id": self.id,
            "ok": self.ok,
            "problems": list(self.problems),
            "fail_to_pass": self.fail_to_pass,
            "pass_to_pass": self.pass_to_pass,
            "lifted": round(self.lifted, 4),
            "lifted_checks": round(self.lifted_checks, 4),
            "guarded": self.guarded,
        }

    def line(self) -> str:
        """Return one line for people."""
        if self.problems:
            return f"FAIL {self.id}: {'; '.join(self.problems)}"
        return (
            f"ok   {self.id}: {self.fail_to_pass} fail to pass ({self.guarded} guarded), {self.pass_to_pass} pass to pass; "
            f"lifted {self.lifted:.0%} of the tests, {self.lifted_checks:.0%} of the checks"
        )


async def check_folder(place: Path | TaskFolder, backend: SandboxBackend) -> FolderCheck:
    """Grade the right solution and base/ of a task folder.

    Args:
        place: a folder on disk, or one in memory.

    Raises:
        SandboxLost: as the sandbox says. A malformed folder is a problem in the result.
    """
    name = place.header.id if isinstance(place, TaskFolder) else str(place)
    try:
        folder = place if isinstance(place, TaskFolder) else read_task_folder(place)
        expected, suite = folder.expected, suite_of(folder)
        named = [*expected.fail_to_pass, *expected.pass_to_pass]
        recording = Recording.from_json(expected.recording).restrict(named)
        editions = compile_editions(suite, recording)
        gold_files = folder.gold()
    except TaskError as error:
        return FolderCheck(id=name, problems=(str(error),))
    gold = await grade_workspace(backend, gold_files, editions, recording, suite)
    base = await grade_workspace(backend, folder.base, editions, recording, suite)
    return FolderCheck(
        id=folder.header.id,
        problems=tuple(_problems(folder, gold, base)),
        fail_to_pass=len(expected.fail_to_pass),
        pass_to_pass=len(expected.pass_to_pass),
        lifted=recording.lifted,
        lifted_checks=recording.lifted_checks,
        guarded=len(set(recording.guarded) & set(expected.fail_to_pass)),
    )


def _problems(folder: TaskFolder, gold: SuiteResult, base: SuiteResult) -> list[str]:
    expected = folder.expected
    problems = []
    if not all(run.clean for run in gold.runs.values()):
        problems.append("the run of the right solution didn't come to a clean end")
    if not gold.canary_failed:
        problems.append("a canary passed or wasn't reported with the right solution")
    for title, names, result, wanted in (
        ("the right solution fails", [*expected.fail_to_pass, *expected.pass_to_pass], gold, True),
        ("base/ passes fail_to_pass", expected.fail_to_pass, base, False),
        ("base/ fails pass_to_pass", expected.pass_to_pass, base, True),
    ):
        wrong = [name for name in names if (result.failures[name] is None) != wanted]
        if wrong:
            problems.append(f"{title}: {len(wrong)} tests, first {wrong[0]}{_why(result.failures[wrong[0]])}")
    guarded = Recording.from_json(expected.recording).guarded
    if not problems and not set(guarded) & set(expected.fail_to_pass):
        problems.append(
            "no test of fail_to_pass is guarded: what they check can be guessed by a report that is made up"
        )
    return problems


def _why(failure: Failure | None) -> str:
    return f" ({failure.reason})" if failure else ""
