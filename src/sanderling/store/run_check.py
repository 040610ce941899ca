"""Does a run folder hold what it should? Accounts, tasks, schema, checkpoints and the log of episodes. Changes nothing."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sanderling.errors import RunFolderError
from sanderling.store import schema
from sanderling.store.checkpoint_folder import HIDDEN, by_step, find_defect, state_of
from sanderling.store.episode_log import files, find, lines
from sanderling.store.metrics import check_declared
from sanderling.store.reader import RunReader
from sanderling.types import StepReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    problems: tuple[str, ...]  # what is wrong
    notes: tuple[str, ...] = ()  # what is not, and worth knowing: what a resume will clear up

    @property
    def ok(self) -> bool:
        return not self.problems

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "ok": self.ok, "problems": list(self.problems), "notes": list(self.notes)}


def check_run(path: Path) -> list[Check]:
    """Return every check of a run folder; a run that is going on may be checked at any time.

    Raises:
        RunFolderError: there is no run at `path`.
    """
    reader = RunReader(path)
    steps = (
        ("files", _files),
        ("steps", _steps),
        ("accounts", _accounts),
        ("tasks", _tasks),
        ("schema", _schema),
        ("checkpoints", _checkpoints),
        ("log", _log),
    )
    return [_checked(name, look, reader) for name, look in steps]


def _checked(name: str, look: Any, reader: RunReader) -> Check:
    """Run one check; what can't be read is a problem of the check that needs it."""
    found: list[tuple[str, str]] = []
    try:
        found += look(reader)
    except (RunFolderError, OSError, KeyError, TypeError, ValueError, pa.ArrowException) as error:
        found.append(("problem", f"can't be read: {error}"))
    return Check(
        name=name,
        problems=tuple(text for kind, text in found if kind == "problem"),
        notes=tuple(text for kind, text in found if kind == "note"),
    )


def _files(reader: RunReader) -> Iterator[tuple[str, str]]:
    tomllib.loads(reader.config_text())
    reader.environment()
    reader.events()
    reader.reports()
    for name in ("metrics.jsonl", "events.jsonl"):
        file = reader.path / name
        if not file.exists():
            yield ("note" if name == "metrics.jsonl" else "problem"), f"{name} is missing"
        elif (content := file.read_bytes()) and not content.endswith(b"\n"):
            yield "note", f"the last line of {name} is torn: a process was killed while it wrote it"
    for left in sorted(
        [*(reader.path / "rollouts").glob(".*.part"), *(reader.path / "checkpoints").glob(f"{HIDDEN}*")]
    ):
        yield "note", f"{left.relative_to(reader.path)} was being written when a process was killed"


def _steps(reader: RunReader) -> Iterator[tuple[str, str]]:
    reports = reader.reports()
    numbers = [report.step for report in reports]
    if numbers != list(range(1, len(numbers) + 1)):
        yield "problem", f"metrics.jsonl has the steps {_short(numbers)}, expected 1 to {len(numbers)}, each once"
    version = 0
    for report in reports:
        check_declared(report)
        made = report.counts.get("updates", 1)
        if report.policy_version != version + made:
            yield (
                "problem",
                f"step {report.step}: policy version {report.policy_version} after {version} and {made} updates",
            )
        version = report.policy_version
    bound = tomllib.loads(reader.config_text()).get("rollout", {}).get("max_staleness")
    for report in reports:
        if bound is not None and report.metrics.get("staleness_max", 0) > bound:
            yield (
                "problem",
                f"step {report.step}: staleness {report.metrics['staleness_max']:.0f}, max_staleness is {bound}",
            )
    stored = reader.steps()
    if missing := sorted(set(numbers) - set(stored)):
        yield "problem", f"no rollouts of the steps {_short(missing)}"
    if extra := sorted(set(stored) - set(numbers)):
        kind = "note" if extra == [len(numbers) + 1] else "problem"
        yield kind, f"rollouts of the steps {_short(extra)}, which metrics.jsonl does not have"


