"""The verb `credit measure`: how well estimators agree with what turns were worth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from sanderling.cli_running import run_job
from sanderling.config import load_config, parse_overrides

if TYPE_CHECKING:
    from sanderling.jobs.credit_measurement import CreditMeasurement

Tokens = Annotated[str, Parameter(show=False, allow_leading_hyphen=True)]


def add_measure_command(app: App) -> None:
    """Add the verb."""
    app.command(measure, name="measure")


def measure(  # noqa: PLR0913 - the flags are a contract
    run: Path,
    *tokens: Tokens,
    source: str | None = None,
    episodes: int = 16,
    continuations: int = 8,
    estimator: list[str] | None = None,
    policy: str | None = None,
    seed: int = 0,
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Fork recorded episodes before each turn and hold estimators' advantages against what the continuations earn.

    Parameters
    ----------
    run:
        The run folder, or the folder of `eval --out`.
    tokens:
        Overrides of the run's settings, such as --engine.prompts=shared.
    source:
        Rollouts to measure, such as step=000001 or eval=before; default: the first ones.
    episodes:
        Number of episodes, drawn by the seed.
    continuations:
        Episodes that go on from each turn; at least 2. Their number sets how far the reference can be trusted.
    estimator:
        Only this one: a built-in name, module:Name or path.py:Name; may be given several times.
    policy:
        The policy that sampled the record, where the run no longer has it.
    seed:
        Of the choice of episodes and the sampled actions.
    json_:
        Print one JSON object.
    """
    from sanderling.jobs.credit_measurement import Request, measure_credit

    config = load_config([run / "config.toml"], parse_overrides(tokens))
    request = Request(
        run=run,
        source=source,
        episodes=episodes,
        continuations=continuations,
        estimators=tuple(estimator or ()),
        policy=policy,
        seed=seed,
    )
    found = run_job(measure_credit(config, request))
    if json_:
        print(json.dumps(found.as_json()))
        return
    _print(found)


def _print(found: CreditMeasurement) -> None:
    record = found.as_json()
    reference, cost = record["reference"], record["cost"]
    print(
        f"{record['source']} of {record['run']}: {record['episodes']} episodes of {record['tasks']} tasks, "
        f"{cost['measured_turns']} turns, {record['continuations']} continuations from each: {cost.get('forks', 0)} forks, "
        f"{cost.get('fork_turns', 0)} turns, {cost['wall_s']:.0f} s"
    )
    print(
        f"the reference against itself, half by half: correlation {_shown(reference['halves']['correlation'])}; so nothing can "
        f"correlate with it by more than {reference['ceiling']:.2f}"
    )
    for name, line in sorted(record["estimators"].items(), key=lambda item: -_value(item[1])):
        print(
            f"{name:22} correlation {_shown(line['correlation'])}  signs {_shown(line['sign_agreement'])} of "
            f"{line['decided_turns']}  further turns {line['auxiliary_turns']}"
        )
    for name, reason in record["refused"].items():
        print(f"{name:22} not measured: {reason.partition(';')[0]}")
    for reason, count in record["skipped"].items():
        print(f"{count} episodes left out: {reason}")


def _value(line: dict[str, Any]) -> float:
    return line["correlation"]["value"] if line["correlation"] else -2.0


def _shown(interval: dict[str, float | None] | None) -> str:
    if interval is None:
        return "undefined"
    if interval["low"] is None:
        return f"{interval['value']:+.2f}"
    return f"{interval['value']:+.2f} [{interval['low']:+.2f}, {interval['high']:+.2f}]"
