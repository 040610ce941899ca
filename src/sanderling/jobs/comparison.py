"""Train several arms with the same budget, seed by seed, and say what differs.

Runs go one after the other, each in a folder of its own; finished ones aren't repeated and a broken one is resumed, so that the
same command goes on where it was. Seeds are the outer loop: after each of them the arms can be compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from sanderling.config import Config, load_config
from sanderling.errors import ConfigError
from sanderling.jobs.comparison_config import ComparisonConfig
from sanderling.jobs.settings import changed_settings
from sanderling.jobs.spending import Accounts
from sanderling.jobs.training import train
from sanderling.report.comparison import ArmResult, Comparison, RunCurve, write_comparison
from sanderling.report.terminal import ProgressStyle
from sanderling.store.reader import RunReader


@dataclass(frozen=True, slots=True, kw_only=True)
class _Runs:
    """Where the runs of a comparison lie and where they say what they do."""

    config: ComparisonConfig
    out: Path
    stream: TextIO

    async def curve(self, config: Config, folder: Path, seed: int) -> RunCurve:
        """Return the curve of a run, training it first where it isn't finished."""
        if not _finished(config, folder):
            resume = (folder / "config.toml").is_file()
            await train(config, folder, resume=resume, stream=self.stream, style=ProgressStyle.PLAIN)
        return read_curve(folder, seed)


async def compare(
    config: ComparisonConfig, out: Path, *, stream: TextIO, seen: Callable[[Comparison], None] = lambda _: None
) -> Comparison:
    """Tune, train and compare; after each seed the files in `out` are up to date and `seen` gets what is known.

    Args:
        config: arms, seeds, budget.
        out: folder of the runs and of comparison.json, .md and .svg.
        stream: where the runs report their progress.
        seen: called after each run.

    Raises:
        ConfigError: a folder holds a run with other settings.
        SanderlingError: a run failed; the others are kept.
    """
    runs = _Runs(config=config, out=out, stream=stream)
    results = {arm: await _tuned(runs, arm) for arm in config.arms}
    found = _comparison(config, results)
    for seed in config.seeds:
        for arm, result in results.items():
            training = config.run(arm, seed=seed, turns=config.budget.turns, tuned=result.tuned)
            curve = await runs.curve(training, out / "runs" / arm / f"seed={seed}", seed)
            results[arm] = ArmResult(
                runs=(*results[arm].runs, curve),
                tuned=result.tuned,
                tuned_at_edge=result.tuned_at_edge,
                trials=result.trials,
            )
            found = _comparison(config, results)
            write_comparison(found, out)
            seen(found)
    return found


def read_curve(folder: Path, seed: int) -> RunCurve:
    """Return solve rates over turns of a run, from its evaluations at temperature 1 and its rollouts.

    Raises:
        ConfigError: the run has no evaluation to make a curve of.
    """
    reader = RunReader(folder)
    accounts, points = Accounts(run=reader), {}
    for event in reader.events():
        if event["kind"] == "evaluation" and not str(event["label"]).endswith("-greedy"):
            points[int(event["step"])] = float(event["solve_rate"])
    if not points:
        raise ConfigError(f"{folder} has no evaluation; a comparison needs those before and after")
    steps = sorted(points)
    return RunCurve(
        seed=seed,
        turns=tuple(accounts.up_to(step).turns for step in steps),
        solve_rates=tuple(points[step] for step in steps),
        account=accounts.up_to(max(reader.steps(), default=0)).as_json(),
    )


async def _tuned(runs: _Runs, arm: str) -> ArmResult:
    """Return the arm with the value of the tuned setting that has the largest mean area, and no run yet."""
    tuning = runs.config.tuning
    if tuning is None:
        return ArmResult(runs=())
    areas: dict[float, float] = {}
    for value in tuning.values:
        found = []
        for seed in tuning.seeds:
            training = runs.config.run(arm, seed=seed, turns=tuning.turns, tuned=value)
            folder = runs.out / "tuning" / arm / f"{value:g}" / f"seed={seed}"
            found.append((await runs.curve(training, folder, seed)).area(tuning.turns))
        areas[value] = sum(found) / len(found)
    best = max(areas, key=lambda value: areas[value])
    return ArmResult(
        runs=(),
        tuned=best,
        tuned_at_edge=best in (min(tuning.values), max(tuning.values)),
        trials={f"{value:g}": area for value, area in areas.items()},
    )


def _finished(config: Config, folder: Path) -> bool:
    if not (folder / "config.toml").is_file():
        return False
    if changed := changed_settings(load_config([folder / "config.toml"]), config):
        raise ConfigError(
            f"{folder} was trained with other settings: {', '.join(changed)}; give another folder for this comparison"
        )
    events: list[dict[str, Any]] = RunReader(folder).events()
    return any(event["kind"] == "finished" for event in events)


def _comparison(config: ComparisonConfig, results: dict[str, ArmResult]) -> Comparison:
    return Comparison(name=config.name, reference=config.reference, budget=config.budget.turns, arms=dict(results))
