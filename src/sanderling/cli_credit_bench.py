"""The verbs that compare estimators: `credit bench`, `credit compare`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from sanderling.cli_running import run_job

Names = Annotated[list[str] | None, Parameter(consume_multiple=True)]


def add_bench_commands(credit_app: App) -> None:
    """Add the verbs of this module."""
    credit_app.command(bench, name="bench")
    credit_app.command(compare, name="compare")


def bench(  # noqa: PLR0913 - the flags are a contract
    *,
    environments: Names = None,
    estimators: Names = None,
    updates: int | None = None,
    curves: Names = None,
    seeds: int = 16,
    seed: int = 5,
    processes: int | None = None,
    out: Path | None = None,
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Measure estimators against exact policy gradients: bias, turns for SNR 1, and what was expected of them.

    With --environments or --estimators only gradients are measured, unless --curves names studies as well.

    Parameters
    ----------
    environments:
        Environments of the suite; default: all.
    estimators:
        Arms of the bench, or any estimator as the setting credit.estimator names it; default: those that each
        environment is about.
    updates:
        Updates of 16 episodes per environment; default: 1000 to 4000, as each environment needs.
    curves:
        Studies of learning curves: truncation, revisits, stale-4, stale-16.
    seeds:
        Seeds of a learning curve.
    seed:
        Of everything that is drawn.
    processes:
        Parts that are measured at once; default: the number of cores.
    out:
        Folder to write credit-bench.md, .json and .svg to.
    json_:
        Progress goes to standard error; print one JSON object.
    """
    from sanderling.creditbench import Plan, run_bench
    from sanderling.creditbench.page import summary, write_results
    from sanderling.creditbench.studies import QUESTIONS, STUDIES

    whole = environments is None and estimators is None
    plan = Plan(
        environments=environments or tuple(QUESTIONS),
        studies=tuple(STUDIES) if curves is None and whole else curves or (),
        estimators=estimators or (),
        updates=updates,
        curve_seeds=seeds,
        seed=seed,
        processes=processes or os.cpu_count() or 1,
    )
    result = run_bench(plan, lambda line: print(line, file=sys.stderr, flush=True))
    files = write_results(result, out) if out is not None else []
    if json_:
        print(json.dumps({**result.as_json(), "files": [str(file) for file in files]}))
        return
    print("\n".join(summary(result)))
    for file in files:
        print(f"written {file}")


def compare(
    config: Path,
    *,
    out: Path | None = None,
    dry_run: Annotated[bool, Parameter(negative=())] = False,
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Train several estimators with the same budget of environment turns and compare them, paired by seed.

    The same command continues where it was stopped; finished runs aren't repeated.

    Parameters
    ----------
    config:
        TOML file with [train], [budget], [arms.<name>] and, where wanted, [tuning]; see recipes/credit-compare.toml.
    out:
        Folder of the runs and of comparison.json, .md and .svg; default: runs/<name of the comparison>.
    dry_run:
        Print the number of runs and their budget, and start nothing.
    json_:
        Progress goes to standard error; print one JSON object.
    """
    from sanderling.jobs.comparison import compare as run
    from sanderling.jobs.comparison_config import load_comparison

    settings = load_comparison(config)
    folder = out or Path("runs") / settings.name
    if dry_run:
        print(settings.plan())
        return
    stream = sys.stderr if json_ else sys.stdout
    found = run_job(run(settings, folder, stream=stream))
    if json_:
        print(json.dumps({**found.as_json(), "out": str(folder)}))
        return
    print((folder / "comparison.md").read_text("utf-8"))
