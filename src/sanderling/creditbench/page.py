"""The results as a page and a picture, both made of the numbers of one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sanderling.creditbench.arms import ARMS
from sanderling.creditbench.bench import BenchResult
from sanderling.creditbench.expectations import Answer
from sanderling.creditbench.learning import Curves, paired_difference
from sanderling.creditbench.picture import draw
from sanderling.creditbench.quality import Estimate, Quality
from sanderling.creditbench.studies import QUESTIONS, STUDIES

_HEAD = """\
# Who among the turns earned the reward? Estimators against exact gradients

`sanderling credit bench --out docs/results`, seed {seed}. [Numbers](credit-bench.json), and what the words mean:
[credit.md](../credit.md).

*Turns for SNR 1*: environment turns after which a gradient's noise is as small as the gradient; fewer is better. *Cosine*: of
the mean gradient with the exact one; 1 is unbiased. Brackets are 95 % intervals. 2 groups of 8 episodes per update.

![turns for SNR 1](credit-bench.svg)
"""


def write_results(result: BenchResult, folder: Path) -> list[Path]:
    """Write credit-bench.md, .json and .svg into `folder`; return the files."""
    import json

    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "credit-bench.md": document(result),
        "credit-bench.json": json.dumps(result.as_json(), indent=1) + "\n",
        "credit-bench.svg": draw(result.qualities) + "\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    return [folder / name for name in files]


def document(result: BenchResult) -> str:
    """Return the page as Markdown."""
    parts = [_HEAD.format(seed=result.plan.seed), _answers(result)]
    parts += [_environment(name, arms) for name, arms in result.qualities.items()]
    if result.curves:
        parts.append(
            f"## Learning curves\n\nToy policies at the same number of turns, {result.plan.curve_seeds} paired seeds, each "
            "with the best of three learning rates by 6 other seeds. Area: mean success over the budget.\n"
        )
    parts += [_study(name, arms) for name, arms in result.curves.items()]
    return "\n".join(parts)


def _answers(result: BenchResult) -> str:
    lines = ["## What was expected\n", "| claim | where | bound | found | |", "|---|---|---|---|---|"]
    for one in result.checked:
        asked = one.expectation
        if one.answer is Answer.UNMEASURED:
            continue
        bounds = [f"≥ {asked.at_least:g}"] if asked.at_least is not None else []
        bounds += [f"≤ {asked.at_most:g}"] if asked.at_most is not None else []
        what = {"turns": f"turns / {asked.against}", "area": f"area - {asked.against}"}.get(
            asked.measure, asked.measure
        )
        value, low, high = one.found or (0.0, 0.0, 0.0)
        shown = f"{value:.3f} [{low:.3f}, {high:.3f}]" if asked.measure != "signal" else f"{value:g}"
        answer = f"**{one.answer.value}**" if one.answer is not Answer.MET else one.answer.value
        lines.append(
            f"| {asked.claim} | {asked.environment}: {asked.arm}, {what} | {', '.join(bounds)} | {shown} | {answer} |"
        )
    lines.append("")
    lines.append(
        "No arm of the null environment is better than what it is told allows.\n"
        if not result.unearned
        else f"**Better in the null environment than they can be: {', '.join(result.unearned)}.**\n"
    )
    return "\n".join(lines)


def _environment(name: str, arms: Mapping[str, Quality]) -> str:
    lines = [
        f"## {name}\n",
        f"{_sentence(QUESTIONS[name])}.\n",
        "| arm | cosine | turns for SNR 1 | |",
        "|---|---|---|---|",
    ]
    for arm, quality in arms.items():
        if not quality.has_signal:
            lines.append(f"| {arm} | no signal at all | – | {_note(arm)} |")
            continue
        cosine = _estimate(quality.cosine, 3) or "noise"
        lines.append(f"| {arm} | {cosine} | {_estimate(quality.turns_for_snr_1, 0) or '–'} | {_note(arm)} |")
    return "\n".join(lines) + "\n"


def _study(name: str, arms: Mapping[str, Curves]) -> str:
    reference = next(iter(arms))
    lines = [
        f"### {name}\n",
        f"{_sentence(STUDIES[name].question)}; {STUDIES[name].turns} turns.\n",
        f"| arm | area | minus {reference} | final success | learning rate |",
        "|---|---|---|---|---|",
    ]
    for arm, curves in arms.items():
        difference, half = paired_difference(curves.areas, arms[reference].areas)
        against = "–" if arm == reference else f"{difference:+.3f} ± {half:.3f}"
        lines.append(
            f"| {arm} | {curves.areas.mean():.3f} | {against} | {curves.finals.mean():.3f} | {curves.rate:g} |"
        )
    return "\n".join(lines) + "\n"


def _estimate(found: Estimate | None, digits: int) -> str:
    if found is None:
        return ""
    return f"{found.value:,.{digits}f} [{found.low:,.{digits}f}, {found.high:,.{digits}f}]"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _note(arm: str) -> str:
    return ARMS[arm].note if arm in ARMS else ""


def summary(result: BenchResult) -> Sequence[str]:
    """Return what a terminal shows: one line per environment and arm, then what was not met."""
    lines = []
    for name, arms in result.qualities.items():
        lines.append(name)
        for arm, quality in arms.items():
            shown = (
                "no signal at all"
                if not quality.has_signal
                else f"cosine {_estimate(quality.cosine, 3) or 'noise':24} turns {_estimate(quality.turns_for_snr_1, 0) or '-'}"
            )
            lines.append(f"  {arm:20} {shown}")
    for name, curves in result.curves.items():
        lines.append(f"learning, {name}")
        lines += [f"  {arm:20} area {c.areas.mean():.3f} final {c.finals.mean():.3f}" for arm, c in curves.items()]
    counts = {answer: sum(one.answer is answer for one in result.checked) for answer in Answer}
    lines.append("expectations: " + ", ".join(f"{count} {answer.value}" for answer, count in counts.items()))
    lines += [
        f"  {one.answer.value}: {one.expectation.claim} ({one.expectation.environment}, {one.expectation.arm})"
        for one in result.checked
        if one.answer in (Answer.NOT_MET, Answer.OPEN)
    ]
    if result.unearned:
        lines.append(f"better in the null environment than they can be: {', '.join(result.unearned)}")
    return lines
