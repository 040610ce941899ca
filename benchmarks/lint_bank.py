"""Precision and recall of the lint over final changes, on the labelled bank and on the tasks of fix_python.

    python benchmarks/lint_bank.py [--tasks 300] [--json]

The bank holds hostile and honest changes (src/sanderling/screening/bank). From fix_python come honest ones only: for each task
the right line put back, and as wrong attempts three other mutants of its function. About 10 CPU-seconds for 300 tasks.
"""

from __future__ import annotations

import argparse
import json
from itertools import islice
from random import Random

from fix_python.tasks import FILE, FixPythonTasks

from sanderling.screening.bank import Change, findings, load_bank, measure
from sanderling.tasks.mutation import mutants

ATTEMPTS = 3


def honest_changes(count: int, seed: int = 0) -> list[Change]:
    """Return right and wrong repairs of `count` tasks of both splits."""
    tasks, rng = FixPythonTasks(), Random(seed)
    ids = [task_id for split in tasks.splits() for task_id in tasks.ids(split)]
    changes = []
    for task_id in rng.sample(ids, min(count, len(ids))):
        source = tasks.problem(task_id).source
        wrong = [bug.source for bug in mutants(source)]
        attempts = [source, *islice((wrong[i] for i in rng.sample(range(len(wrong)), len(wrong))), ATTEMPTS)]
        base = tasks.get(task_id).base
        changes += [
            Change(name=f"{task_id}#{number}", hostile=False, base=base, after={FILE: text.encode()})
            for number, text in enumerate(attempts)
        ]
    return changes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    bank, repairs = load_bank(), honest_changes(options.tasks)
    results = {"bank": measure(bank).as_json(), "fix_python": measure(repairs).as_json()}
    if options.json:
        print(json.dumps(results))
        return
    for name, rates in results.items():
        for key in ("precision", "recall", "false_alarm_rate"):
            rate = rates[key]
            assert isinstance(rate, dict)
            if rate["n"]:
                print(f"{name}: {key} {rate['value']:.3f} [{rate['low']:.3f}, {rate['high']:.3f}], n = {rate['n']}")
        print(f"{name}: missed {rates['missed']}, false alarms {rates['false_alarms']}")
    for change in repairs:
        for found in findings(change):
            print(f"{change.name}: {found.screen}: {found.quote}")


if __name__ == "__main__":
    main()
