"""Grading by Harbor's contract: bring the tests in when the agent is done, run test.sh, read the reward that it left.

The tests run in a fresh sandbox that holds the task's own files with the allowed changes over them, so nothing else of what the
agent did is there: no process, no hook in its home, no file that it may not change. What remains is what the contract itself
leaves open: the tested code runs beside the file that decides. Such verdicts say so (`channel = "reward-file"`).

A reward file that is missing, empty or malformed is no reward, and no 0 either. But an agent could cause it, by code that ends
the test process; so the known-right solution (or, without one, the untouched task) is graded in the same way: where that gives
a reward, the silence was the submission's doing and is paid 0, else it is a failure of ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from sanderling.errors import SandboxBroken, UnsafePath, UntouchedPaid, VerifierError
from sanderling.sandbox.protocol import Command, ExecResult, Sandbox, SandboxBackend, SandboxSpec
from sanderling.tasks.formats.harbor import SOLVE_SCRIPT, TEST_SCRIPT
from sanderling.tasks.formats.harbor_tasks import HarborTask, HarborTasks
from sanderling.types import Evidence, Graded, Limits, Submission, Task
from sanderling.verify.mechanisms import new_mechanisms, refusal_note
from sanderling.verify.reward_file import MAX_BYTES, FileReward, NoReward, parse_reward_json, parse_reward_text
from sanderling.verify.set_order import order_of_sets
from sanderling.verify.suites.programs import agent_tools

_APP, _TESTS, _LOGS = "app", "tests", "logs"  # in the grading sandbox's workspace
_LOG_FOLDERS = ("agent", "verifier", "artifacts")
_KEEP = ".keep"  # a workspace is made of files, so a folder needs one


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """What came of running the tests once. `reward` is None where they left none, for the reason in `problem`."""

    reward: FileReward | None
    problem: str
    result: ExecResult | None


class HarborVerifier:
    """Implements `verify.protocol.Verifier` for the tasks of Harbor folders.

    The reward is what the task's test script pays: any finite number. A paid one needs a canary: the untouched task, graded
    once in the same way, must earn less.

    Args:
        tasks: the folders.
    """

    def __init__(self, tasks: HarborTasks) -> None:
        self._tasks = tasks
        self._untouched: dict[str, _Outcome] = {}  # by task id
        self._isolation: tuple[SandboxBackend, str] | None = None

    async def grade(self, task: Task, submission: Submission, backend: SandboxBackend, seed: int) -> Graded:
        """Judge a submission; see `verify.protocol.Verifier.grade`. `seed` draws the order of sets only."""
        harbor, task = self._tasks.harbor(task.id), _in_order(task, seed)
        notes = [refusal_note(refusal) for refusal in submission.refused]
        files = {}
        for path, content in submission.files.items():
            if any(fnmatchcase(path, pattern) for pattern in task.editable):
                files[path] = content
                notes += [f"{path} {found}" for found in _mechanisms(task, path, content)]
            else:
                notes.append(f"not an editable path: {path} was left out")
        outcome = await self._run(harbor, task, files, backend)
        if outcome.reward is None:
            await self._require_control(harbor, task, backend, outcome)
            notes.append(f"the tests left no reward for this solution, but do for the right one: {outcome.problem}")
        return await self._judge(harbor, task, outcome, notes, backend)

    async def control(self, task: Task, backend: SandboxBackend, seed: int) -> Graded:
        """Grade what solution/solve.sh makes.

        Raises:
            VerifierError: there is no solution, it fails, or the tests leave no reward for it.
        """
        harbor, task = self._tasks.harbor(task.id), _in_order(task, seed)
        outcome = await self._run(harbor, task, await self._solved(harbor, task, backend), backend)
        if outcome.reward is None:
            raise VerifierError(f"the tests of {task.id} leave no reward for the right solution: {outcome.problem}")
        return await self._judge(harbor, task, outcome, [], backend)

    async def solution(self, task: Task, backend: SandboxBackend) -> Mapping[str, bytes]:
        """Return what solution/solve.sh makes; see `verify.protocol.Auditable`."""
        made = await self._solved(self._tasks.harbor(task.id), task, backend)
        return {path: content for path, content in made.items() if task.base.get(path) != content}

    def hidden(self, task: Task) -> Mapping[str, bytes]:
        """Return the folders tests and solution."""
        folder = self._tasks.harbor(task.id).folder
        tests = {f"tests/{path}": content for path, content in folder.tests.items()}
        return {**tests, **{f"solution/{path}": content for path, content in folder.solution.items()}}

    async def _judge(
        self, harbor: HarborTask, task: Task, outcome: _Outcome, notes: Sequence[str], backend: SandboxBackend
    ) -> Graded:
        earned = outcome.reward or FileReward(reward=0.0)
        canary_failed = False
        if earned.reward > 0:
            untouched = await self._of_untouched(harbor, task, backend)
            if untouched.reward is not None and untouched.reward.reward >= earned.reward:
                raise UntouchedPaid(
                    f"the tests of {task.id} pay {untouched.reward.reward} for the untouched task: doing nothing can't be told "
                    "from work; leave this task out"
                )
            canary_failed = True
        evidence = Evidence(
            required=1,
            executed=int(outcome.reward is not None),
            passed=int(earned.reward >= 1),
            canary_failed=canary_failed,
            processes_gone=True,  # the tests ran in a sandbox of their own, and reading began when `exec` had returned
            channel="reward-file",
            isolation=await self._isolation_of(backend),
            notes=tuple(note[:300] for note in [*notes, *_process_notes(outcome.result)]),
        )
        return Graded(reward=earned.reward, evidence=evidence, components=dict(earned.components))

    async def _run(
        self, harbor: HarborTask, task: Task, files: Mapping[str, bytes], backend: SandboxBackend
    ) -> _Outcome:
        sandbox = await backend.create(_spec(harbor, task))
        try:
            await _set_up(sandbox, task)
            try:
                for path, content in files.items():
                    await sandbox.write_file(f"{_APP}/{path}", content)
                script = f"/{_TESTS}/{TEST_SCRIPT}"
                command = Command(
                    argv=("sh", "-c", f"chmod +x {script} && exec {script}"), env=harbor.verifier_env, cwd=_APP
                )
                result = await sandbox.exec(command)
            except (SandboxBroken, UnsafePath) as error:
                return _Outcome(reward=None, problem=f"the submission broke its grading sandbox: {error}", result=None)
            return await _read(sandbox, result)
        finally:
            await sandbox.destroy()

    async def _of_untouched(self, harbor: HarborTask, task: Task, backend: SandboxBackend) -> _Outcome:
        if task.id not in self._untouched:
            self._untouched[task.id] = await self._run(harbor, task, {}, backend)
        return self._untouched[task.id]

    async def _require_control(
        self, harbor: HarborTask, task: Task, backend: SandboxBackend, outcome: _Outcome
    ) -> None:
        """Return if the same tests leave a reward for a solution that isn't the agent's.

        Raises:
            VerifierError: they don't: the failure is ours or the task's.
        """
        if SOLVE_SCRIPT in harbor.folder.solution:
            control = await self._run(harbor, task, await self._solved(harbor, task, backend), backend)
        else:
            control = await self._of_untouched(harbor, task, backend)
        if control.reward is None:
            raise VerifierError(
                f"the tests of {task.id} leave no reward: {outcome.problem}; control: {control.problem}"
            )

    async def _solved(self, harbor: HarborTask, task: Task, backend: SandboxBackend) -> dict[str, bytes]:
        """Return the allowed changes that solution/solve.sh makes in an agent's sandbox."""
        script = harbor.folder.solution.get(SOLVE_SCRIPT)
        if script is None:
            raise VerifierError(f"{task.id} has no solution/{SOLVE_SCRIPT}, so that its tests can't be checked")
        links = {task.workdir: "/work", "/solution": "/tools"}
        spec = SandboxSpec(
            files=task.base, readonly=harbor.folder.solution, limits=_limits(task), env=task.env, links=links
        )
        sandbox = await backend.create(spec)
        try:
            await _set_up(sandbox, task, ".")
            first = script.decode("utf-8", "replace").partition("\n")[0]
            interpreter = first[2:].split() if first.startswith("#!") else ["sh"]
            command = Command(argv=(*interpreter, f"/solution/{SOLVE_SCRIPT}"), env=harbor.solution_env)
            result = await sandbox.exec(command)
            if result.exit_code != 0:
                said = result.stderr[-200:].decode("utf-8", "replace")
                raise VerifierError(f"the solution of {task.id} fails with exit code {result.exit_code}: {said!r}")
            return dict((await sandbox.submission(task.editable)).files)
        finally:
            await sandbox.destroy()

    async def _isolation_of(self, backend: SandboxBackend) -> str:
        if self._isolation is None or self._isolation[0] is not backend:
            self._isolation = (backend, (await asyncio.to_thread(backend.probe)).isolation)
        return self._isolation[1]


