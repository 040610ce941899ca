"""Arms that trained with the same budget: curves, paired differences, the account of each, as JSON, page and picture."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sanderling.report.svg import Axis, Frame, band, line
from sanderling.store.estimators import paired_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCurve:
    """One run: solve rates on held-out tasks over environment turns."""

    seed: int
    turns: tuple[int, ...]  # spent before each evaluation, ascending
    solve_rates: tuple[float, ...]
    account: Mapping[str, int]  # what the whole run spent, by name of `Spending`

    def area(self, budget: int) -> float:
        """Return the mean solve rate over the first `budget` turns, between 0 and 1; lines join the evaluations.

        What was measured beyond the budget counts up to it; where a run ended before it, the last rate holds.
        """
        inside = np.array(sorted({0, budget, *(t for t in self.turns if t < budget)}), dtype=np.float64)
        return float(np.trapezoid(np.interp(inside, self.turns, self.solve_rates), inside) / budget)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmResult:
    """An arm with its runs, one per seed, and how it was tuned."""

    runs: tuple[RunCurve, ...]
    tuned: float | None = None
    tuned_at_edge: bool = False  # the best value was the smallest or the largest that was tried
    trials: Mapping[str, float] = field(default_factory=dict)  # area by value that was tried


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What a comparison found so far; seeds that not every arm has finished are in no difference."""

    name: str
    reference: str
    budget: int
    arms: Mapping[str, ArmResult]

    def paired(self, arm: str) -> tuple[tuple[float, float, float] | None, list[int]]:
        """Return (mean, low, high) of the difference in area to the reference over common seeds, and those seeds."""
        own = {run.seed: run.area(self.budget) for run in self.arms[arm].runs}
        other = {run.seed: run.area(self.budget) for run in self.arms[self.reference].runs}
        seeds = sorted(own.keys() & other.keys())
        return (paired_interval([own[s] - other[s] for s in seeds]) if seeds else None), seeds

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "reference": self.reference,
            "budget_turns": self.budget,
            "arms": {name: self._arm_json(name, result) for name, result in self.arms.items()},
        }

    def _arm_json(self, name: str, result: ArmResult) -> dict[str, Any]:
        difference, seeds = self.paired(name)
        value, low, high = difference or (None, None, None)
        return {
            "seeds": [run.seed for run in result.runs],
            "curve": [
                {"seed": run.seed, "turns": list(run.turns), "solve_rate": list(run.solve_rates)} for run in result.runs
            ],
            "area": [run.area(self.budget) for run in result.runs],
            "paired_seeds": seeds,
            "paired_difference": value,
            "interval": [_finite(low), _finite(high)],
            "ledger": summed([run.account for run in result.runs]),
            "tuning": {"value": result.tuned, "at_edge": result.tuned_at_edge, "areas": dict(result.trials)},
        }


def summed(accounts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return the sum of accounts, name by name."""
    names = {name: None for account in accounts for name in account}
    return {name: sum(account.get(name, 0) for account in accounts) for name in names}


def write_comparison(found: Comparison, folder: Path) -> list[Path]:
    """Write comparison.json, .md and .svg into `folder`; return the files."""
    files = {
        "comparison.json": json.dumps(found.as_json(), indent=1) + "\n",
        "comparison.md": document(found),
        "comparison.svg": _standalone(draw(found)) + "\n",
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    return [folder / name for name in files]


def document(found: Comparison) -> str:
    """Return the page as Markdown."""
    lines = [
        f"# {found.name}: arms with {found.budget:,} environment turns each\n",
        "Area: mean solve rate on held-out tasks over the budget. Differences are paired by seed, with 95 % intervals of "
        "Student's t. Turns count whatever became of them.\n",
        f"| arm | seeds | area | minus {found.reference} | final solve rate | tuned |",
        "|---|---|---|---|---|---|",
    ]
    for name, result in found.arms.items():
        if not result.runs:
            lines.append(f"| {name} | none yet | | | | |")
            continue
        areas, finals = [r.area(found.budget) for r in result.runs], [r.solve_rates[-1] for r in result.runs]
        difference, _ = found.paired(name)
        shown = "–" if name == found.reference or difference is None else _interval(difference)
        tuned = "–" if result.tuned is None else f"{result.tuned:g}{' (edge)' if result.tuned_at_edge else ''}"
        lines.append(f"| {name} | {len(areas)} | {np.mean(areas):.3f} | {shown} | {np.mean(finals):.3f} | {tuned} |")
    lines += ["\n![solve rate over environment turns](comparison.svg)\n", "## What was spent, all seeds together\n"]
    names = list(summed([run.account for result in found.arms.values() for run in result.runs]))
    lines += ["| arm | " + " | ".join(name.replace("_", " ") for name in names) + " |", "|---" * (len(names) + 1) + "|"]
    for name, result in found.arms.items():
        account = summed([run.account for run in result.runs])
        lines.append(f"| {name} | " + " | ".join(f"{account.get(key, 0):,}" for key in names) + " |")
    return "\n".join(lines) + "\n"


def draw(found: Comparison) -> str:
    """Return mean curves over the budget with the range of the seeds, as inline SVG."""
    x = Axis(low=0, high=found.budget, label="environment turns")
    frame = Frame(width=720, height=320, x=x, y=Axis(low=0.0, high=1.0, percent=True), right=110)
    grid = np.linspace(0, found.budget, 41)
    marks, row = [], 0
    for colour, (name, result) in enumerate(found.arms.items()):
        if not result.runs:
            continue
        curves = np.array([np.interp(grid, run.turns, run.solve_rates) for run in result.runs])
        xs = grid.tolist()
        marks.append(band(frame, xs, curves.min(0).tolist(), curves.max(0).tolist(), colour))
        marks.append(line(frame, xs, curves.mean(0).tolist(), colour))
        marks.append(f'<text class="c{colour}" x="{frame.width - 104:.0f}" y="{24 + 15 * row}">{name}</text>')
        row += 1
    return frame.draw(marks, title=f"{found.name}: solve rate over environment turns")


def _standalone(svg: str) -> str:
    colours = (
        "#0969da",
        "#cf222e",
        "#1a7f37",
        "#9a6700",
        "#8250df",
        "#57606a",
        "#bf3989",
        "#0550ae",
        "#116329",
        "#953800",
    )
    style = "text{font:11px system-ui,sans-serif;fill:#57606a}.grid{stroke:#d0d7de}.axis{stroke:#8c959f}"
    style += ".line{fill:none;stroke-width:2}.band{opacity:.12}"
    for index, colour in enumerate(colours):
        style += f".line.c{index}{{stroke:{colour}}}.band.c{index},text.c{index},.dot.c{index}{{fill:{colour}}}"
    opening, rest = svg.split(">", 1)
    opening = opening.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return f"{opening}><style>{style}</style>{rest}"


def _interval(difference: tuple[float, float, float]) -> str:
    value, low, high = difference
    return f"{value:+.3f} [{low:+.3f}, {high:+.3f}]"


def _finite(value: float | None) -> float | None:
    return value if value is not None and np.isfinite(value) else None