def _accounts(reader: RunReader) -> Iterator[tuple[str, str]]:
    total: Counter[str] = Counter()
    stored: Counter[str] = Counter()
    reports = reader.reports()
    for report in reports:
        flow = {name: value for name, value in report.counts.items() if name != "running"}
        total.update(flow)
        if negative := [name for name, value in flow.items() if value < 0]:
            yield "problem", f"step {report.step}: {', '.join(negative)} below 0"
        if total["submitted"] != total["graded"] + total["ungraded"] + report.counts.get("running", 0):
            yield (
                "problem",
                f"until step {report.step}: submitted {total['submitted']} != graded {total['graded']} + ungraded "
                f"{total['ungraded']} + running {report.counts.get('running', 0)}",
            )
        if report.step in reader.steps():
            roots = [h for h in reader.heads(f"step={report.step:06d}") if h["parent_id"] is None]
            members = Counter(head["membership"] for head in roots)
            stored.update(members)
            yield from _fates(report, members["member"])
    yield from _all_stored(reader, reports, total, stored)


def _fates(report: StepReport, graded: int) -> Iterator[tuple[str, str]]:
    fates = {name: n for name, n in report.counts.items() if name == "trained" or name.startswith("dropped_")}
    if sum(fates.values()) != graded:
        yield "problem", f"step {report.step}: {graded} graded episodes are stored, and {fates} is what became of them"


def _all_stored(
    reader: RunReader, reports: Sequence[StepReport], total: Counter[str], stored: Counter[str]
) -> Iterator[tuple[str, str]]:
    """Compare what was counted with what is on disk; episodes of groups that aren't trained yet are in the log."""
    if not reports:
        return
    standings = find(reader.path / "episodes", reports[-1].step, 0).standings
    ahead = Counter(standings[-1].ahead.values()) if standings else Counter()
    running = reports[-1].counts.get("running", 0)
    if not standings and running:
        return
    graded = standings[-1].accounts["graded"] if standings else total["graded"]
    if graded != stored["member"] + ahead["graded"]:
        yield (
            "problem",
            f"{graded} episodes were graded, {stored['member']} are stored with their steps and {ahead['graded']} "
            "wait for theirs",
        )
    if standings and standings[-1].reported["submitted"] != total["submitted"]:
        yield (
            "problem",
            f"the log has {standings[-1].reported['submitted']} submitted attempts after step {reports[-1].step}, "
            f"metrics.jsonl has {total['submitted']}",
        )


def _tasks(reader: RunReader) -> Iterator[tuple[str, str]]:
    """Each group in its step, each task once per epoch, each trajectory once."""
    per_step = tomllib.loads(reader.config_text())["rollout"]["groups_per_step"]
    names: Counter[str] = Counter()
    trained: list[str] = []
    for step in reader.steps():
        heads = reader.heads(f"step={step:06d}")
        names.update(head["trajectory_id"] for head in heads)
        tasks = {head["group_id"]: head["task_id"] for head in heads}
        wanted = [f"train-{number:07d}" for number in range((step - 1) * per_step, step * per_step)]
        if missing := [name for name in wanted if name not in tasks]:
            yield "problem", f"step {step}: the groups {_short(missing)} are missing"
        # Attempts that were retried may be stored before their group is.
        early = {head["group_id"] for head in heads if head["membership"] == "member"} - set(wanted)
        if early:
            yield "problem", f"step {step}: the groups {_short(sorted(early))} belong to another step"
        trained += [tasks.get(name, name) for name in wanted]
    if twice := [name for name, count in names.items() if count > 1]:
        yield "problem", f"trajectories that are stored more than once: {_short(twice)}"
    size = next((e["count"] for e in reversed(reader.events()) if e.get("kind") == "tasks"), None)
    if size is None:  # written before this event existed
        return
    for start in range(0, len(trained), max(1, size)):
        count = Counter(trained[start : start + size])
        if repeated := [task for task, times in count.items() if times > 1]:
            yield "problem", f"epoch {start // size + 1}: trained more than once: {_short(repeated)}"