def _in_order(task: Task, seed: int) -> Task:
    return replace(task, env={**order_of_sets(task.id, seed), **task.env})


def _limits(task: Task) -> Limits:
    seconds = task.limits.grading_s
    return replace(task.limits, command_s=seconds, command_cpu_s=seconds)


def _spec(harbor: HarborTask, task: Task) -> SandboxSpec:
    """Return the grading sandbox: the WORKDIR, /tests and /logs are folders of its workspace."""
    files = {f"{_APP}/{path}": content for path, content in task.base.items()}
    files |= {f"{_TESTS}/{path}": content for path, content in harbor.folder.tests.items()}
    files |= {f"{_LOGS}/{name}/{_KEEP}": b"" for name in _LOG_FOLDERS}
    links = {task.workdir: f"/work/{_APP}", f"/{_TESTS}": f"/work/{_TESTS}", f"/{_LOGS}": f"/work/{_LOGS}"}
    return SandboxSpec(files=files, readonly=provided(harbor.packages), limits=_limits(task), env=task.env, links=links)


def provided(packages: Sequence[str]) -> Mapping[str, bytes]:
    """Return the files at /tools that give a sandbox these packages, in this machine's version.

    Raises:
        ConfigError: one isn't installed here.
    """
    return (
        {path: content for path, content in agent_tools().items() if path.startswith("packages/")} if packages else {}
    )


