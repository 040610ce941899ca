"""Does the default run learn? Three seeds, a negative control, greedy decoding, pass@8, by bug family.

    python benchmarks/learning.py [--seeds 0 1 2] [--out runs/learning] [--pass-tasks 160]

Runs `sanderling train` once per seed and once with shuffled rewards, evaluates the policy before and after with eight
samples per task, and writes docs/results/learning.{md,json,svg}. Finished runs are not repeated, so that a stopped benchmark
goes on where it was. About an hour on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from sanderling.store.estimators import wilson
from sanderling.store.reader import RunReader

ROOT = Path(__file__).parent.parent
CONTROL = "shuffled"


def sanderling(*arguments: str) -> dict:
    """Run a verb with --json and return the object in the last line of its output."""
    print("$ sanderling", *arguments, flush=True)
    command = [sys.executable, "-m", "sanderling.cli", *arguments, "--json"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def once(file: Path, *arguments: str) -> dict:
    """Return the result of a command that is kept in a file, running it if it isn't there."""
    if not file.is_file():
        result = sanderling(*arguments)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(result, indent=1) + "\n")
    return json.loads(file.read_text())


def train(out: Path, name: str, *arguments: str) -> dict:
    """Train once and return the result with what the run folder adds to it."""
    run = out / name
    result = once(out / f"{name}.json", "train", *arguments, "--run", str(run))
    events = RunReader(run).events()
    evaluations = {event["label"]: event for event in events if event["kind"] == "evaluation"}
    keys = ("solve_rate", "n", "low", "high")
    return result | {label: {key: event[key] for key in keys} for label, event in evaluations.items()}


def greedily(out: Path, name: str, policy: str, tasks: int) -> dict:
    arguments = ["eval", policy, "--env", "fix_python", "--split", "held-out", "--n", str(tasks), "--greedy"]
    return once(out / f"{name}-greedy.json", *arguments, "--seed", "0")


def several_samples(out: Path, name: str, policy: str, tasks: int) -> dict:
    arguments = ["eval", policy, "--env", "fix_python", "--split", "held-out", "--n", str(tasks), "--samples", "8"]
    return once(out / f"{name}-pass8.json", *arguments, "--seed", "0")


def families(runs: list[Path], label: str) -> dict[str, tuple[int, int]]:
    """Return (solved, graded) by bug family over the evaluations `label` of several runs."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for run in runs:
        rollouts = RunReader(run).evaluation(label)
        for member in rollouts.members():
            if member.disposition.reward is None:
                continue
            family = rollouts.task_metadata[member.trajectory.task_id]["family"]
            counts[family][0] += member.disposition.reward == 1.0
            counts[family][1] += 1
    return {family: (solved, n) for family, (solved, n) in counts.items()}


def timing(runs: list[Path]) -> dict[str, float]:
    """Return mean seconds per step by phase."""
    reports = [report for run in runs for report in RunReader(run).reports()]
    names = ("rollout_s", "train_s", "push_s", "store_s", "step_s")
    return {name: sum(report.timing.get(name, 0.0) for report in reports) / len(reports) for name in names}


def cell(record: dict) -> str:
    return f"{record['solve_rate']:.3f} [{record['low']:.3f}, {record['high']:.3f}]"


def write_page(results: dict, out: Path) -> str:
    seeds = results["seeds"]
    lines = [
        "# Does the default run learn?",
        "",
        f"`python benchmarks/learning.py --seeds {' '.join(seeds)} --pass-tasks {results['pass_tasks']}`,",
        f"{results['machine']}. Held-out tasks are about functions never trained on;",
        "solved means that all hidden calls agreed with the right function. Brackets are 95 % Wilson intervals.",
        "",
        "| run | sampled at temperature 1, before | after | greedy before | greedy after | wall clock |",
        "|---|---|---|---|---|---|",
    ]
    for name, run in seeds.items():
        lines.append(
            f"| seed {name} (n = {run['before']['n']}) | {cell(run['before'])} | **{cell(run['after'])}** | "
            f"{cell(results['greedy']['before'])} | {cell(results['greedy'][f'seed {name}'])} | {run['wall_s']:.0f} s |"
        )
    control = results["control"]
    if control:
        lines.append(
            f"| shuffled rewards | {cell(control['before'])} | {cell(control['after'])} | "
            f"{cell(results['greedy']['before'])} | {cell(results['greedy'][CONTROL])} | {control['wall_s']:.0f} s |"
        )
    lines += [
        "",
        "The warm-up alone is the column *before*. *Shuffled rewards* is the same budget of episodes and updates with each",
        "group's rewards dealt out at random among its members.",
        "",
        "## How much is sharpening, how much is new?",
        "",
        f"Eight samples per task on {results['pass_tasks']} held-out tasks, pass@k by arXiv 2107.03374 eq. 1:",
        "",
        "| policy | pass@1 | pass@8 |",
        "|---|---|---|",
    ]
    for name, record in results["pass8"].items():
        lines.append(f"| {name} | {record['pass@1']:.3f} | {record['pass@8']:.3f} |")
    lines += ["", "## By bug family (all seeds together)", "", "| family | before | after | n |", "|---|---|---|---|"]
    for family, (before, after) in sorted(results["families"].items()):
        lines.append(f"| {family} | {rate(before)} | {rate(after)} | {after[1]} |")
    phases = results["timing"]
    lines += [
        "",
        "## Where a step's time goes",
        "",
        f"Mean of {phases['step_s']:.1f} s per step: sampling, tools and grading {phases['rollout_s']:.1f} s, training "
        f"{phases['train_s']:.1f} s, weight push {phases['push_s']:.2f} s, writing {phases['store_s']:.2f} s.",
        "",
        "![learning curves](learning.svg)",
        "",
    ]
    return "\n".join(lines)


def rate(counts: tuple[int, int]) -> str:
    low, high = wilson(*counts)
    return f"{counts[0] / max(1, counts[1]):.2f} [{low:.2f}, {high:.2f}]"


def draw(runs: dict[str, Path], file: Path) -> None:
    """Draw the training solve rate of each run, as a mean over five steps."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.5, 3.6))
    for name, run in runs.items():
        rates = [report.metrics["solve_rate"] for report in RunReader(run).reports()]
        smooth = [sum(rates[max(0, i - 4) : i + 1]) / len(rates[max(0, i - 4) : i + 1]) for i in range(len(rates))]
        style = {"color": "0.6", "linestyle": "--"} if name == CONTROL else {}
        axes.plot(range(1, len(smooth) + 1), smooth, label=name, **style)
    axes.set(xlabel="step", ylabel="solve rate while training", ylim=(0, 1))
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})


