"""Which planted bugs become tasks (probe D10), and the committed index."""

import itertools
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from fix_python.admission import (
    Rejection,
    check_gold,
    example_arguments,
    hidden_arguments,
    trials,
    try_mutant,
)
from fix_python.catalogue import digest, problems
from fix_python.make_tasks import agreed, dump
from fix_python.problem import Problem
from fix_python.selection import FAMILY_SHARE, PER_FAMILY_IN_FUNCTION, PER_FUNCTION
from fix_python.splits import HELD_OUT, NEAR, SPLITS, TRAIN, assign, clusters, pairs
from fix_python.tasks import FixPythonTasks, load_index, planted

from sanderling.errors import TaskError
from sanderling.tasks.mutation import Mutant, changed_line

SUM_FROM = """\
def sum_from(items: list, low: int) -> int:
    \"\"\"Sum of the items that are low or more.\"\"\"
    total = 0
    for item in items:
        if item >= low:
            total += item
    return total
"""


def make_problem(source, **changes):
    name = source.split("(")[0].removeprefix("def ")
    base = Problem(
        name=name,
        topic="test",
        source=source,
        function=lambda: None,
        examples=(([1, 2, 3], 2), ([], 0), ([5], 5)),
        cases=lambda rng: ([rng.randint(0, 5) for _ in range(rng.randint(0, 4))], rng.randint(0, 5)),
    )
    return replace(base, **changes)


def attempt(problem, old, new):
    examples, hidden = example_arguments(problem), hidden_arguments(problem, 1, 128)
    gold = check_gold(problem, examples, hidden)
    mutant = Mutant(source=problem.source.replace(old, new), family="test", line=1, description="")
    assert mutant.source != problem.source or old == new
    return try_mutant(problem.name, mutant, examples, hidden, gold)


def test_probe_d10_only_the_good_task_is_admitted():
    problem = make_problem(SUM_FROM)
    good = attempt(problem, "total += item", "total = item")
    assert good.rejection is None
    assert 0.15 <= good.failed / good.executed < 1
    assert good.visible_failed == 1
    # the reference fails, in three ways
    for line, why in (
        ("sum_from.n = getattr(sum_from, 'n', 0) + 1; return total + sum_from.n", "deterministic"),
        ("return object()", "unknown type"),
        ("while True: pass", "does not end"),
    ):
        with pytest.raises(TaskError, match=why):
            attempt(make_problem(SUM_FROM.replace("return total", line)), "", "")
    # doing nothing would be paid
    assert attempt(problem, "item >= low", "not item < low").rejection is Rejection.EQUIVALENT
    # so quiet that doing nothing would be paid often
    quiet = attempt(problem, "total = 0\n", "total = int(len(items) == 4 and low == 5)\n")
    assert quiet.rejection is Rejection.TOO_QUIET
    # the file can't be loaded
    assert attempt(problem, "items: list", "items: nowhere").rejection is Rejection.NOT_LOADED
    # the verdict differs from process to process
    unstable = agreed([good], [replace(good, seen="other")])
    assert [t.rejection for t in unstable] == [Rejection.UNSTABLE]


def test_probe_d10_the_report_is_reproducible():
    problem = next(iter(problems().values()))
    assert trials(problem, 1) == trials(problem, 1)
    assert trials(problem, 1) != trials(problem, 2)


def test_a_bug_that_never_ends_is_cut_off():
    trial = attempt(make_problem(SUM_FROM), "total = 0\n", "total = 0\n    while items: pass\n")
    assert trial.cut_off == 2
    assert trial.rejection is None
    assert trial.executed < 128


def test_a_shared_default_is_noticed_from_call_to_call():
    source = """\
def gather(item: int, result: list | None = None) -> list:
    \"\"\"Add item to result, or to a new list.\"\"\"
    if result is None:
        result = []
    result.append(item)
    return result
"""
    problem = make_problem(source, examples=((1,), (2, [1])), cases=lambda rng: (rng.randint(0, 9),))
    trial = attempt(problem, "| None = None", "| None = []")
    assert trial.rejection is None
    assert trial.failed >= 127


def sample_entries():
    functions, entries = load_index()
    names = sorted(functions, key=lambda name: digest(f"sample {name}"))[:4]
    return {name: [e for e in entries.values() if e.function == name] for name in names}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a cut-off inside a collector callback
