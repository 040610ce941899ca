"""The tasks: fix one planted bug in one small function."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from fix_python.admission import example_arguments
from fix_python.catalogue import digest, problems
from fix_python.problem import Problem
from fix_python.splits import SPLITS
from sanderling.errors import TaskError
from sanderling.types import Limits, Task
from sanderling.verify.recording import RecordedFunction

FILE = "solution.py"
EXAMPLES = "examples.json"
LIMITS = Limits(
    command_s=5.0,
    command_cpu_s=4.0,
    output_bytes=4096,
    disk_mb=16,
    memory_mb=256,
    processes=16,
    max_turns=40,
    max_context_tokens=768,
    max_action_tokens=32,
)
HELD_OUT_LIMITS = replace(LIMITS, max_turns=80, max_context_tokens=1536)
"""Practice teaches to search until the visible calls are right; it is cut early for its cost, a search that counts is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of tasks.json: which function, which line of it was replaced by what."""

    function: str
    bug: str  # family and number
    line: int
    text: str
    visible: str  # "fails": at least one example shows the bug; "passes": none does
    failed: int  # hidden calls that showed it when it was admitted
    executed: int  # hidden calls made then
    cut_off: int

    @property
    def family(self) -> str:
        return self.bug.rpartition("-")[0]


@cache
def load_index() -> tuple[Mapping[str, Mapping[str, str]], Mapping[str, Entry]]:
    """Return the functions of tasks.json and its entries by task id, in the file's order."""
    data = json.loads(Path(__file__).with_name("tasks.json").read_text("utf-8"))
    functions = data["functions"]
    entries = [Entry(**item) for item in data["tasks"]]
    return functions, {f"fix_python/{functions[e.function]['split']}/{e.function}/{e.bug}": e for e in entries}


def planted(problem: Problem, entry: Entry) -> str:
    """Return the source of a problem with the entry's bug in it."""
    lines = problem.source.split("\n")
    lines[entry.line - 1] = entry.text
    return "\n".join(lines)


@cache
def examples_file(function: str) -> bytes:
    """Return the visible calls with their right results: what /tools/visible.py compares with."""
    problem = problems()[function]
    gold = RecordedFunction(problem.source, function)
    calls = []
    for arguments in example_arguments(problem):
        observed = gold(arguments)
        calls.append({"call": arguments, **observed.as_json()})
    data = {"function": function, "calls": calls}
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()  # visible.py evaluates it


class FixPythonTasks:
    """Implements `tasks.protocol.TaskSet` over tasks.json."""

    def splits(self) -> tuple[str, ...]:
        return SPLITS

    def ids(self, split: str) -> Sequence[str]:
        if split not in SPLITS:
            raise TaskError(f"fix_python has no split {split!r}; it has {', '.join(SPLITS)}")
        return [task_id for task_id in load_index()[1] if task_id.split("/")[1] == split]

    def get(self, task_id: str) -> Task:
        entry, problem = self._find(task_id)
        split = task_id.split("/")[1]
        return Task(
            id=task_id,
            prompt=f"Fix the bug in {entry.function}.",
            base={FILE: planted(problem, entry).encode(), EXAMPLES: examples_file(entry.function)},
            editable=(FILE,),
            limits=HELD_OUT_LIMITS if split == "held-out" else LIMITS,
            metadata={
                "family": entry.family,
                "topic": problem.topic,
                "function": entry.function,
                "split": split,
                "visible": entry.visible,
            },
        )

    def problem(self, task_id: str) -> Problem:
        """Return the problem behind a task; for the verifier and for reports, never for the agent.

        Raises:
            TaskError: no such task.
        """
        return self._find(task_id)[1]

    def _find(self, task_id: str) -> tuple[Entry, Problem]:
        functions, entries = load_index()
        if task_id not in entries:
            raise TaskError(f"no task {task_id!r}; ids look like {next(iter(entries))!r}, `ids(split)` lists them")
        entry = entries[task_id]
        problem = problems().get(entry.function)
        if problem is None or digest(problem.source) != functions[entry.function]["gold"]:
            raise TaskError(
                f"tasks.json is older than the function {entry.function!r}; run python -m fix_python.make_tasks"
            )
        return entry, problem