async def _set_up(sandbox: Sandbox, task: Task, cwd: str = _APP) -> None:
    for argv in task.setup:
        result = await sandbox.exec(Command(argv=argv, cwd=cwd, timeout_s=task.limits.setup_s))
        if result.exit_code != 0:
            said = result.stderr[-200:].decode("utf-8", "replace")
            raise VerifierError(f"setup {argv} of {task.id} fails with exit code {result.exit_code}: {said!r}")


async def _read(sandbox: Sandbox, result: ExecResult) -> _Outcome:
    """Return the reward that stands in the sandbox, from reward.json where that is there, else from reward.txt."""
    if result.timed_out:
        return _Outcome(reward=None, problem=f"cut off after {result.duration_s:.1f} s", result=result)
    for name, parse in (("reward.json", parse_reward_json), ("reward.txt", parse_reward_text)):
        path = f"{_LOGS}/verifier/{name}"
        try:
            return _Outcome(reward=parse(await sandbox.read_file(path, MAX_BYTES)), problem="", result=result)
        except NoReward as error:
            return _Outcome(reward=None, problem=str(error), result=result)
        except (UnsafePath, SandboxBroken) as error:
            if "no such file" not in str(error):
                return _Outcome(reward=None, problem=f"{name}: {error}", result=result)
    said = (result.stderr or result.stdout)[-200:].decode("utf-8", "replace")
    problem = f"no reward file; test.sh ended with {result.exit_code} and said {said!r}"
    return _Outcome(reward=None, problem=problem, result=result)


def _mechanisms(task: Task, path: str, content: bytes) -> list[str]:
    return new_mechanisms(task.base.get(path, b""), content) if path.endswith(".py") else []


def _process_notes(result: ExecResult | None) -> list[str]:
    if result is None:
        return []
    notes = [f"test.sh ended with exit code {result.exit_code}"] if result.exit_code else []
    if result.out_of_memory:
        notes.append("killed for its use of memory")
    return notes