def _schema(reader: RunReader) -> Iterator[tuple[str, str]]:
    for source in reader.sources():
        folder = reader.path / "rollouts" / source
        for name, wanted in schema.FILES.items():
            found = pq.read_schema(folder / f"{name}.parquet")
            if missing := sorted(set(wanted.names) - set(found.names)):
                yield "problem", f"{source}/{name}.parquet has no column {', '.join(missing)}"
        yield from _joined(folder, source)


def _joined(folder: Path, source: str) -> Iterator[tuple[str, str]]:
    tokens = ("action_token_ids", "rollout_logprobs", "policy_versions")
    turns = pq.read_table(folder / "turns.parquet", columns=["trajectory_id", *tokens])
    heads = pq.read_table(folder / "trajectories.parquet", columns=["trajectory_id", "turns"])
    verdicts = pq.read_table(folder / "verdicts.parquet", columns=["trajectory_id"])
    lengths = [pc.call_function("list_value_length", [turns.column(name)]).to_pylist() for name in tokens]
    if any(len(set(row)) > 1 for row in zip(*lengths, strict=True)):
        yield "problem", f"{source}: ids, log-probabilities and versions of a turn differ in number (invariant 1)"
    stored = Counter(turns.column("trajectory_id").to_pylist())
    for head in heads.to_pylist():
        if stored[head["trajectory_id"]] != head["turns"]:
            yield (
                "problem",
                f"{source}: {head['trajectory_id']} has {head['turns']} turns, {stored[head['trajectory_id']]} are stored",
            )
    if heads.column("trajectory_id") != verdicts.column("trajectory_id"):
        yield "problem", f"{source}: trajectories and verdicts are not of the same trajectories"


def _checkpoints(reader: RunReader) -> Iterator[tuple[str, str]]:
    per_step = tomllib.loads(reader.config_text()).get("rollout", {}).get("groups_per_step")
    versions = {report.step: report.policy_version for report in reader.reports()}
    for folder in by_step(reader.path / "checkpoints"):
        if (defect := find_defect(folder)) is not None:
            yield "problem", f"{folder.name}: {defect}"
            continue
        state = state_of(folder)
        if state.step != int(folder.name) or versions.get(state.step) != state.policy_version:
            yield (
                "problem",
                f"{folder.name}: is of step {state.step} and policy version {state.policy_version}; metrics.jsonl has version "
                f"{versions.get(state.step)} for it",
            )
        position = state.data_position.get("position") if isinstance(state.data_position, dict) else None
        if per_step and position != state.step * per_step:
            yield "problem", f"{folder.name}: data position {position} after {state.step} x {per_step} groups"


def _log(reader: RunReader) -> Iterator[tuple[str, str]]:
    folder, refused = reader.path / "episodes", 0
    for file, step, _ in files(folder):
        for offset, _, record in lines(file):
            refused += record is not None and record.get("kind") == "refused"
            if (problem := _line_problem(record, step)) is not None:
                yield "problem", f"{file.name}: the line at byte {offset} {problem}"
    if refused:
        yield "note", f"{refused} results were refused; each is in the log with its reason"
    if lost := find(folder, 0, 0).lost:
        yield "note", f"{len(lost)} attempts of the last process have no end in the log: {_short(lost)}"


def _line_problem(record: dict[str, Any] | None, step: int) -> str | None:
    match record:
        case None:
            return "is damaged"
        case {"kind": "standing", "step": other} if other != step:
            return f"is of step {other}"
        case {"kind": "standing", "accounts": accounts}:
            adds_up = accounts["submitted"] == accounts["graded"] + accounts["ungraded"] + accounts["running"]
            return None if adds_up else f"has accounts that do not add up: {accounts}"
        case {"kind": "start" | "end" | "recalled" | "refused"}:
            return None
        case _:
            return "is none of the log"


def _short(items: Sequence[object]) -> str:
    shown = ", ".join(str(item) for item in items[:5])
    return shown if len(items) <= 5 else f"{shown}, ... ({len(items)} in all)"
