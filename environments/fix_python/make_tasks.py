"""Plant bugs in every function, try them, choose, and write tasks.json: `python -m fix_python.make_tasks`.

Each function is tried in two processes with different hash seeds; a bug that looks different in them is rejected.
The result depends on the functions and on `SEED` only.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fix_python.admission import DRAWS, Rejection, Trial, trials
from fix_python.catalogue import digest, problems
from fix_python.selection import select
from fix_python.splits import assign

SEED = 1
FILE = Path(__file__).with_name("tasks.json")


def _try_function(name: str) -> list[Trial]:
    return trials(problems()[name], SEED)


def try_all(names: Sequence[str], hash_seed: int, processes: int) -> dict[str, list[Trial]]:
    """Try every bug of the named functions in fresh processes with this hash seed."""
    previous = os.environ.get("PYTHONHASHSEED")
    os.environ["PYTHONHASHSEED"] = str(hash_seed)  # read by the spawned interpreters when they start
    try:
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            return dict(zip(names, pool.map(_try_function, names, chunksize=2), strict=True))
    finally:
        if previous is None:
            del os.environ["PYTHONHASHSEED"]
        else:
            os.environ["PYTHONHASHSEED"] = previous


def agreed(first: Sequence[Trial], second: Sequence[Trial]) -> list[Trial]:
    """Return the trials of one function, rejecting those that two processes saw differently."""
    return [
        a if a.rejection is not None or a.seen == b.seen else replace(a, rejection=Rejection.UNSTABLE)
        for a, b in zip(first, second, strict=True)
    ]


def make_index(names: Sequence[str], processes: int = 2) -> tuple[dict, Mapping[str, int]]:
    """Return the content of tasks.json for these functions and the number of mutants by outcome."""
    first, second = (try_all(names, hash_seed, processes) for hash_seed in (1, 2))
    tried = {name: agreed(first[name], second[name]) for name in names}
    outcomes = Counter(str(t.rejection or "admitted") for found in tried.values() for t in found)
    chosen = select({name: [t for t in found if t.rejection is None] for name, found in tried.items()})
    split = assign(list(problems().values()))
    functions = {
        name: {"topic": problems()[name].topic, "split": split[name], "gold": digest(problems()[name].source)}
        for name in names
    }
    tasks = [entry for name in names for entry in _entries(name, chosen[name])]
    return {"seed": SEED, "draws": DRAWS, "functions": functions, "tasks": tasks}, outcomes


def _entries(name: str, chosen: Sequence[Trial]) -> list[dict]:
    numbers: Counter[str] = Counter()
    entries = []
    for trial in chosen:
        mutant = trial.mutant
        entries.append(
            {
                "function": name,
                "bug": f"{mutant.family}-{numbers[mutant.family]}",
                "line": mutant.line,
                "text": mutant.text,
                "visible": "fails" if trial.visible_failed else "passes",
                "failed": trial.failed,
                "executed": trial.executed,
                "cut_off": trial.cut_off,
            }
        )
        numbers[mutant.family] += 1
    return entries


def dump(index: dict) -> str:
    """Return the text of tasks.json: one function or task a line, so that changes can be read."""
    lines = ["{", f' "seed": {index["seed"]},', f' "draws": {index["draws"]},', ' "functions": {']
    lines.append(",\n".join(f"  {json.dumps(name)}: {json.dumps(f)}" for name, f in index["functions"].items()))
    lines += [" },", ' "tasks": [']
    lines.append(",\n".join(f"  {json.dumps(task)}" for task in index["tasks"]))
    return "\n".join([*lines, " ]", "}"]) + "\n"


def main() -> None:
    index, outcomes = make_index(list(problems()), os.cpu_count() or 1)
    FILE.write_text(dump(index), "utf-8")
    families = Counter(task["bug"].rpartition("-")[0] for task in index["tasks"])
    for title, counts in (("mutants", outcomes), ("tasks", families)):
        sys.stdout.write(f"{title}: {sum(counts.values())}\n")
        for name, count in sorted(counts.items(), key=lambda item: -item[1]):
            sys.stdout.write(f"  {name} {count}\n")


if __name__ == "__main__":
    main()
