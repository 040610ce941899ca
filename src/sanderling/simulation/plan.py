"""`sanderling plan`: the predictions of a plan or of a recorded run, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sanderling.simulation.calibration import Calibrated, calibrated
from sanderling.simulation.config import PlanConfig, load_plan, revised
from sanderling.simulation.prediction import Prediction, predict
from sanderling.simulation.recorded import read_run
from sanderling.simulation.scripts import DrawnWorkload

_ROWS: Sequence[tuple[str, str, str]] = (
    ("step", "step_s", "{:,.1f} s"),
    ("  waiting for episodes", "rollout_s", "{:,.1f} s"),
    ("  learning", "train_s", "{:,.1f} s"),
    ("  weight push", "push_s", "{:,.1f} s"),
    ("learner idle", "learner_idle_share", "{:.0%}"),
    ("engine idle", "engine_idle_share", "{:.0%}"),
    ("engine slots in use", "engine_fill", "{:.0%}"),
    ("environments, most", "environments_most", "{:,.0f}"),
    ("environments, mean", "environments_mean", "{:,.0f}"),
    ("staleness, mean", "staleness_mean", "{:.2f}"),
    ("staleness, most", "staleness_max", "{:.0f}"),
    ("tokens discarded", "discarded_share", "{:.1%}"),
    ("episodes without advantage", "dead_share", "{:.0%}"),
    ("attempts retried per step", "retried", "{:,.1f}"),
    ("tokens sampled per step", "sampled_tokens", "{:,.0f}"),
    ("tokens trained per step", "trained_tokens", "{:,.0f}"),
    ("tokens sampled per second", "tokens_per_s", "{:,.0f}"),
    ("cost per step", "cost", "{:,.2f}"),
    ("cost per million trained tokens", "cost_per_million_trained_tokens", "{:,.2f}"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What was planned for, and one prediction for each bound of staleness."""

    source: Path
    config: PlanConfig
    predictions: tuple[Prediction, ...]
    repeated: Calibrated | None  # of a recorded run: how well its own simulation repeats it

    def as_json(self) -> dict[str, Any]:
        record: dict[str, Any] = {
            "source": str(self.source),
            "config": self.config.model_dump(mode="json"),
            "predictions": [prediction.as_json() for prediction in self.predictions],
        }
        if self.repeated is not None:
            record["recorded"] = dict(self.repeated.recorded)
            record["repeated"] = self.repeated.repeated.as_json()
        return record

    def lines(self) -> list[str]:
        """Return the predictions as a table, a column for each bound."""
        columns = [f"max_staleness {p.max_staleness}" for p in self.predictions]
        schedules = [p.schedule for p in self.predictions]
        table = [("", *columns), ("schedule", *schedules)]
        for label, name, form in _ROWS:
            table.append((label, *(form.format(getattr(p, name)) for p in self.predictions)))
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join(_cells(row, widths)).rstrip() for row in table]
        if self.repeated is not None:
            recorded, simulated = self.repeated.recorded["step_s"], self.repeated.repeated.step_s
            lines.append(
                f"The run itself: {recorded:.2f} s per step recorded, {simulated:.2f} s simulated "
                f"({simulated / recorded - 1:+.0%})"
            )
        return lines


def _cells(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]


def make_plan(source: Path, overrides: Mapping[str, Any]) -> Plan:
    """Predict what training takes, from a TOML file or from the folder of a run of a few steps.

    Args:
        source: the file or folder.
        overrides: settings of `PlanConfig` by dotted name, which come last; those of a run's plan are found by
            simulating it.

    Raises:
        ConfigError: there is neither, a setting is wrong, or the run can't be planned from.
        RunFolderError: a file of the run is damaged.
    """
    if not source.is_dir():
        config = load_plan(source, overrides)
        workload = DrawnWorkload(config.workload, config.seed)
        return Plan(
            source=source,
            config=config,
            predictions=tuple(predict(config, workload, bound) for bound in config.staleness),
            repeated=None,
        )
    run = read_run(source)
    found = calibrated(run)
    config = revised(found.config.model_dump(), overrides, str(source))
    made = tuple(predict(config, found.workload, bound, batch=run.batch, ends=True) for bound in config.staleness)
    return Plan(source=source, config=config, predictions=made, repeated=found)
