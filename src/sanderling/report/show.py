"""Trajectories in the terminal: a list to choose from, and one of them in full, nothing cut.

Everything that a policy or a tool wrote goes through `visible`: a terminal shows its control characters, it never obeys them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group as Together
from rich.console import RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from sanderling.errors import ConfigError
from sanderling.harness.tokenizer import Tokenizer
from sanderling.report.digest import is_solved
from sanderling.report.visible import visible
from sanderling.store.reader import Rollouts, RunReader
from sanderling.types import Branching, Graded, Member, Turn, Ungraded


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which trajectories of a run to list; None: any."""

    source: str | None = None  # name of a rollout folder, such as "step=000012"
    split: str | None = None  # "train" or "eval"
    stop: str | None = None
    reward_at_least: float | None = None
    reward_below: float | None = None
    task: str | None = None  # part of a task id

    def accepts(self, head: Mapping[str, Any]) -> bool:
        reward = head["disposition_reward"]
        if self.stop is not None and head["stop"] != self.stop:
            return False
        if self.task is not None and self.task not in head["task_id"]:
            return False
        if self.reward_at_least is not None and not (reward is not None and reward >= self.reward_at_least):
            return False
        return self.reward_below is None or (reward is not None and reward < self.reward_below)


def show_run(
    run: Path, trajectory: str | None = None, *, step: int | None = None, label: str | None = None
) -> RenderableType:
    """Return what `sanderling show` prints: one trajectory, or the list of a step or an evaluation.

    Args:
        run: the run folder.
        trajectory: id of a trajectory; evaluations use the same ids again, so `step` or `label` may be needed.
        step: training step; without it and without a label the last one.
        label: evaluation, such as "before".

    Raises:
        RunFolderError: no run, or its files are damaged.
        ConfigError: no such step, evaluation or trajectory, or an id that means several.
    """
    reader = RunReader(run)
    source = _source(reader, step, label)
    if trajectory is not None:
        rollouts, member = find_member(reader, trajectory, source=source)
        record = member.trajectory
        return render_trajectory(
            member, advantages=rollouts.advantages.get(record.id), prompt=rollouts.task_prompts.get(record.task_id)
        )
    chosen = source or _default_source(reader)
    return render_list(select(reader, Selection(source=chosen)), title=chosen)


def select(reader: RunReader, selection: Selection) -> list[dict[str, Any]]:
    """Return the rows of trajectories.parquet that a selection accepts, each with its `source`; no token is read."""
    sources = [selection.source] if selection.source else reader.sources()
    if selection.split is not None:
        start = "eval=" if selection.split == "eval" else "step="
        sources = [source for source in sources if source.startswith(start)]
    return [head for source in sources for head in reader.heads(source) if selection.accepts(head)]


def find_member(reader: RunReader, trajectory: str, *, source: str | None = None) -> tuple[Rollouts, Member]:
    """Return the member with an id, and the rollouts that it stands in.

    Raises:
        ConfigError: there is none, or several folders hold that id.
    """
    sources = [source] if source else reader.sources()
    holding = [name for name in sources if any(head["trajectory_id"] == trajectory for head in reader.heads(name))]
    if not holding:
        raise ConfigError(
            f"no trajectory {trajectory!r} in {source or reader.path}; `sanderling show {reader.path}` lists them"
        )
    if len(holding) > 1:
        raise ConfigError(
            f"trajectory {trajectory!r} stands in {', '.join(holding)}; say which with --label (eval=...) or --step"
        )
    rollouts = reader.read(holding[0])
    return rollouts, next(member for member in rollouts.members() if member.trajectory.id == trajectory)


