"""Makes a recording: runs the right solution again and again, until what is held of each test is known to be right.

1. The right solution runs the `RECORD` edition several times, each with another hash seed. A test that doesn't pass every
   time is unusable; a check whose value differs is not held; one that shows a value of an unknown type stays an assertion.
2. It is then graded exactly as a submission will be. A test that doesn't pass loses its reports, then its file runs as it was
   written, then it is left out: what is in a recording was seen to pay for the right solution.
3. `expect` grades base/ in the same way: what fails there and passes here is FAIL_TO_PASS.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sanderling.errors import TaskError, VerifierError
from sanderling.sandbox.protocol import SandboxBackend
from sanderling.tasks.folder import Expected
from sanderling.types import JsonValue
from sanderling.verify.suites.judging import Check, holds, is_guessable
from sanderling.verify.suites.recording import (
    RecordedTest,
    Recording,
    Suite,
    compile_editions,
)
from sanderling.verify.suites.rewriting import Compiled, Edition, compile_tests
from sanderling.verify.suites.running import SuiteRun, grade_workspace, run_files
from sanderling.verify.suites.sites import Basis, Site
from sanderling.verify.values import has_opaque, text_of

_RECORD_CPU_S = 600.0
Answer = Mapping[str, JsonValue]


async def record(suite: Suite, gold: Mapping[str, bytes], backend: SandboxBackend, repeats: int = 3) -> Recording:
    """Record a suite on the right solution.

    Args:
        suite: the hidden tests. All of them are recorded; `Recording.restrict` takes those that a task needs.
        gold: the workspace with the right solution.
        repeats: runs of the `RECORD` edition; a test that fails with probability p stays unseen with (1 - p) ** repeats.

    Raises:
        TaskError: no test passes. VerifierError: the runner doesn't start. SandboxLost: as the sandbox says.
    """
    compiled, whole = _compile(suite)
    files = {**gold, **suite.tests, **{path: file.source for path, file in compiled.items()}}
    request = {"files": list(suite.test_files()), "roots": suite.modules, "only": None}
    runs = [await run_files(backend, files, request, suite, _RECORD_CPU_S) for _ in range(repeats)]
    for run in runs:
        if not run.report.started or not run.report.done:
            said = run.result.stderr[-300:].decode("utf-8", "replace")
            raise VerifierError(f"the hidden suite doesn't run: exit code {run.result.exit_code}, {said!r}")
    draft = _Draft(suite=suite, compiled=compiled, whole=whole, runs=runs)
    draft.sort_tests()
    if not draft.answers:
        why = next(iter([*draft.unusable.values(), *runs[0].report.uncollected]), "none was found")
        raise TaskError(f"no hidden test passes with the right solution: {why}")
    return await _settle(draft, gold, backend)


async def expect(
    suite: Suite, recording: Recording, base: Mapping[str, bytes], backend: SandboxBackend
) -> tuple[Expected, tuple[str, ...]]:
    """Grade base/ and return what a task's hidden tests must show, and the ids that base/ made flip between two runs.

    Raises:
        TaskError: no test fails on base/. SandboxLost: as the sandbox says.
    """
    editions = compile_editions(suite, recording)
    results = [await grade_workspace(backend, base, editions, recording, suite) for _ in range(2)]
    failing = [{name for name, failure in result.failures.items() if failure} for result in results]
    flipping = failing[0] ^ failing[1]
    broken = sorted(failing[0] & failing[1])
    if not broken:
        raise TaskError("no hidden test fails on base/: the bug shows in none of them")
    kept = recording.restrict(recording.tests.keys() - flipping)
    guarded = []
    for name in broken:
        failure = results[0].failures[name]
        check, test = failure.check if failure else None, recording.tests[name]
        if check in test.observed and check and not is_guessable(editions.sites[test.file][check.site], check):
            guarded.append(name)
    recorded = replace(kept, guarded=tuple(guarded)).as_json()
    passing = sorted(kept.tests.keys() - set(broken))
    expected = Expected(fail_to_pass=tuple(broken), pass_to_pass=tuple(passing), recording=recorded)
    return expected, tuple(sorted(flipping))


def _compile(suite: Suite) -> tuple[dict[str, Compiled], set[str]]:
    """Compile every test file for recording; return also those that can't be."""
    compiled, whole = {}, set()
    for path in suite.test_files():
        try:
            compiled[path] = compile_tests(suite.tests[path], Edition.RECORD)
        except (SyntaxError, ValueError, RecursionError):
            whole.add(path)
    return compiled, whole


