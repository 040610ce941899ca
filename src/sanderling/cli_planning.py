"""The verb that says what a run would take: `plan`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from sanderling.config import parse_overrides


def add_planning_commands(app: App) -> None:
    """Add the verb of this module."""
    app.command(plan)


def plan(
    source: Path,
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Predict step time, idle shares, staleness, tokens and cost: sanderling plan CONFIG.toml|RUN [--section.key=value ...].

    The real scheduler, episodes and training loop run on a clock that jumps, with parts that only take time.

    Parameters
    ----------
    source:
        A plan (TOML: workload, engine, learner, machine, price, rollout), or the folder of a run of a few steps.
    tokens:
        Overrides such as --engine.replicas=8 or --staleness=[0,2].
    json_:
        Print one JSON object.
    """
    from sanderling.simulation.plan import make_plan

    made = make_plan(source, parse_overrides(tokens))
    print(json.dumps(made.as_json()) if json_ else "\n".join(made.lines()))