def render_list(heads: Sequence[Mapping[str, Any]], *, title: str = "") -> RenderableType:
    """Return a table of trajectories, one a line."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", title=title or None, title_justify="left")
    for name, justify in (("id", "left"), ("task", "left"), ("reward", "right"), ("turns", "right")):
        table.add_column(name, justify=justify, no_wrap=name == "id", overflow="fold")
    table.add_column("tokens", justify="right")
    table.add_column("ended")
    table.add_column("trained")
    for head in heads:
        reward = head["disposition_reward"]
        fate = {"member": head["gradient"], "probe": "probe"}.get(
            head["membership"], f"excluded: {head['disposition_reason']}"
        )
        table.add_row(
            Text(visible(head["trajectory_id"])),
            Text(visible(head["task_id"])),
            _reward(reward),
            str(head["turns"]),
            str(head["sampled_tokens"]),
            head["stop"],
            Text(visible(fate)),
        )
    roots = [head for head in heads if head["parent_id"] is None]
    solved = sum(is_solved(head["disposition_reward"]) for head in roots)
    forks = sum(head.get("branching") == Branching.FORK for head in heads)
    rows = f" and {forks} forks" if forks else ""
    rows += f" in {len(heads)} rows" if len(heads) > len(roots) + forks else ""
    return Together(table, Text(f"{len(roots)} trajectories{rows}, {solved} solved", style="dim"))


def render_trajectory(
    member: Member,
    tokenizer: Tokenizer | None = None,
    *,
    advantages: Sequence[float | None] | None = None,
    prompt: str | None = None,
) -> RenderableType:
    """Return one trajectory in full: prompt, every turn, verdict with its evidence, and what was decided about it.

    Args:
        member: the trajectory with its verdict and disposition.
        tokenizer: shows the prompt exactly as the policy read it.
        advantages: one per turn, None where nothing was trained; as `Rollouts.advantages` gives them.
        prompt: the task's text; shown where there is no tokenizer.
    """
    record = member.trajectory
    head = Text.assemble((visible(record.id), "bold"), f"  {visible(record.task_id)}  attempt {record.attempt}")
    parts: list[RenderableType] = [head]
    text = tokenizer.decode(record.prompt_ids.tolist()) if tokenizer else prompt
    parts.append(Padding(Text(visible(text) if text else f"({len(record.prompt_ids)} prompt tokens)"), (1, 0, 0, 0)))
    given = advantages or [None] * len(record.turns)
    for index, turn in enumerate(record.turns):
        parts += _turn(index, turn, given[index])
    return Together(*parts, *_verdict(member), *_findings(member))


def _turn(index: int, turn: Turn, advantage: float | None) -> list[RenderableType]:
    action, seen = turn.action, turn.observation
    facts = [f"{len(action.token_ids)} token{'' if len(action.token_ids) == 1 else 's'}"]
    if len(action.token_ids):
        facts.append(f"logprob {float(action.rollout_logprobs.mean()):.3f}")
        versions = sorted(set(action.policy_versions.tolist()))
        facts.append(f"policy {versions[0]}" if len(versions) == 1 else f"policies {versions[0]}-{versions[-1]}")
    if turn.reward:
        facts.append(f"reward {turn.reward:g}")
    if advantage is not None:
        facts.append(f"advantage {advantage:+.3f}")
    if action.finish_reason == "length":
        facts.append("cut by its token limit")
    rule = Rule(f"turn {index}  {'  '.join(facts)}", align="left", style="dim", characters="─")
    parts: list[RenderableType] = [Text(""), rule, Text(visible(action.text), style="bold cyan")]
    if seen.text:
        parts.append(Padding(Text(visible(seen.text)), (0, 0, 0, 2)))
    notes: list[str] = [seen.source] if seen.source != "tool" else []
    if seen.exit_code is not None:
        notes.append(f"exit code {seen.exit_code}")
    if seen.omitted_bytes:
        notes.append(f"{seen.omitted_bytes} bytes omitted")
    if notes:
        parts.append(Padding(Text("  ".join(notes), style="dim"), (0, 0, 0, 2)))
    return parts


def _verdict(member: Member) -> list[RenderableType]:
    record, fate = member.trajectory, member.disposition
    lines = [Text(""), Rule("verdict", align="left", style="dim")]
    match member.verdict:
        case Graded(reward=reward, evidence=evidence, components=components):
            lines.append(Text.assemble("reward ", _reward(reward), f"  ended: {record.stop.value}"))
            if evidence is None:
                lines.append(Text("nothing was graded: the policy ended without a submission", style="dim"))
            else:
                lines.append(
                    Text(
                        f"{evidence.passed} of {evidence.required} checks passed, {evidence.executed} executed; canary "
                        f"{'failed as it must' if evidence.canary_failed else 'PASSED: not to be trusted'}; agent's processes "
                        f"{'gone' if evidence.processes_gone else 'STILL ALIVE'}; channel {visible(evidence.channel)}; "
                        f"isolation {visible(evidence.isolation)}"
                    )
                )
                lines += [Text(f"- {visible(note)}") for note in evidence.notes]
            lines += [Text(f"{visible(name)} = {value:g}", style="dim") for name, value in components.items()]
        case Ungraded(cause=cause, phase=phase):
            lines.append(Text(f"ungraded: {phase}: {visible(cause)}  ended: {record.stop.value}", style="yellow"))
    reward = "unknown" if fate.reward is None else f"{fate.reward:g}"
    decision = f"{fate.membership.value}, reward {reward}, gradient {fate.gradient.value}: {visible(fate.reason)}"
    lines.append(Text(f"disposition: {decision}", style="dim"))
    if record.detail:
        lines.append(Text(visible(record.detail), style="dim"))
    timing = record.timing
    spent = f"{timing.total_s:.2f}s: sampling {timing.sample_s:.2f}, tools {timing.tools_s:.2f}, grading {timing.grade_s:.2f}"
    lines.append(Text(f"{spent}; isolation {visible(record.isolation)}", style="dim"))
    return lines


def _findings(member: Member) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for found in member.findings:
        where = "" if found.turn is None else f" in turn {found.turn}"
        lines.append(
            Text(
                f"{found.severity}{where}, {visible(found.screen)}: {visible(found.explanation)} «{visible(found.quote)}»",
                style="yellow",
            )
        )
    return lines


def _reward(value: float | None) -> Text:
    if value is None:
        return Text("none", style="yellow")
    return Text(f"{value:g}", style="green" if is_solved(value) else "red")


def _source(reader: RunReader, step: int | None, label: str | None) -> str | None:
    if step is not None and label is not None:
        raise ConfigError("give a step or a label, not both")
    if step is None and label is None:
        return None
    source = f"eval={label}" if label is not None else f"step={step:06d}"
    if source not in reader.sources():
        raise ConfigError(f"no {source} in {reader.path}; it holds {', '.join(reader.sources()) or 'no rollouts'}")
    return source


def _default_source(reader: RunReader) -> str:
    steps, sources = reader.steps(), reader.sources()
    if not sources:
        raise ConfigError(f"no rollouts are stored in {reader.path} yet")
    return f"step={steps[-1]:06d}" if steps else sources[-1]
