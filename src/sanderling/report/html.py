"""report.html: one file that says what a run did, made from the run folder alone.

It holds everything it shows (charts are inline SVG) and asks for nothing from outside; its content policy forbids
scripts and requests, so text that a policy wrote can't do anything either.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sanderling.report import charts
from sanderling.report.digest import (
    Decoding,
    Evaluation,
    Example,
    Rate,
    StepSummary,
    before_and_after,
    evaluations,
    examples,
    is_solved,
    pairing,
    screening,
    step_summaries,
    totals,
)
from sanderling.report.terminal import duration
from sanderling.report.visible import visible
from sanderling.store.failures import failed
from sanderling.store.reader import RunReader
from sanderling.store.run_folder import RunFolder
from sanderling.types import Graded, StepReport, Turn, Ungraded


def write_report(run: RunFolder | RunReader) -> Path:
    """Write report.html into the run folder, replacing an older one as a whole, and return its path.

    Raises:
        RunFolderError: the folder can't be read or written, or a file in it is damaged.
    """
    reader = run if isinstance(run, RunReader) else run.reader()
    target = reader.path / "report.html"
    text = render(reader)
    part = target.with_name(".report.html.part")
    try:
        part.write_text(text, "utf-8")
        part.replace(target)
    except OSError as error:
        raise failed("write", target, error) from error
    return target


def render(reader: RunReader) -> str:
    """Return the page as HTML."""
    page = Environment(
        loader=PackageLoader("sanderling.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page.filters |= {"svg": Markup, "visible": visible, "percent": _percent, "duration": duration, "words": _words}
    return page.get_template("report.html.j2").render(**_content(reader))


def _content(reader: RunReader) -> dict[str, Any]:
    reports, steps, found = reader.reports(), step_summaries(reader), evaluations(reader)
    environment, events = reader.environment(), reader.events()
    compared = [(kind, *before_and_after(found, kind)) for kind in Decoding]
    compared = [row for row in compared if row[1] is not None]
    _, before, after = compared[0] if compared else (None, None, None)
    return {
        "name": reader.path.name,
        "before": before,
        "after": after,
        "pairing": pairing(before, after) if before and after else None,
        "gauge": _gauge(compared),
        "decoding": compared[0][0].value if compared else "",
        "facts": _facts(reader, reports, steps, events),
        "curve": charts.learning_curve(steps, found),
        "evaluations": found,
        "health": charts.health_charts(reports),
        "stops": charts.stop_chart(steps),
        "time": charts.time_chart(reports),
        "phases": _phases(reports),
        "episode_time": _episode_time(reader),
        "accounts": _accounts(totals(reports), interrupted=any(event["kind"] == "resumed" for event in events)),
        "families": _families(before, after),
        "screening": screening(reader, reports),
        "isolation": _isolation(environment, events, reader),
        "examples": [[_shown(example) for example in row] for row in examples(reader, before, after)],
        "config": reader.config_text(),
        "environment": json.dumps(environment, indent=2),
        "incidents": [_incident(event) for event in events if event["kind"] not in _ROUTINE],
    }


_ROUTINE = frozenset(
    {"created", "sandbox", "agreement", "step", "checkpoint", "evaluation", "evaluated", "finished", "moved_aside"}
    | {"quarantined", "task_audited"}  # in the section on screening
)


def _facts(
    reader: RunReader, reports: Sequence[StepReport], steps: Sequence[StepSummary], events: Sequence[Mapping[str, Any]]
) -> list[tuple[str, str]]:
    facts = [("certificate", _certificate(reader.environment()))]
    facts += [("steps", str(reports[-1].step if reports else len(steps)))]
    if steps:
        facts.append(("training episodes", f"{sum(one.total for one in steps):,}"))
    if (seed := _seed(reader)) is not None:
        facts.append(("seed", str(seed)))
    if (wall := _wall(events)) is not None:
        facts.append(("wall clock", duration(wall)))
    return facts


def _certificate(environment: Mapping[str, Any]) -> str:
    """Return what is known of the environment's audit, for people."""
    found = environment.get("certificate")
    if isinstance(found, Mapping):
        return f"valid, of {found.get('at')}, {str(found.get('digest'))[:12]}"
    return "none: rewards were not audited"


def _seed(reader: RunReader) -> object | None:
    environment = reader.environment()
    if "seed" in environment:
        return environment["seed"]
    try:
        config = tomllib.loads(reader.config_text())
    except tomllib.TOMLDecodeError:
        return None
    sections = [config, *(value for value in config.values() if isinstance(value, dict))]
    return next((section["seed"] for section in sections if "seed" in section), None)


