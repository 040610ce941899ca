"""From a code base to task folders: bugs are tried several at a time and admitted in their fixed order."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import shutil
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sanderling.errors import ConfigError
from sanderling.sandbox.protocol import SandboxBackend
from sanderling.synthesis.candidates import Candidate, candidates
from sanderling.synthesis.census import RUNS, Census, take_census
from sanderling.synthesis.code_base import CodeBase
from sanderling.synthesis.drafting import Draft, Recipe, draft_task, numbered
from sanderling.synthesis.grading import Grader, prepare_grader
from sanderling.synthesis.journal import ADMITTED, Entry, MakingJournal, read_census, write_census
from sanderling.synthesis.layout import Layout, find_layout
from sanderling.synthesis.leaks import check_installed
from sanderling.synthesis.splits import assign_splits
from sanderling.synthesis.statement import StatementModel
from sanderling.synthesis.suite_runs import SuiteSandboxes
from sanderling.synthesis.trials import Rejection, try_candidate
from sanderling.tasks.folder import write_task_folder

MAKER_VERSION = 1
"""Of the order of candidates and the rules of admission: a journal of another version is not continued."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeSettings:
    """How many tasks, of which kind."""

    n: int
    seed: int = 0
    workers: int = 2  # bugs that are tried at once
    runs: int = RUNS  # of the suite, to find flaky tests
    hide_share: float = 0.5  # of a file's failing test functions, rounded up
    per_function: int = 4  # tasks of one function, at most
    model: StatementModel | None = None

    def __post_init__(self) -> None:
        for name in ("n", "workers", "per_function"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; expected at least 1")
        if self.runs < 2:
            raise ConfigError(f"runs is {self.runs}; a flaky test shows itself in two runs at the earliest")
        if not 0 < self.hide_share <= 1:
            raise ConfigError(f"hide is {self.hide_share}; expected a share in (0, 1]")

    def lasting(self, code: CodeBase) -> dict[str, Any]:
        """Return what decides which tasks come out."""
        content = hashlib.sha256()
        for path, data in code.files.items():
            content.update(f"{path}\0{len(data)}\0".encode() + data)
        return {
            "maker": MAKER_VERSION,
            "code": f"{code.name} {code.version}".strip(),
            "digest": content.hexdigest()[:16],
            "seed": self.seed,
            "runs": self.runs,
            "hide": self.hide_share,
            "per_function": self.per_function,
            "model": self.model.model if self.model else "",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a making stands."""

    admitted: int
    wanted: int
    outcomes: Mapping[str, int]
    wall_s: float  # of this process, census included

    @property
    def tried(self) -> int:
        return sum(self.outcomes.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeResult:
    """What came out."""

    code: CodeBase
    census: Census
    progress: Progress
    prepared_s: float  # wall, until the first bug was tried
    resumed: int  # candidates that an earlier process had tried
    families: Mapping[str, int]  # tasks
    splits: Mapping[str, int]  # tasks


Listener = Callable[[str, Progress | None], None]
"""Is told what happens: a phase in words, or a candidate's end with the progress so far."""


async def make_tasks(
    code: CodeBase, out: Path, settings: MakeSettings, backend: SandboxBackend, tell: Listener
) -> MakeResult:
    """Make up to `settings.n` tasks below `out`, one folder each, at <out>/<split>/<name>.

    Fewer come out where the code base gives no more bugs that its tests notice. With the same code base, settings and machine
    the same tasks come out, whatever the number of workers and however often the run was killed and started again.

    Raises:
        ConfigError: `out` can't be used. TaskError: the code base has no usable suite.
        SandboxLost, SandboxUnavailable: our side failed; the same call continues.
    """
    began = time.monotonic()
    layout = find_layout(code.files)
    journal = MakingJournal(out, settings.lasting(code))
    sandboxes = SuiteSandboxes(backend, code.files, layout)
    try:
        census = await _census(code, layout, settings, out, sandboxes, tell)
        tell(f"{len(census.stable)} stable tests, {len(census.aside)} set aside; recording what is right", None)
        grader = await prepare_grader(code, layout, census, backend, out / "recording.json")
        prepared_s = time.monotonic() - began
        sources = {path: code.files[path].decode(errors="replace") for path in layout.sources}
        recipe = Recipe(
            code=code,
            layout=layout,
            census=census,
            splits=assign_splits(sources),
            seed=settings.seed,
            hide_share=settings.hide_share,
            model=settings.model,
        )
        making = _Making(recipe, settings, out, journal, sandboxes, grader, tell, began)
        resumed = len(journal.entries)
        await making.run()
    finally:
        await sandboxes.close()
    done = [entry for entry in journal.entries if entry.outcome == ADMITTED]
    return MakeResult(
        code=code,
        census=census,
        progress=making.progress(),
        prepared_s=prepared_s,
        resumed=resumed,
        families=Counter(entry.family for entry in done),
        splits=Counter(entry.task.split("/")[1] for entry in done),
    )


async def _census(
    code: CodeBase, layout: Layout, settings: MakeSettings, out: Path, sandboxes: SuiteSandboxes, tell: Listener
) -> Census:
    file = out / "census.json"
    if file.is_file():
        return read_census(file)
    tell(f"{len(layout.sources)} source files, {len(layout.tests)} test files; searching for installed copies", None)
    async with sandboxes.sandbox() as sandbox:
        await check_installed(sandbox, code.name, layout)
    tell(f"running the suite {settings.runs} times and once with tracing", None)
    census = await take_census(sandboxes, layout, settings.seed, settings.runs)
    write_census(file, census)
    return census


@dataclass(slots=True)
class _Making:
    """The state of one `make_tasks`."""

    recipe: Recipe
    settings: MakeSettings
    out: Path
    journal: MakingJournal
    sandboxes: SuiteSandboxes
    grader: Grader
    tell: Listener
    began: float
    per_function: Counter[str] = field(default_factory=Counter)
    per_name: Counter[tuple[str, str]] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)

    def progress(self) -> Progress:
        return Progress(
            admitted=self.outcomes[ADMITTED],
            wanted=self.settings.n,
            outcomes=dict(self.outcomes),
            wall_s=time.monotonic() - self.began,
        )

    async def run(self) -> None:
        recipe = self.recipe
        order = candidates(recipe.code.files, recipe.layout.sources, recipe.census, self.settings.seed)
        for entry in self.journal.entries:
            self._count(entry)
        if self.outcomes[ADMITTED] >= self.settings.n:
            return
        self._skip(order)
        waiting: deque[tuple[Candidate, float, asyncio.Task[Draft]]] = deque()
        free = asyncio.Semaphore(self.settings.workers)
        try:
            while self.outcomes[ADMITTED] < self.settings.n:
                while len(waiting) < 2 * self.settings.workers and (candidate := next(order, None)) is not None:
                    waiting.append((candidate, time.monotonic(), asyncio.create_task(self._attempt(candidate, free))))
                    await asyncio.sleep(0)  # bugs are planted in this thread: let the running ones go on in between
                if not waiting:
                    return
                candidate, started, task = waiting[0]
                # not `await task`: that would pass a cancellation on, and an attempt that just ended would lose it
                await asyncio.wait([task])
                waiting.popleft()
                self._settle(candidate, task.result(), time.monotonic() - started)
        finally:
            for _, _, task in waiting:
                task.cancel()
            for _, _, task in waiting:
                with suppress(asyncio.CancelledError, Exception):
                    await task

    def _skip(self, order: Iterator[Candidate]) -> None:
        for entry, candidate in zip(
            self.journal.entries, itertools.islice(order, len(self.journal.entries)), strict=True
        ):
            if entry.key != candidate.key:
                raise ConfigError(
                    f"candidate {entry.number} of the journal isn't the one of this version; give a new directory"
                )

    async def _attempt(self, candidate: Candidate, free: asyncio.Semaphore) -> Draft:
        async with free:
            if self._is_full(candidate):
                return Draft(folder=None, rejection=Rejection.FUNCTION_FULL)
            trial = await try_candidate(candidate, self.recipe.census, self.sandboxes, self.settings.seed)
            if trial.rejection is not None:
                return Draft(folder=None, rejection=trial.rejection)
            draft = await draft_task(candidate, trial, self.recipe)
            return draft if draft.folder is None else await self.grader.admit(draft.folder)

    def _is_full(self, candidate: Candidate) -> bool:
        return self.per_function[_function(candidate)] >= self.settings.per_function

    def _settle(self, candidate: Candidate, draft: Draft, seconds: float) -> None:
        """Decide about the next candidate in the order, write its task, then its line of the journal."""
        outcome = str(draft.rejection.value) if draft.rejection else ADMITTED
        name = ""
        if self._is_full(candidate):
            outcome = Rejection.FUNCTION_FULL.value
        elif draft.folder is not None:
            number = self.per_name[_function(candidate), candidate.proposal.family]
            folder = numbered(draft.folder, candidate, self.recipe, number)
            name = folder.header.id
            place = self.out.joinpath(*name.split("/")[1:])
            if place.exists():  # written by a process that was killed before it could say so
                shutil.rmtree(place)
            write_task_folder(place, folder)
        entry = Entry(
            number=candidate.number,
            key=candidate.key,
            outcome=outcome,
            family=candidate.proposal.family,
            function=_function(candidate),
            task=name,
            seconds=round(seconds, 3),
        )
        self.journal.append(entry)
        self._count(entry)
        self.tell(f"{entry.family} in {entry.function}: {outcome}", self.progress())

    def _count(self, entry: Entry) -> None:
        self.outcomes[entry.outcome] += 1
        if entry.outcome == ADMITTED:
            self.per_function[entry.function] += 1
            self.per_name[entry.function, entry.family] += 1


def _function(candidate: Candidate) -> str:
    return f"{candidate.path}:{candidate.proposal.function}"