def machine() -> str:
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    return f"{len(os.sched_getaffinity(0))} cores of {model}, Linux, Python {platform.python_version()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("runs/learning"))
    parser.add_argument("--pass-tasks", type=int, default=160)
    parser.add_argument("--no-control", action="store_true")
    arguments = parser.parse_args()
    out: Path = arguments.out
    seeds = {str(seed): train(out, f"seed-{seed}", "--seed", str(seed)) for seed in arguments.seeds}
    control = None if arguments.no_control else train(out, CONTROL, "--seed", "0", "--control=shuffled_rewards")
    runs = [out / f"seed-{seed}" for seed in arguments.seeds]
    last = {run.name: str(max((run / "checkpoints").glob("[0-9]*"))) for run in runs}
    tasks = next(iter(seeds.values()))["before"]["n"]
    greedy = {"before": greedily(out, "before", "fix-python-tiny", tasks)}
    greedy |= {f"seed {s}": greedily(out, f"seed-{s}", last[f"seed-{s}"], tasks) for s in arguments.seeds}
    if control:
        newest = str(max((out / CONTROL / "checkpoints").glob("[0-9]*")))
        greedy[CONTROL] = greedily(out, CONTROL, newest, tasks)
    pass8 = {"before": several_samples(out, "before", "fix-python-tiny", arguments.pass_tasks)}
    for seed in arguments.seeds:
        name = f"seed-{seed}"
        pass8[f"after, seed {seed}"] = several_samples(out, name, last[name], arguments.pass_tasks)
    before, after = families(runs, "before"), families(runs, "after")
    results = {
        "machine": machine(),
        "seeds": seeds,
        "control": control,
        "pass_tasks": arguments.pass_tasks,
        "greedy": greedy,
        "pass8": pass8,
        "families": {family: (before.get(family, (0, 0)), after[family]) for family in after},
        "timing": timing(runs),
    }
    folder = ROOT / "docs" / "results"
    folder.mkdir(parents=True, exist_ok=True)
    for run in [*seeds.values(), *([control] if control else [])]:
        run["run"] = Path(run["run"]).name
    for record in [*greedy.values(), *pass8.values()]:
        record["policy"] = record["policy"].removeprefix(f"{out}/")  # no path of this machine
    (folder / "learning.json").write_text(json.dumps(results, indent=1) + "\n")
    (folder / "learning.md").write_text(write_page(results, out))
    draw(
        {f"seed {s}": run for s, run in zip(arguments.seeds, runs, strict=True)}
        | ({CONTROL: out / CONTROL} if control else {}),
        folder / "learning.svg",
    )
    print((folder / "learning.md").read_text())


if __name__ == "__main__":
    main()