@pytest.mark.parametrize("name", sorted(sample_entries()))
@pytest.mark.slow
def test_index_is_what_admission_finds(name):
    problem = problems()[name]
    found = {t.mutant.source: t for t in trials(problem, json.loads(index_text())["seed"]) if t.rejection is None}
    entries = sample_entries()[name]
    assert entries
    for entry in entries:
        trial = found[planted(problem, entry)]
        assert (trial.mutant.family, trial.mutant.line) == (entry.family, entry.line)
        assert (trial.failed, trial.executed, trial.cut_off) == (entry.failed, entry.executed, entry.cut_off)
        assert entry.visible == ("fails" if trial.visible_failed else "passes")


def index_text():
    import fix_python

    return (Path(fix_python.__file__).parent / "tasks.json").read_text("utf-8")


def test_index_is_complete_and_written_in_one_form():
    functions, entries = load_index()
    assert dump(json.loads(index_text())) == index_text()
    assert {name: f["gold"] for name, f in functions.items()} == {
        name: digest(p.source) for name, p in problems().items()
    }
    assert {e.function for e in entries.values()} == set(problems())
    assert len(entries) >= 1500


def test_every_task_is_one_line_away_from_right():
    tasks = FixPythonTasks()
    sources = set()
    for split in tasks.splits():
        for task_id in tasks.ids(split):
            task, problem = tasks.get(task_id), tasks.problem(task_id)
            source = task.base["solution.py"].decode()
            assert changed_line(problem.source, source) is not None, task_id
            assert task.editable == ("solution.py",)
            assert task_id == f"fix_python/{split}/{task.metadata['function']}/{task_id.split('/')[3]}"
            assert problem.source.encode() not in task.base.values()
            sources.add(source)
    assert len(sources) == sum(len(tasks.ids(split)) for split in tasks.splits())


def test_no_function_and_no_family_dominates():
    entries = list(load_index()[1].values())
    assert max(Counter(e.function for e in entries).values()) <= PER_FUNCTION
    assert max(Counter((e.function, e.family) for e in entries).values()) <= PER_FAMILY_IN_FUNCTION
    assert max(Counter(e.family for e in entries).values()) <= FAMILY_SHARE * len(entries) + 1
    assert min(e.failed / e.executed for e in entries) >= 0.15


def test_unknown_names_are_refused():
    tasks = FixPythonTasks()
    with pytest.raises(TaskError, match="no split 'test'"):
        tasks.ids("test")
    with pytest.raises(TaskError, match="no task 'fix_python/train/none/constant-0'"):
        tasks.get("fix_python/train/none/constant-0")


def test_splits_hold_different_functions(record_property):
    everything = list(problems().values())
    split = assign(everything)
    functions, entries = load_index()
    assert split == {name: f["split"] for name, f in functions.items()}
    for task_id, entry in entries.items():
        assert task_id.split("/")[1] == split[entry.function]
    by_topic = Counter((p.topic, split[p.name]) for p in everything)
    for topic in {p.topic for p in everything}:
        share = by_topic[topic, HELD_OUT] / (by_topic[topic, TRAIN] + by_topic[topic, HELD_OUT])
        assert 0.15 <= share <= 0.4, topic
    across = [pair for pair in pairs(everything) if split[pair.first] != split[pair.second]]
    for view, group in itertools.groupby(sorted(across, key=lambda p: p.view), key=lambda p: p.view):
        nearest = max(group, key=lambda p: p.likeness)
        record_property(
            f"nearest pair across the split, {view}", f"{nearest.likeness:.3f} {nearest.first} {nearest.second}"
        )
        assert nearest.likeness < NEAR, nearest
    sources = {s: {p.source for p in everything if split[p.name] == s} for s in SPLITS}
    assert not sources[TRAIN] & sources[HELD_OUT]


def test_a_renamed_copy_stays_in_its_split():
    first = make_problem(SUM_FROM)
    copy = SUM_FROM.replace("sum_from", "add_up").replace("items", "rows").replace("item", "row")
    second = make_problem(copy.replace("total", "result").replace("= 0", "= 1"))
    others = list(problems().values())
    assert ("add_up", "sum_from") in clusters([first, second, *others])
    split = assign([first, second, *others])
    assert split["add_up"] == split["sum_from"]


def test_draws_depend_on_the_seed_only():
    problem = next(iter(problems().values()))
    assert hidden_arguments(problem, 1, 20) == hidden_arguments(problem, 1, 20)
    assert hidden_arguments(problem, 1, 20) != hidden_arguments(problem, 2, 20)
    assert problem.draw(Random(3), 5) == problem.draw(Random(3), 5)