@dataclass(slots=True, kw_only=True)
class _Draft:
    """A recording in the making."""

    suite: Suite
    compiled: dict[str, Compiled]
    whole: set[str]
    runs: Sequence[SuiteRun]
    answers: dict[str, list[Answer]] = field(default_factory=dict)  # by key: one per run, all passed
    unusable: dict[str, str] = field(default_factory=dict)  # by id
    bases: dict[str, dict[int, Basis]] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)  # by id: checks that are not observed
    demoted: set[str] = field(default_factory=set)  # keys of tests that keep all their assertions

    def sort_tests(self) -> None:
        """Keep the tests that passed in every run."""
        first = self.runs[0].report.tests
        for key, answer in first.items():
            several = [run.report.tests.get(key) for run in self.runs]
            ends = {str(item and item.get("end")) for item in several}
            if ends == {"passed"}:
                self.answers[key] = [item for item in several if item is not None]
            else:
                self.unusable[str(answer["id"])] = " and ".join(sorted(ends)) + ": " + str(answer.get("error"))[:120]
        for key in {key for run in self.runs for key in run.report.tests} - first.keys():
            self.unusable[key] = "isn't there in every run"

    def settle_bases(self) -> None:
        """Decide for each site who decides it, from all that was seen."""
        self.bases = {}
        for key, answers in self.answers.items():
            path = key.partition("::")[0]
            if path in self.compiled and path not in self.whole:
                for site, basis in self._bases_of(key, path, answers):
                    known = self.bases.setdefault(path, {})
                    known[site] = max(known.get(site, basis), basis, key=_WEAKEST.index)

    def _bases_of(self, key: str, path: str, answers: Sequence[Answer]) -> Iterable[tuple[int, Basis]]:
        sites = self.compiled[path].sites
        lists = [answer["checks"] for answer in answers]
        if key in self.demoted or any(checks is None for checks in lists):
            definition = _definition(key, answers[0])
            others = {
                site for name, inner in self.compiled[path].sites_of.items() if name != definition for site in inner
            }
            met = {check[0] for checks in lists if checks is not None for check in checks}
            # what was too much to report may come from helpers as well, which belong to no test
            return [(site, Basis.KEPT) for site in met | (sites.keys() - others)]
        orders = [[check[0] for check in checks] for checks in lists]
        if any(order != orders[0] for order in orders):
            return [(site, Basis.KEPT) for order in orders for site in order]
        return [(group[0][0], _basis(sites[group[0][0]], group)) for group in zip(*lists, strict=True)]

    def tests(self) -> dict[str, RecordedTest]:
        """Return the tests by id with what is held of them now."""
        self.settle_bases()
        found = [self._test(key, answers[0]) for key, answers in self.answers.items()]
        return {test.id: test for test in found}

    def _test(self, key: str, answer: Answer) -> RecordedTest:
        path, definition = key.partition("::")[0], _definition(key, answer)
        observed: tuple[Check, ...] = ()
        inside: tuple[Check, ...] | None = ()
        if path not in self.whole and answer["checks"] is not None:
            compiled, bases = self.compiled[path], self.bases.get(path, {})
            checks = [
                (bases[site], _check(compiled.sites[site], bases[site], operands))
                for site, *operands in answer["checks"]
            ]
            inside = tuple(check for basis, check in checks if basis is not Basis.KEPT)
            if definition is not None and definition in compiled.definitions and key not in self.demoted:
                observed = tuple(check for basis, check in checks if basis is Basis.RECORDED)
                if observed and len(observed) == len(checks) and not compiled.definitions[definition]:
                    inside = None
            self.kept[str(answer["id"])] = len(checks) - len(observed)
        return RecordedTest(id=str(answer["id"]), key=key, definition=definition, observed=observed, inside=inside)

    def recording(self, gold_s: float = 0.0) -> Recording:
        return Recording(
            tests=self.tests(),
            bases={path: dict(sites) for path, sites in self.bases.items() if path not in self.whole},
            whole=frozenset(self.whole),
            gold_s=gold_s,
            kept={name: count for name, count in self.kept.items() if count},
            unusable=dict(self.unusable),
        )


_WEAKEST = [Basis.RECORDED, Basis.REPORTED, Basis.KEPT]


def _definition(key: str, answer: Answer) -> str | None:
    """The qualified name of a test's function, if it is written in the test's own file."""
    said = answer.get("definition")
    file, _, name = said.partition("::") if isinstance(said, str) else ("", "", "")
    return name if file == key.partition("::")[0] else None


def _basis(site: Site, seen: Sequence[Sequence[JsonValue]]) -> Basis:
    """Decide one check of one test from what all runs showed at it."""
    if site.basis is Basis.KEPT:
        return Basis.KEPT
    groups = [operands for _, *operands in seen]
    if site.operator in ("isinstance", "raises"):
        return site.basis if all(holds(site, operands, ()) for operands in groups) else Basis.KEPT
    if any(has_opaque(operands) for operands in groups):
        return Basis.KEPT
    plain = replace(site, held="")  # both sides were reported
    if not all(holds(plain, operands, ()) for operands in groups):
        return Basis.KEPT
    if site.held:
        held = [text_of(operands[1 if site.held == "right" else 0]) for operands in groups]
        if len(set(held)) > 1:
            return Basis.REPORTED
    return site.basis


def _check(site: Site, basis: Basis, operands: Sequence[JsonValue]) -> Check:
    if basis is not Basis.RECORDED or not site.held:
        return Check(site=site.number)
    return Check(site=site.number, expected=(operands[1 if site.held == "right" else 0],))


async def _settle(draft: _Draft, gold: Mapping[str, bytes], backend: SandboxBackend) -> Recording:
    """Grade the right solution until all that is left passes."""
    for attempt in range(_ATTEMPTS):
        recording = draft.recording()
        editions = compile_editions(draft.suite, recording)
        result = await grade_workspace(backend, gold, editions, recording, draft.suite)
        failing = {name for name, failure in result.failures.items() if failure is not None}
        if not failing:
            seconds = sum(run.result.duration_s for run in result.runs.values())
            return draft.recording(seconds)
        _step_down(draft, recording, failing, attempt)
        if not draft.answers:
            break
    raise TaskError("no hidden test passes with the right solution when it is graded as a submission is")


_ATTEMPTS = 5


def _step_down(draft: _Draft, recording: Recording, failing: set[str], attempt: int) -> None:
    """Hold less of the tests that failed: no reports, then no compilation, then nothing at all."""
    compiled = {recording.tests[name].file for name in failing} - draft.whole
    for name in failing:
        test = recording.tests[name]
        if attempt == 0:
            same = (test.file, test.definition)
            draft.demoted |= {t.key for t in recording.tests.values() if (t.file, t.definition) == same}
        elif test.file in compiled:
            draft.whole.add(test.file)
        else:
            draft.unusable[name] = "passes in its own run, but not when it is graded"
            draft.answers.pop(test.key, None)