def _wall(events: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the seconds that the run was at work: from each start or resume to the last event before the next one."""
    total, start, last = 0.0, None, None
    for event in events:
        at = datetime.fromisoformat(event["at"])
        if event["kind"] in ("created", "resumed"):
            total += (last - start).total_seconds() if start and last else 0.0
            start = at
        last = at
    return total + (last - start).total_seconds() if start and last else None


def _gauge(compared: Sequence[tuple[Decoding, Evaluation | None, Evaluation | None]]) -> list[dict[str, Any]]:
    """Return the headline's rows: the main decoding first, each with its evaluation before and after."""
    rows = []
    for kind, *pair in compared:
        for colour, (label, one) in enumerate(zip(("before", "after"), pair, strict=True)):
            if one is not None and one.rate.graded:
                name = label if len(compared) == 1 else f"{label}, {kind.value}"
                rows.append({"label": name, "rate": one.rate, "excluded": one.excluded, "colour": colour, "kind": kind})
    return rows


def _phases(reports: Sequence[StepReport]) -> list[tuple[str, float, float, float]]:
    """Return (phase, seconds in all, mean per step, share of the steps' wall clock)."""
    wall = sum(report.timing.get("step_s", 0.0) for report in reports)
    rows = []
    for name, values in charts.phase_seconds(reports).items():
        total = sum(values)
        rows.append((name, total, total / len(values), total / wall if wall > 0 else 0.0))
    return sorted(rows, key=lambda row: -row[1])


def _episode_time(reader: RunReader) -> list[tuple[str, float]]:
    """Return what share of the training episodes' own time each part took."""
    sums = dict.fromkeys(("sample_s", "tools_s", "grade_s", "sandbox_s"), 0.0)
    for step in reader.steps():
        for head in reader.heads(f"step={step:06d}"):
            for name in sums:
                sums[name] += head[name]
    whole = sum(sums.values())
    return [(name.removesuffix("_s"), seconds / whole) for name, seconds in sums.items()] if whole > 0 else []


def _accounts(counts: Mapping[str, int], *, interrupted: bool) -> list[dict[str, Any]]:
    """Return the two sums of the run. What they leave open is named where it has a cause, and shown as wrong where not."""
    if "submitted" not in counts:
        return []
    sums = []
    parts = [(name, counts.get(name, 0)) for name in ("graded", "ungraded", "running")]
    rest = counts["submitted"] - sum(number for _, number in parts)
    if interrupted and rest > 0:
        parts.append(("under way at an interruption", rest))
    sums.append(("submitted", counts["submitted"], parts))
    if "trained" in counts:
        parts = [("trained", counts["trained"])]
        parts += [(_words(name), n) for name, n in sorted(counts.items()) if name.startswith("dropped_")]
        rest = counts.get("graded", 0) - sum(number for _, number in parts)
        if rest > 0:
            parts.append(("not handed to training yet", rest))
        sums.append(("graded", counts.get("graded", 0), parts))
    return [
        {"name": name, "total": total, "parts": parts, "adds_up": sum(number for _, number in parts) == total}
        for name, total, parts in sums
    ]


def _families(before: Evaluation | None, after: Evaluation | None) -> list[dict[str, Any]]:
    if before is None or after is None:
        return []
    names = sorted({*before.by_family, *after.by_family})
    if len(names) >= max(len(before.rewards), len(after.rewards)):
        return []  # a family per task says nothing
    none = Rate(solved=0, graded=0)
    rows = [{"name": n, "before": before.by_family.get(n, none), "after": after.by_family.get(n, none)} for n in names]
    return sorted(rows, key=lambda row: (-(row["after"].value if row["after"].graded else -1.0), row["name"]))


def _isolation(
    environment: Mapping[str, Any], events: Sequence[Mapping[str, Any]], reader: RunReader
) -> dict[str, Any]:
    """Return what contained the commands: the backend's own words (in the environment or an event) and the records'."""
    told = [environment.get("sandbox"), *(event for event in events if event["kind"] == "sandbox")][-1]
    known = told if isinstance(told, dict) else {}
    seen: dict[str, int] = {}
    for source in reader.sources():
        for head in reader.heads(source):
            seen[head["isolation"]] = seen.get(head["isolation"], 0) + 1
    keys = ("name", "mode", "isolation")
    return {
        "backend": " · ".join(str(known[key]) for key in keys if known.get(key)),
        "seen": sorted(seen.items()),
        "open_risks": list(known.get("open_risks") or ()),
    }


def _incident(event: Mapping[str, Any]) -> tuple[str, str, str]:
    rest = {key: value for key, value in event.items() if key not in ("at", "kind")}
    return event["at"][:19].replace("T", " "), _words(event["kind"]), ", ".join(f"{k}: {v}" for k, v in rest.items())


def _shown(example: Example) -> dict[str, Any]:
    record, verdict = example.member.trajectory, example.member.verdict
    match verdict:
        case Graded(reward=reward, evidence=evidence):
            outcome, solved = f"reward {reward:g}", is_solved(reward)
            checks = f"{evidence.passed} of {evidence.required} hidden checks passed" if evidence else "not graded"
            notes = evidence.notes if evidence else ()
        case Ungraded(cause=cause, phase=phase):
            outcome, solved, checks, notes = "ungraded", False, f"{phase}: {cause}", ()
    return {
        "title": example.title,
        "id": record.id,
        "task": record.task_id,
        "source": example.source,
        "prompt": example.prompt,
        "turns": [_turn(index, turn) for index, turn in enumerate(record.turns)],
        "stop": record.stop.value,
        "outcome": outcome,
        "solved": solved,
        "checks": checks,
        "notes": notes,
    }


def _turn(index: int, turn: Turn) -> dict[str, Any]:
    action, seen = turn.action, turn.observation
    count = len(action.token_ids)
    versions = sorted(set(action.policy_versions.tolist()))
    facts = [f"{count} token{'' if count == 1 else 's'}"]
    if count:
        facts.append(f"mean log-probability {float(action.rollout_logprobs.mean()):.2f}")
        facts.append(f"policy {versions[0]}" if len(versions) == 1 else f"policies {versions[0]} to {versions[-1]}")
    if action.finish_reason == "length":
        facts.append("cut by its token limit")
    if seen.exit_code is not None:
        facts.append(f"exit code {seen.exit_code}")
    return {
        "number": index + 1,
        "action": action.text,
        "observation": seen.text,
        "source": seen.source,
        "omitted": seen.omitted_bytes,
        "facts": " · ".join(facts),
    }


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %" if value == value and abs(value) != float("inf") else "none"  # noqa: PLR0124


def _words(name: str) -> str:
    return name.replace("_", " ")
